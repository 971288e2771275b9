"""T5: an encoder reads a whole text, a decoder writes one: every task is text to text.

Raffel et al. 2020, section 2.1. Pre-norm with RMSNorm, no biases, no scaling of the scores (the
initialisation of W_Q makes up for it), and relative position biases that all layers of a stack
share. `gated` with activation "gelu_tanh" is version 1.1.

Deviation from the published code: dropout only where a sublayer ends.
"""

import contextlib
import dataclasses

import torch
from torch import nn

from labcore.attention import MultiHeadAttention, causal_mask
from labcore.attention.attend import check_attend
from labcore.attention.cache import KVCache
from labcore.attention.masks import check_mask
from labcore.attention.scores import check_input, softmax
from labcore.embed import TokenEmbedding
from labcore.embed.relative import RelativeBias
from labcore.ffn import FeedForward, GatedFeedForward, function_of
from labcore.norms import RMSNorm
from labcore.shapes import ShapeError, check_ids, dropout_share, flag, number, require, whole


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Sizes and switches of a `T5`; the defaults are those of T5 base.

    >>> T5Config(width=512, layers=6, heads=8, hidden=2048).key_width
    64
    """

    vocabulary: int = 32128
    width: int = 768
    layers: int = 12
    heads: int = 12
    key_width: int = 64
    hidden: int = 3072
    buckets: int = 32
    max_distance: int = 128
    activation: str = "relu"
    gated: bool = False
    tied: bool = True
    eps: float = 1e-6
    dropout: float = 0.0

    def __post_init__(self):
        for name in ("vocabulary", "width", "layers", "heads", "key_width", "hidden"):
            whole(name, getattr(self, name))
        flag("gated", self.gated), flag("tied", self.tied)
        number("eps", self.eps, above=0), dropout_share(self.dropout)
        function_of(self.activation)


def attend_biased(q, k, v, bias=None, mask=None):
    """The pair outputs [B, H, T, V], weights [B, H, T, S] of softmax(QKᵀ + bias)V, not scaled.

    >>> q = torch.zeros(3, 4, 5, 6)
    >>> [list(x.shape) for x in attend_biased(q, q, q, bias=torch.zeros(1, 4, 5, 5))]
    [[3, 4, 5, 6], [3, 4, 5, 5]]
    """
    grouped = check_attend(q, k, v)
    require(not grouped, "k", f"shape {list(k.shape)}", f"{q.shape[1]} heads, as q", ShapeError)
    scores = q @ k.transpose(-1, -2)
    if bias is not None:
        wanted = (1, *scores.shape[1:])
        fits = bias.shape in (wanted, scores.shape)
        require(fits, "bias", f"shape {list(bias.shape)}", f"shape {list(wanted)}", ShapeError)
    weights = softmax(scores if bias is None else scores + bias, mask)
    return weights @ v, weights


_MEMORY = {True: "a pair of keys and values [B, H, S, K]", False: "None: it has no cross-attention"}


class T5Block(nn.Module):
    """x [B, T, D] → [B, T, D]: self-attention, cross-attention if `cross`, feed-forward."""

    def __init__(self, config, *, cross):
        super().__init__()
        c = config
        self.self_norm, self.self_attention = RMSNorm(c.width, c.eps), _attention(c)
        self.cross_norm = RMSNorm(c.width, c.eps) if cross else None
        self.cross_attention = _attention(c) if cross else None
        kind = GatedFeedForward if c.gated else FeedForward
        self.ffn_norm = RMSNorm(c.width, c.eps)
        self.ffn = kind(c.width, c.hidden, c.activation, bias=False)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, bias, mask=None, *, memory=None, memory_mask=None, store=None):
        """`memory` is the pair of the encoder's keys and values [B, H, S, K] for this layer."""
        cross = self.cross_attention is not None
        require(cross == (memory is not None), "memory", type(memory).__name__, _MEMORY[cross])
        q, k, v = self.self_attention.project(self.self_norm(x))
        if store is not None:
            k, v = store.append(k, v)
        found, weights = attend_biased(q, k, v, bias, mask)
        x = x + self.dropout(self.self_attention.join(found))
        crossed = None
        if cross:
            q = self.cross_attention.q_proj(self.cross_norm(x))
            q = q.unflatten(-1, (self.cross_attention.heads, -1)).transpose(1, 2)
            found, crossed = attend_biased(q, *memory, mask=memory_mask)
            x = x + self.dropout(self.cross_attention.join(found))
        return x + self.dropout(self.ffn(self.ffn_norm(x))), (weights, crossed)


