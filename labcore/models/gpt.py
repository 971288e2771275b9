"""GPT: a stack of causal blocks that says, at every position, which token comes next.

One class for many published models, told apart by switches: GPT-2 (Radford et al. 2019) is
norm "layer", position "learned", biases; Llama (Touvron et al. 2023) is norm "rms", position
"rope", gated, no biases, and fewer key/value heads in its larger sizes.
"""

import contextlib
import dataclasses

import torch
from torch import nn

from labcore.attention import MultiHeadAttention, attend, combine, window_mask
from labcore.attention.cache import KVCache
from labcore.attention.masks import check_mask
from labcore.embed import LearnedPositions, SinusoidalPositions, TokenEmbedding
from labcore.embed.position import check_places
from labcore.embed.rope import RotaryPositions
from labcore.ffn import FeedForward, GatedFeedForward, function_of
from labcore.norms import LayerNorm, RMSNorm
from labcore.shapes import ShapeError, check_ids, dropout_share, flag, number, require, whole

NORMS = {"layer": LayerNorm, "rms": RMSNorm}
POSITIONS = ("learned", "sinusoidal", "rope", "none")


@dataclasses.dataclass(frozen=True)
class GPTConfig:
    """Sizes and switches of a `GPT`; the defaults are those of GPT-2 small.

    `kv_heads` None stands for `heads`, `key_width` None for width / heads. `window` W lets a query
    see the last W tokens, itself included; None lets it see all. `order` places the norms. No text
    is longer than `max_length`, whatever the positions are.

    >>> GPTConfig(norm="rms", position="rope", gated=True, bias=False).tied
    True
    """

    vocabulary: int = 50257
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    max_length: int = 1024
    kv_heads: int | None = None
    key_width: int | None = None
    norm: str = "layer"
    order: str = "pre"
    position: str = "learned"
    rope_base: float = 10000.0
    activation: str = "gelu_tanh"
    gated: bool = False
    bias: bool = True
    tied: bool = True
    window: int | None = None
    eps: float = 1e-5
    dropout: float = 0.0

    def __post_init__(self):
        require(self.norm in list(NORMS), "norm", repr(self.norm), " or ".join(map(repr, NORMS)))
        require(self.order in ("pre", "post"), "order", repr(self.order), "'pre' or 'post'")
        known = self.position in POSITIONS
        require(known, "position", repr(self.position), ", ".join(map(repr, POSITIONS)))
        for name in ("vocabulary", "width", "layers", "heads", "hidden", "max_length"):
            whole(name, getattr(self, name))
        for name in ("kv_heads", "key_width", "window"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        self._check_key_width()
        for name in ("gated", "bias", "tied"):
            flag(name, getattr(self, name))
        number("eps", self.eps, above=0), dropout_share(self.dropout)
        function_of(self.activation)

    def _check_key_width(self):
        """None, or an error in the words of this class, before a layer complains in its own."""
        share = self.width // self.heads
        divides = self.key_width is not None or self.width % self.heads == 0
        require(divides, "heads", self.heads, f"a divisor of width {self.width}")
        given = share if self.key_width is None else self.key_width
        even = self.position != "rope" or given % 2 == 0
        require(even, "key_width", given, "an even number, for rotary positions")


class GPTBlock(nn.Module):
    """Outputs [B, T, D] of x [B, T, D]: causal attention, then a feed-forward layer."""

    def __init__(self, config):
        super().__init__()
        c = config
        sizes = {"kv_heads": c.kv_heads, "key_width": c.key_width, "value_width": c.key_width}
        self.order, self.window = c.order, c.window
        self.attention = MultiHeadAttention(c.width, c.heads, bias=c.bias, **sizes)
        self.attention_norm = NORMS[c.norm](c.width, c.eps)
        kind = GatedFeedForward if c.gated else FeedForward
        self.ffn = kind(c.width, c.hidden, c.activation, bias=c.bias)
        self.ffn_norm = NORMS[c.norm](c.width, c.eps)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, mask=None, *, turn=None, store=None, need_weights=False):
        """`turn(q, k)` rotates both, `store` is this layer's cache; None where there is none.

        `mask` is bool, over all S = past + T keys; the causal mask is always added.
        """
        y = self.attention_norm(x) if self.order == "pre" else x
        found = self.attend(y, mask, turn, store, need_weights)
        found, weights = found if need_weights else (found, None)
        x = x + self.dropout(self.attention.join(found))
        if self.order == "pre":
            x = x + self.dropout(self.ffn(self.ffn_norm(x)))
        else:
            x = self.attention_norm(x)
            x = self.ffn_norm(x + self.dropout(self.ffn(x)))
        return (x, weights) if need_weights else x

    def attend(self, y, mask, turn, store, need_weights):
        """What each head found [B, H, T, V], with the weights [B, H, T, S] if asked for."""
        q, k, v = self.attention.project(y)
        if turn is not None:
            q, k = turn(q, k)
        if store is not None:
            k, v = store.append(k, v)
        T, S = q.shape[2], k.shape[2]
        W = S if self.window is None else self.window
        if W < S and not need_weights:
            # What no query of this call sees need not be read.
            S = min(S, T + W - 1)
            k, v = k[:, :, -S:], v[:, :, -S:]
            mask = mask[..., -S:] if mask is not None else None
        if W < S:
            mask = combine(mask, window_mask(T, S, W, device=q.device))
        return attend(q, k, v, mask, causal=True, need_weights=need_weights)


