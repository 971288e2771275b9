"""The Transformer of 2017: an encoder that reads all, a decoder that writes word by word.

encode: source [B, S] → embeddings · √D + positions → L encoder blocks → memory [B, S, D]
decode: target [B, T] → embeddings · √D + positions → L decoder blocks → logits [B, T, Y]
(Vaswani et al. 2017, figure 1). The decoder is fed BOS y_1 … y_(T-1) and its logits at position t
are for y_(t+1): the right shift is the caller's business (`labcore.train.forcing`).

Deviations from the paper: two vocabularies with an embedding each; the output matrix is its own
unless `tied`; with norm="pre" both stacks end in one more LayerNorm, without which the last
residual sum would leave unnormalised. With another `wiring` than "last" the memory holds every
encoder layer, [L, B, S, D] (`labcore.blocks.wiring`).
"""

import math

import torch
from torch import nn

from labcore.attention.scores import check_float
from labcore.blocks.decoder import DecoderBlock
from labcore.blocks.encoder import EncoderBlock
from labcore.blocks.wiring import WiredAttention
from labcore.embed import SinusoidalPositions, TokenEmbedding
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, check_ids, dropout_share, flag, require, whole


class Seq2Seq(nn.Module):
    """Logits [B, T, Y] for a source [B, S] and a decoder input [B, T], both int64 ids.

    `padding` is the id that no attention reads in the source. In the target it needs no mask: it
    stands behind the words, and the causal mask hides it from them.

    >>> model = Seq2Seq(17, 33, width=12, heads=4, hidden=19, layers=2)
    >>> list(model(torch.ones(3, 7, dtype=torch.long), torch.ones(3, 5, dtype=torch.long)).shape)
    [3, 5, 33]
    """

    def __init__(
        self,
        source_size,
        target_size,
        width=64,
        heads=4,
        hidden=128,
        layers=2,
        norm="pre",
        *,
        activation="relu",
        dropout=0.0,
        wiring="last",
        padding=0,
        tied=False,
    ):
        super().__init__()
        for name, size in (("width", width), ("layers", layers), ("target_size", target_size)):
            whole(name, size)
        whole("source_size", source_size), flag("tied", tied)
        inside = whole("padding", padding, 0) < source_size
        require(inside, "padding", padding, f"an id of the source, 0 to {source_size - 1}")
        self.source_size, self.target_size = source_size, target_size
        self.padding, self.wiring = padding, wiring
        self.source_embedding = TokenEmbedding(source_size, width, scale=math.sqrt(width))
        self.target_embedding = TokenEmbedding(target_size, width, scale=math.sqrt(width))
        self.positions = SinusoidalPositions(width)
        self.dropout = nn.Dropout(dropout_share(dropout))
        options = {"activation": activation, "dropout": dropout}
        self.encoder = nn.ModuleList(
            [EncoderBlock(width, heads, hidden, norm, **options) for _ in range(layers)]
        )
        self.decoder = nn.ModuleList(
            [DecoderBlock(width, heads, hidden, norm, **options) for _ in range(layers)]
        )
        if wiring != "last":
            for layer, block in enumerate(self.decoder):
                block.cross = WiredAttention(block.cross, wiring, layer, layers)
        last = norm == "pre"
        self.encoder_norm = LayerNorm(width) if last else nn.Identity()
        self.decoder_norm = LayerNorm(width) if last else nn.Identity()
        self.output = nn.Linear(width, target_size, bias=False)
        if tied:
            self.output.weight = self.target_embedding.weight

    def source_mask(self, source):
        """The mask [B, 1, 1, S] that hides the padding of a source [B, S]."""
        check_ids(source, "source", self.source_size, "B S")
        return (source != self.padding)[:, None, None, :]

    def encode(self, source, source_mask=None):
        """Memory [B, S, D] of a source [B, S]; [L, B, S, D], all layers, for other wirings."""
        mask = self.source_mask(source) if source_mask is None else source_mask
        x = self.dropout(self.positions(self.source_embedding(source)))
        layers = []
        for block in self.encoder:
            x = block(x, mask)
            layers.append(x)
        if self.wiring == "last":
            return self.encoder_norm(x)
        return self.encoder_norm(torch.stack(layers))

    def decode(self, target, memory, memory_mask=None, *, mask=None, need_weights=False):
        """Logits [B, T, Y] of a decoder input [B, T]; with `need_weights` the pair of them and
        the cross-attention weights, a list over layers of [B, H, T, S].

        `mask` limits self-attention further than the causal mask does.
        """
        check_ids(target, "target", self.target_size, "B T")
        return self.decode_vectors(
            self.target_embedding(target), memory, memory_mask, mask=mask, need_weights=need_weights
        )

    def decode_vectors(self, embedded, memory, memory_mask=None, *, mask=None, need_weights=False):
        """`decode` for embeddings [B, T, D] instead of ids: they may be mixtures of several."""
        B = self._check_memory(memory)
        check_float(embedded, "embedded")
        told = f"shape {list(embedded.shape)}"
        require(embedded.ndim == 3, "embedded", told, "[B, T, D]", error=ShapeError)
        given, allowed = f"batch {embedded.shape[0]}", f"batch {B}, as the memory"
        require(embedded.shape[0] == B, "target", given, allowed, error=ShapeError)
        x, kept = self.dropout(self.positions(embedded)), []
        for block in self.decoder:
            x = block(x, memory, mask, memory_mask, need_weights=need_weights)
            if need_weights:
                x, _, weights = x
                kept.append(weights)
        logits = self.output(self.decoder_norm(x))
        return (logits, kept) if need_weights else logits

    def _check_memory(self, memory):
        """The batch size of what `encode` gave, or an error."""
        check_float(memory, "memory")
        width, layers = self.positions.width, len(self.decoder)
        lead = [] if self.wiring == "last" else [layers]
        shape = list(memory.shape)
        fits = len(shape) == 3 + len(lead) and shape[: len(lead)] == lead and shape[-1] == width
        allowed = f"[{f'L={layers}, ' if lead else ''}B, S, D={width}]"
        require(fits, "memory", f"shape {shape}", allowed, error=ShapeError)
        return shape[-3]

    def forward(self, source, target):
        mask = self.source_mask(source)
        return self.decode(target, self.encode(source, mask), mask)

    def scorer(self, source):
        """A function score(prefix [B', T]) → logits [B', Y] of the next word, for decoding.

        The source [B, S] is read once. B' may be a multiple of B: row b of the source then serves
        the rows b·B'/B … of the prefix, as beams need it.
        """
        mask = self.source_mask(source)
        memory = self.encode(source, mask)

        def score(prefix):
            check_ids(prefix, "prefix", self.target_size, "B T")
            told = f"shape {list(prefix.shape)}"
            require(prefix.shape[1] >= 1, "prefix", told, "[B, T] with T ≥ 1", error=ShapeError)
            times, rest = divmod(prefix.shape[0], max(mask.shape[0], 1))
            allowed = f"a multiple of {mask.shape[0]} rows"
            require(rest == 0, "prefix", f"{prefix.shape[0]} rows", allowed, error=ShapeError)
            wide = memory.repeat_interleave(times, dim=-3)
            return self.decode(prefix, wide, mask.repeat_interleave(times, dim=0))[:, -1]

        score.Y = self.target_size
        return score
