"""A decoder alone: causal blocks that predict the next token of a sequence, nothing else given.

The blocks are the encoder's (self-attention, feed-forward layer, two residual paths, two norms);
what makes them a decoder is the mask. Cross-attention to a source comes on top of this.
"""

import torch
from torch import nn

from labcore.attention import causal_mask, chunk_mask, combine, window_mask
from labcore.blocks import EncoderBlock
from labcore.embed import LearnedPositions, TokenEmbedding
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, check_ids, flag, require, whole

KINDS = ("causal", "window", "chunk", "none")


class Decoder(nn.Module):
    """Logits [B, T, Y] of the token after each position of ids [B, T].

    `kind` is who sees whom: "causal", "window" or "chunk" of `size` positions, or "none", which
    hides nothing and lets a position read its own answer: it is here to be shown as a mistake.

    >>> model = Decoder(10, 12, 4, 17, layers=2, max_length=7)
    >>> list(model(torch.ones(3, 5, dtype=torch.long)).shape)
    [3, 5, 10]
    """

    def __init__(
        self, vocabulary, width, heads, hidden, layers, *,
        max_length, kind="causal", size=None, norm="pre",
    ):  # fmt: skip
        super().__init__()
        whole("vocabulary", vocabulary), whole("layers", layers)
        decoder_mask(kind, 1, size)  # refuses a bad kind or size now, not at the first batch
        self.kind, self.size = kind, size
        self.embedding = TokenEmbedding(vocabulary, width, scale=width**0.5)
        self.positions = LearnedPositions(max_length, width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, hidden, norm) for _ in range(layers))
        self.norm = LayerNorm(width)
        self.read = nn.Linear(width, vocabulary)

    def forward(self, ids, mask=None, *, positions=None, need_weights=False):
        """Logits, or with `need_weights` the pair of logits and a list of weights [B, H, T, T].

        `mask` (True = may attend) is combined with the decoder's own, for padding or packed
        documents; `positions`, [T] or [B, T], replaces the count 0, 1, … that these two shift.
        """
        check_ids(ids, "ids", self.read.out_features, "B T")
        flag("need_weights", need_weights)
        x = self.positions(self.embedding(ids), positions=positions)
        own = decoder_mask(self.kind, ids.shape[1], self.size, device=ids.device)
        mask, maps = combine(own, mask), []
        for block in self.blocks:
            x, weights = block(x, mask, need_weights=True) if need_weights else (block(x, mask), 0)
            maps.append(weights)
        logits = self.read(self.norm(x))
        return (logits, maps) if need_weights else logits

    def scorer(self, pad=None):
        """`score(ids) -> logits [B, Y]` of the next token, as decoding asks for it.

        With `pad` a row may begin with padding: it is hidden, and positions count from the first
        real token, so that prompts of different lengths can share a batch.
        """

        Y = self.read.out_features
        allowed = f"None, or an id 0 to {Y - 1}"
        require(pad is None or whole("pad", pad, 0) < Y, "pad", pad, allowed)

        def score(ids):
            check_ids(ids, "ids", Y, "B T")
            shape = list(ids.shape)
            require(shape[1] >= 1, "ids", f"shape {shape}", "[B, T] with T ≥ 1", ShapeError)
            if pad is None:
                return self(ids)[:, -1]
            mask, positions = left_padding(ids, pad)
            return self(ids, mask, positions=positions)[:, -1]

        score.Y = Y
        return score


def decoder_mask(kind, T, size=None, *, device=None):
    """The mask [T, T] of this kind; "window" and "chunk" need a `size`, the others take none.

    >>> decoder_mask("window", 3, 2).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    require(kind in KINDS, "kind", repr(kind), ", ".join(map(repr, KINDS)))
    sized = kind in ("window", "chunk")
    allowed = "a whole number of at least 1" if sized else "None"
    require((size is not None) == sized, "size", size, f"{allowed} for kind {kind!r}")
    if kind == "none":
        whole("T", T, 0)
        return torch.ones(T, T, dtype=torch.bool, device=device)
    if kind == "causal":
        return causal_mask(T, device=device)
    make = window_mask if kind == "window" else chunk_mask
    return make(T, T, size, device=device)


def left_padding(ids, pad):
    """Mask [B, 1, 1, T] and positions [B, T] of rows that begin with padding.

    Only `pad` before the first other token counts as padding here; positions of padding are 0.

    >>> mask, positions = left_padding(torch.tensor([[0, 0, 5, 6], [4, 5, 6, 0]]), pad=0)
    >>> mask[:, 0, 0].int().tolist(), positions.tolist()
    ([[0, 0, 1, 1], [1, 1, 1, 1]], [[0, 0, 0, 1], [0, 1, 2, 3]])
    """
    check_ids(ids, "ids", None, "B T")
    real = (ids != whole("pad", pad, 0)).cumsum(-1) > 0
    return real[:, None, None, :], (real.cumsum(-1) - 1).clamp_min(0)