class GPT(nn.Module):
    """Logits [B, T, Y] of the next token after each of ids [B, T].

    >>> config = GPTConfig(vocabulary=10, width=12, layers=2, heads=4, hidden=17, max_length=9)
    >>> logits, weights = GPT(config).eval()(torch.tensor([[1, 2, 3, 4, 5]]), need_weights=True)
    >>> list(logits.shape), len(weights), list(weights[0].shape)
    ([1, 5, 10], 2, [1, 4, 5, 5])
    """

    def __init__(self, config):
        super().__init__()
        given = type(config).__name__
        require(isinstance(config, GPTConfig), "config", given, "a GPTConfig", TypeError)
        c = self.config = config
        self.tokens = TokenEmbedding(c.vocabulary, c.width)
        self.positions = None
        if c.position == "learned":
            self.positions = LearnedPositions(c.max_length, c.width)
        elif c.position == "sinusoidal":
            self.positions = SinusoidalPositions(c.width)
        self.rotary = None
        if c.position == "rope":
            self.rotary = RotaryPositions(c.key_width or c.width // c.heads, c.rope_base)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(GPTBlock(c) for _ in range(c.layers))
        self.norm = NORMS[c.norm](c.width, c.eps) if c.order == "pre" else None
        self.head = None if c.tied else nn.Linear(c.width, c.vocabulary, bias=False)
        self.reset_parameters()

    def reset_parameters(self):
        """None; normal weights, smaller ones before each residual sum, zero biases.

        The deviation is 1/(2√D): 0.018 at the width of GPT-2, which takes 0.02, and enough for the
        small models of this book, which hardly move from 0.02.
        """
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.ndim > 1:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.5 * self.config.width**-0.5
                nn.init.normal_(weight, std=std / (2 * self.config.layers) ** (0.5 * last))

    def forward(self, ids, mask=None, *, cache=None, positions=None, need_weights=False):
        """With `cache` the ids continue what it holds, and are appended to it.

        `mask` is bool over all S = past + T keys: [T, S], or [B, H, T, S] with sizes or 1, for
        padding; `positions` [B, T] then count each row's own tokens. A model of position "none"
        reads no positions: a mask is all that its padding needs.
        """
        x, weights = self.hidden(ids, mask, cache, positions, need_weights)
        logits = (
            torch.nn.functional.linear(x, self.tokens.weight) if self.head is None else self.head(x)
        )
        return (logits, weights) if need_weights else logits

    def hidden(self, ids, mask=None, cache=None, positions=None, need_weights=False):
        """The pair of states [B, T, D] before the output layer and weights, a tuple."""
        self._check(ids, mask, cache, need_weights)
        offset = 0 if cache is None else cache.length
        x = self.tokens(ids)
        if self.positions is not None:
            x = self.positions(x, offset, positions)
        elif positions is not None:
            check_places(positions, x)
        # Every layer turns by the same angles: they are looked up once.
        turn = None if self.rotary is None else self.rotary.turn(x, offset, positions)
        x, maps = self.dropout(x), []
        with contextlib.nullcontext() if cache is None else cache.appending():
            for i, block in enumerate(self.blocks):
                store = None if cache is None else cache.layers[i]
                x = block(x, mask, turn=turn, store=store, need_weights=need_weights)
                if need_weights:
                    x, weights = x
                    maps.append(weights)
        return (x if self.norm is None else self.norm(x)), tuple(maps)

    def new_cache(self, batch=1, max_length=None):
        """An empty `KVCache` for this model, in the dtype and on the device of its weights."""
        c, attention, weight = self.config, self.blocks[0].attention, self.tokens.weight
        sizes = {"kv_heads": attention.kv_heads, "key_width": attention.key_width}
        sizes |= {"value_width": attention.value_width}
        where = {"dtype": weight.dtype, "device": weight.device}
        max_length = c.max_length if max_length is None else max_length
        return KVCache(c.layers, batch, max_length, **sizes, **where)

    def advance(self, ids, cache):
        """Logits [B, Y] after the last of ids [B, T], which continue the cache and join it."""
        check_ids(ids, "ids", None, "B T")
        require(ids.shape[1] >= 1, "ids", f"shape {list(ids.shape)}", "[B, T] with T ≥ 1")
        x, _ = self.hidden(ids, cache=cache)
        x = x[:, -1]
        return (
            torch.nn.functional.linear(x, self.tokens.weight) if self.head is None else self.head(x)
        )

    def _check(self, ids, mask, cache, need_weights):
        """None, or an error before the first block has written anything into a cache."""
        check_ids(ids, "ids", self.config.vocabulary, "B T")
        flag("need_weights", need_weights)
        shape, past = list(ids.shape), 0
        if cache is not None:
            told = type(cache).__name__
            require(isinstance(cache, KVCache), "cache", told, "a KVCache", TypeError)
            past = cache.length
            same = shape[0] == cache.batch
            require(same, "ids", f"{shape[0]} rows", f"{cache.batch}, as in the cache", ShapeError)
            fits = len(cache.layers) == self.config.layers
            require(fits, "cache", f"{len(cache.layers)} layers", f"{self.config.layers}")
            end, most = past + shape[1], cache.max_length
            require(end <= most, "cache", f"{end} tokens", f"up to max_length {most}")
        end, most = past + shape[1], self.config.max_length
        require(end <= most, "ids", f"{end} tokens", f"up to max_length {most}", ShapeError)
        if mask is not None:
            check_mask(mask, (shape[0], self.config.heads, shape[1], end), ids.device)
