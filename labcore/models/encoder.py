"""One encoder interface, three ways to fill it: x_1 … x_N in, h_1 … h_N out.

`Encoder(kind)` is a stack of blocks that differ in one layer only, the one that lets positions
talk: a recurrence read in both directions, a convolution, or self-attention. Each h_i is meant to
know about its neighbours; how far a block reaches is what sets the three apart. Every block has
parameters of its own.

Sequences of a batch may have different lengths. Positions beyond a sequence's end are read by
nobody and come out as zeros, for all three kinds.
"""

import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.blocks.encoder import EncoderBlock, MixerBlock
from labcore.blocks.mixers import ConvolutionMixer, RecurrentMixer
from labcore.embed import LearnedPositions, TokenEmbedding
from labcore.embed.position import check_inputs
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, flag, require, whole

KINDS = ("rnn", "cnn", "transformer")


class TwoWayRecurrence(nn.Module):
    """W [h→; h←]: the states of two recurrences, one from the left and one from the right.

    The right one starts at each sequence's own end (Schuster and Paliwal 1997).

    >>> list(TwoWayRecurrence(6)(torch.ones(3, 7, 6)).shape)
    [3, 7, 6]
    """

    def __init__(self, width):
        super().__init__()
        self.left, self.right = RecurrentMixer(width), RecurrentMixer(width)
        self.join = nn.Linear(2 * width, width)

    def forward(self, x, lengths=None):
        from_right = turned(self.right(turned(x, lengths)), lengths)
        return self.join(torch.cat([self.left(x), from_right], -1))


class PaddedConvolution(nn.Module):
    """A `ConvolutionMixer` that sees zeros beyond each sequence's end, as beyond the tensor's.

    >>> list(PaddedConvolution(6, 3)(torch.ones(3, 7, 6)).shape)
    [3, 7, 6]
    """

    def __init__(self, width, kernel=3):
        super().__init__()
        self.convolution = ConvolutionMixer(width, kernel)

    def forward(self, x, lengths=None):
        return self.convolution(without_padding(x, lengths))


class Encoder(nn.Module):
    """Vectors h [B, N, D] of x [B, N, D], by `layers` blocks of `kind`, one of `KINDS`.

    `heads` is for "transformer", an odd `kernel` for "cnn"; `hidden` defaults to 4D. With
    norm="pre" one more norm follows the last block, for the residual path was never normalised.

    >>> x = torch.randn(2, 9, 32)
    >>> [list(Encoder(kind, 32, layers=3)(x).shape) for kind in KINDS]
    [[2, 9, 32], [2, 9, 32], [2, 9, 32]]
    """

    def __init__(
        self,
        kind,
        width,
        layers,
        *,
        heads=4,
        hidden=None,
        kernel=3,
        norm="post",
        activation="relu",
        dropout=0.0,
    ):
        super().__init__()
        require(kind in KINDS, "kind", given=repr(kind), allowed=", ".join(map(repr, KINDS)))
        whole("width", width), whole("layers", layers, 0)
        whole("heads", heads), whole("kernel", kernel)
        self.kind, self.width = kind, width
        hidden = 4 * width if hidden is None else hidden
        extra = {"activation": activation, "dropout": dropout}

        def block():
            if kind == "transformer":
                return EncoderBlock(width, heads, hidden, norm, **extra)
            mixer = TwoWayRecurrence(width) if kind == "rnn" else PaddedConvolution(width, kernel)
            return MixerBlock(mixer, width, hidden, norm, **extra)

        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.final_norm = LayerNorm(width) if norm == "pre" else nn.Identity()

    def forward(self, x, lengths=None, *, need_states=False):
        """h [B, N, D]; with `need_states` also a list: x, then what each block gave."""
        check_inputs(x, self.width)
        require(x.ndim == 3, "x", f"shape {list(x.shape)}", f"[B, N, D={self.width}]", ShapeError)
        mask = None if lengths is None else _mask_of(lengths, x)
        flag("need_states", need_states)
        states = [x]
        for block in self.blocks:
            x = block(x, mask) if self.kind == "transformer" else block(x, lengths)
            states.append(x)
        h = without_padding(self.final_norm(x), lengths)
        return (h, states) if need_states else h


class Tagger(nn.Module):
    """Logits [B, N, Y] at every position of ids [B, N]: tokens + learned positions, encoder, head.

    >>> model = Tagger(Encoder("transformer", 12, 2), vocabulary=10, max_length=7)
    >>> list(model(torch.zeros(3, 7, dtype=torch.long)).shape)
    [3, 7, 10]
    """

    def __init__(self, encoder, vocabulary, max_length, outputs=None):
        super().__init__()
        self.tokens = TokenEmbedding(vocabulary, encoder.width)
        self.positions = LearnedPositions(max_length, encoder.width)
        self.encoder = encoder
        self.head = nn.Linear(encoder.width, vocabulary if outputs is None else outputs)

    def forward(self, ids, lengths=None):
        return self.head(self.encoder(self.positions(self.tokens(ids)), lengths))


def without_padding(x, lengths=None):
    """x [B, N, D] with zeros beyond each sequence's length.

    >>> without_padding(torch.ones(1, 3, 1), [2]).flatten().tolist()
    [1.0, 1.0, 0.0]
    """
    if lengths is None:
        return x
    return x.masked_fill(~_mask_of(lengths, x)[:, 0, 0, :, None], 0)


def turned(x, lengths=None):
    """x [B, N, D] with each sequence in reverse order; what lies beyond its length stays there.

    >>> turned(torch.tensor([[[1.0], [2.0], [3.0]]]), [2]).flatten().tolist()
    [2.0, 1.0, 3.0]
    """
    if lengths is None:
        return x.flip(1)
    _mask_of(lengths, x)
    places = torch.arange(x.shape[1], device=x.device)
    back = torch.as_tensor(lengths, device=x.device)[:, None] - 1 - places
    return x.gather(1, torch.where(back >= 0, back, places)[..., None].expand_as(x))


def _mask_of(lengths, x):
    """The mask [B, 1, 1, N] of the lengths of x [B, N, D], one for each sequence."""
    mask = padding_mask(lengths, x.shape[1], device=x.device)
    given, allowed = f"{mask.shape[0]} lengths", f"{x.shape[0]}, one for each sequence"
    require(mask.shape[0] == x.shape[0], "lengths", given, allowed, ShapeError)
    return mask
