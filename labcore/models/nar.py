"""One stack of blocks that writes a target beside its source: token by token, or all at once.

Source and target stand in one row, and only the mask tells them apart: the source sees itself,
the target sees the source and either its own past (autoregressive, "prefix LM" of Raffel et al.
2020, section 3.2.1) or all of its slots (non-autoregressive, Gu et al. 2018). So the two kinds of
generation have the same layers and the same number of parameters, and what differs is what this
chapter is about. Gu et al. copy source embeddings into the slots; here, as in Ghazvininejad et al.
2019, a slot holds MASK and its position.
"""

import torch
from torch import nn

from labcore.attention import combine, padding_mask, prefix_mask
from labcore.blocks import EncoderBlock
from labcore.embed import SinusoidalPositions, TokenEmbedding
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, check_ids, flag, require, whole

PAD, BOS, END, MASK = range(4)
SPECIAL = ("PAD", "BOS", "END", "MASK")


class PrefixDecoder(nn.Module):
    """Logits [B, T, Y] for target ids [B, T] after source ids [B, S], and logits of the length.

    `parallel=False`: logits at t are of the token *after* target t, which sees targets 0 … t.
    `parallel=True`: logits at t are of slot t itself, which sees every slot.
    The length predictor reads the mean of the source positions and scores the lengths
    0 … `max_target`.

    >>> model = PrefixDecoder(9, 11, 12, 4, 17, 2, max_target=5)
    >>> source, target = torch.ones(3, 6, dtype=torch.long), torch.ones(3, 4, dtype=torch.long)
    >>> logits, length = model(source, torch.tensor([6, 2, 4]), target)
    >>> list(logits.shape), list(length.shape)
    ([3, 4, 11], [3, 6])
    """

    def __init__(
        self, source_size, target_size, width, heads, hidden, layers, *,
        max_target, parallel=False, norm="pre",
    ):  # fmt: skip
        super().__init__()
        (
            whole("layers", layers),
            whole("source_size", source_size),
            whole("target_size", target_size),
        )
        self.parallel, self.max_target = flag("parallel", parallel), whole("max_target", max_target)
        self.source_embedding = TokenEmbedding(source_size, width, scale=width**0.5)
        self.target_embedding = TokenEmbedding(target_size, width, scale=width**0.5)
        # One code for both sides: a target position finds the source position of the same number.
        self.positions = SinusoidalPositions(width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, hidden, norm) for _ in range(layers))
        self.norm = LayerNorm(width)
        self.read = nn.Linear(width, target_size)
        self.read_length = nn.Linear(width, max_target + 1)

    def forward(self, source, source_lengths, target, target_lengths=None):
        """The pair (logits [B, T, Y], length logits [B, max_target + 1]).

        `target_lengths` hides the slots behind a row's end from the others; None hides none.
        """
        check_ids(source, "source", self.source_embedding.weight.shape[0], "B S")
        check_ids(target, "target", self.read.out_features, "B T")
        (B, S), T = source.shape, target.shape[1]
        mask = side_by_side(S, source_lengths, T, target_lengths, causal=not self.parallel)
        for name, rows in (("target", target), ("source_lengths", mask)):
            given, allowed = f"{len(rows)} rows", f"as many as source has, {B}"
            require(len(rows) == B, name, given, allowed, ShapeError)
        x = torch.cat(
            [
                self.positions(self.source_embedding(source)),
                self.positions(self.target_embedding(target)),
            ],
            dim=1,
        )
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        real = padding_mask(source_lengths, S)[:, 0, 0, :, None].to(x.dtype)
        mean = (x[:, :S] * real).sum(1) / real.sum(1).clamp_min(1)
        return self.read(x[:, S:]), self.read_length(mean)

    def scorer(self, source, source_lengths):
        """`score(ids)` for this source, as decoding asks for it.

        Autoregressive: next-token logits [B, Y] of prefixes [B, T], with `reorder(parents)` for
        searches that copy rows. Parallel: logits [B, T, Y] of slots, where PAD is behind the end.
        """
        return _Score(self, source, source_lengths)


def side_by_side(S, source_lengths, T, target_lengths=None, *, causal):
    """The mask [B, 1, S + T, S + T] of a source and its target in one row, padding hidden.

    >>> side_by_side(2, [2, 1], 2, causal=True)[1, 0].int().tolist()
    [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    """
    left = padding_mask(source_lengths, S)
    _check_target(T, target_lengths, len(left))
    if target_lengths is None:
        right = left.new_ones(len(left), 1, 1, T)
    else:
        right = padding_mask(target_lengths, T)
    order = prefix_mask(S, T, causal=causal, device=left.device)
    return combine(order, torch.cat([left, right], dim=-1))


def _check_target(T, target_lengths, rows):
    whole("T", T, 0)
    if target_lengths is not None:
        given, allowed = len(padding_mask(target_lengths, T)), f"{rows}, as many as source has"
        require(given == rows, "target_lengths", f"{given} rows", allowed, ShapeError)


class _Score:
    def __init__(self, model, source, source_lengths):
        self.model, self.source, self.source_lengths = model, source, source_lengths
        self.Y = model.read.out_features

    def __call__(self, ids):
        if not self.model.parallel:
            check_ids(ids, "ids", self.Y, "B T")
            shape = list(ids.shape)
            require(shape[1] >= 1, "ids", f"shape {shape}", "[B, T] with T ≥ 1", ShapeError)
            return self.model(self.source, self.source_lengths, ids)[0][:, -1]
        check_ids(ids, "ids", self.Y, "B T")
        lengths = (ids != PAD).sum(-1)
        return self.model(self.source, self.source_lengths, ids, lengths)[0]

    def reorder(self, parents):
        """None; row b becomes what row `parents[b]` was."""
        self.source, self.source_lengths = self.source[parents], self.source_lengths[parents]


def predicted_lengths(model, source, source_lengths):
    """The most probable target length of each source, [B], between 1 and `max_target`."""
    check_ids(source, "source", model.source_embedding.weight.shape[0], "B S")
    nothing = source.new_zeros(len(source), 0)
    with torch.no_grad():
        _, logits = model(source, source_lengths, nothing)
    return logits[:, 1:].argmax(-1) + 1


def empty_slots(lengths, T=None):
    """Ids [B, T] with MASK in the first `lengths[b]` slots and PAD behind.

    >>> empty_slots(torch.tensor([3, 1])).tolist()
    [[3, 3, 3], [3, 0, 0]]
    """
    return torch.where(padding_mask(lengths, T)[:, 0, 0], MASK, PAD)