class T5Stack(nn.Module):
    """L blocks with one shared `RelativeBias`, and a norm at the end."""

    def __init__(self, config, *, decoder):
        super().__init__()
        c = config
        self.bias = RelativeBias(c.heads, c.buckets, c.max_distance, both=not decoder)
        self.blocks = nn.ModuleList(T5Block(c, cross=decoder) for _ in range(c.layers))
        self.norm = RMSNorm(c.width, c.eps)

    def forward(self, x, mask=None, *, memory=None, memory_mask=None, cache=None):
        """The pair of states [B, T, D] and, for each layer, (self weights, cross weights)."""
        past, T = 0 if cache is None else cache.length, x.shape[1]
        bias, maps = self.bias(T, past + T, past), []
        with contextlib.nullcontext() if cache is None else cache.appending():
            for i, block in enumerate(self.blocks):
                store = None if cache is None else cache.layers[i]
                pair = None if memory is None else memory[i]
                x, weights = block(x, bias, mask, memory=pair, memory_mask=memory_mask, store=store)
                maps.append(weights)
        return self.norm(x), maps


class T5(nn.Module):
    """Logits [B, T, Y] of the target tokens after each of target [B, T], given source [B, S].

    >>> sizes = dict(vocabulary=10, width=12, layers=2, heads=4, key_width=5, hidden=17)
    >>> model = T5(T5Config(**sizes)).eval()
    >>> list(model(torch.ones(3, 7, dtype=torch.long), torch.ones(3, 5, dtype=torch.long)).shape)
    [3, 5, 10]
    """

    def __init__(self, config):
        super().__init__()
        given = type(config).__name__
        require(isinstance(config, T5Config), "config", given, "a T5Config", TypeError)
        self.config = config
        self.tokens = TokenEmbedding(config.vocabulary, config.width)
        nn.init.normal_(self.tokens.weight, std=1.0)
        self.encoder = T5Stack(config, decoder=False)
        self.decoder = T5Stack(config, decoder=True)
        self.head = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)

    def encode(self, source, source_mask=None, *, need_weights=False):
        """Memory [B, S, D] of source ids [B, S]; with `need_weights` also L maps [B, H, S, S].

        `source_mask` is bool, True = may attend: `padding_mask(lengths, S)` or [S, S].
        """
        check_ids(source, "source", self.config.vocabulary, "B S")
        flag("need_weights", need_weights)
        memory, maps = self.encoder(self.tokens(source), source_mask)
        return (memory, tuple(own for own, _ in maps)) if need_weights else memory

    def decode(self, target, memory, memory_mask=None, *, need_weights=False):
        """Logits [B, T, Y]; with `need_weights` also L pairs of self and cross weights."""
        check_ids(target, "target", self.config.vocabulary, "B T")
        flag("need_weights", need_weights)
        pairs = self.project(memory)
        rows, given = memory.shape[0], f"{target.shape[0]} rows"
        require(target.shape[0] == rows, "target", given, f"{rows}, as the source", ShapeError)
        mask = causal_mask(target.shape[1], device=target.device)
        x, maps = self.decoder(self.tokens(target), mask, memory=pairs, memory_mask=memory_mask)
        logits = self._read(x)
        return (logits, tuple(maps)) if need_weights else logits

    def forward(self, source, target, source_mask=None):
        """`target` is shifted right: it starts with the start id and lacks its last token.

        Both stacks read `source_mask`, so it hides keys whoever asks: `padding_mask(lengths, S)`.
        """
        _check_both(source_mask)
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def project(self, memory):
        """Keys and values [B, H, S, K] of the memory for the cross-attention of every layer."""
        check_input(memory, "memory", self.decoder.blocks[0].cross_attention.k_proj.weight)
        given = f"shape {list(memory.shape)}"
        require(memory.ndim == 3, "memory", given, f"[B, S, D={memory.shape[-1]}]", ShapeError)
        pairs = []
        for block in self.decoder.blocks:
            layer = block.cross_attention
            parts = (layer.k_proj(memory), layer.v_proj(memory))
            pairs.append([p.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for p in parts])
        return pairs

    def start(self, source, source_mask=None, max_length=128):
        """A `KVCache` with the encoder's keys and values, computed once, and no target yet.

        `source_mask` as in `forward`.
        """
        _check_both(source_mask)
        check_ids(source, "source", self.config.vocabulary, "B S")
        weight, c = self.tokens.weight, self.config
        sizes = {"kv_heads": c.heads, "key_width": c.key_width}
        where = {"dtype": weight.dtype, "device": weight.device}
        cache = KVCache(c.layers, source.shape[0], max_length, **sizes, **where)
        cache.memory = self.project(self.encode(source, source_mask))
        cache.memory_mask = source_mask
        return cache

    def advance(self, ids, cache):
        """Logits [B, Y] after the last of target ids [B, T], which continue the cache."""
        return self.continued(ids, cache)[:, -1]

    def continued(self, ids, cache):
        """Logits [B, T, Y] of target ids [B, T] that continue the cache and join it."""
        self._check(ids, cache)
        T, S = ids.shape[1], cache.length + ids.shape[1]
        mask = causal_mask(T, S, device=ids.device)
        x, _ = self.decoder(
            self.tokens(ids), mask, memory=cache.memory, memory_mask=cache.memory_mask, cache=cache
        )
        return self._read(x)

    def _check(self, ids, cache):
        """None, or an error before the first block has written anything into the cache."""
        check_ids(ids, "ids", self.config.vocabulary, "B T")
        told, ours = type(cache).__name__, isinstance(cache, KVCache)
        told = "a KVCache without a source" if ours and cache.memory is None else told
        ours = ours and cache.memory is not None
        require(ours, "cache", told, "what start(source) gives", TypeError)
        layers, L = len(cache.layers), self.config.layers
        require(layers == L == len(cache.memory), "cache", f"{layers} layers", f"{L}")
        (B, T), batch = ids.shape, cache.batch
        require(batch == B, "ids", f"{B} rows", f"{batch}, as in the cache", ShapeError)
        require(T >= 1, "ids", f"shape {[B, T]}", "[B, T] with T ≥ 1", ShapeError)
        end, most = cache.length + T, cache.max_length
        require(end <= most, "cache", f"{end} tokens", f"up to max_length {most}")
        if cache.memory_mask is not None:
            shape = (B, self.config.heads, T, cache.memory[0][0].shape[2])
            check_mask(cache.memory_mask, shape, ids.device)

    def _read(self, x):
        if self.head is not None:
            return self.head(x)
        # Tied to a table of deviation 1, so the states are brought to length 1 first.
        return torch.nn.functional.linear(x * self.config.width**-0.5, self.tokens.weight)


def _check_both(mask):
    """None, or an error for a mask [S, S]: the decoder would take its rows for target positions."""
    if isinstance(mask, torch.Tensor) and mask.ndim >= 2:
        allowed = "a mask with one row for all queries; for another one call encode and decode"
        one = mask.shape[-2] == 1
        require(one, "source_mask", f"shape {list(mask.shape)}", allowed, ShapeError)


def _attention(c):
    sizes = {"key_width": c.key_width, "value_width": c.key_width, "bias": False}
    layer = MultiHeadAttention(c.width, c.heads, **sizes)
    # Scores are not divided by √K, so the queries start smaller by that factor.
    nn.init.normal_(layer.q_proj.weight, std=(c.width * c.key_width) ** -0.5)
    nn.init.normal_(layer.k_proj.weight, std=c.width**-0.5)
    nn.init.normal_(layer.v_proj.weight, std=c.width**-0.5)
    nn.init.normal_(layer.o_proj.weight, std=(c.heads * c.key_width) ** -0.5)
    return layer
