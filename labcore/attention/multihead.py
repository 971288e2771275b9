"""Multi-head attention: several attentions side by side, each in its own small space.

head_r = Attention(X W_Q^(r), Y W_K^(r), Y W_V^(r)); MHA(X, Y) = Concat(head_0 … head_(H-1)) W_O
(Vaswani et al. 2017, section 3.2.2). X asks, Y answers: Y = X is self-attention, another sequence
is cross-attention. Fewer key/value heads than query heads: G = 1 is multi-query attention
(Shazeer 2019), 1 < G < H grouped-query attention (Ainslie et al. 2023).

Deviations from the paper: K, V and the width of Y may be chosen freely; biases are on by default,
as in BERT and `torch.nn.MultiheadAttention`, while the paper's formula has none.
"""

import torch
from torch import nn

from labcore.attention.attend import attend
from labcore.attention.scores import check_input
from labcore.shapes import ShapeError, flag, require, whole


class MultiHeadAttention(nn.Module):
    """Attention of `heads` heads from x [B, T, D] (and memory [B, S, D']) to [B, T, D].

    `key_width` K and `value_width` V count per head and default to D/H; `kv_heads` G defaults to
    H; `memory_width` D' to D. The rows of `q_proj.weight` are the heads one after another, K rows
    each, and so are the columns of `o_proj.weight`, V columns each.

    >>> layer = MultiHeadAttention(12, 4, kv_heads=2, value_width=5)
    >>> out, weights = layer(torch.ones(3, 7, 12), need_weights=True)
    >>> list(out.shape), list(weights.shape)
    ([3, 7, 12], [3, 4, 7, 7])
    """

    def __init__(
        self,
        width,
        heads,
        *,
        kv_heads=None,
        key_width=None,
        value_width=None,
        memory_width=None,
        bias=True,
    ):
        super().__init__()
        flag("bias", bias)
        self.width, self.heads = whole("width", width), whole("heads", heads)
        if key_width is None or value_width is None:
            divides = width % heads == 0
            require(divides, "heads", given=heads, allowed=f"a divisor of width {width}")
        self.kv_heads = whole("kv_heads", heads if kv_heads is None else kv_heads)
        allowed = f"a divisor of heads {heads}"
        require(heads % self.kv_heads == 0, "kv_heads", given=kv_heads, allowed=allowed)
        share = width // heads
        self.key_width = whole("key_width", share if key_width is None else key_width)
        self.value_width = whole("value_width", share if value_width is None else value_width)
        source = width if memory_width is None else memory_width
        self.memory_width = whole("memory_width", source)
        self.q_proj = nn.Linear(width, heads * self.key_width, bias=bias)
        self.k_proj = nn.Linear(source, self.kv_heads * self.key_width, bias=bias)
        self.v_proj = nn.Linear(source, self.kv_heads * self.value_width, bias=bias)
        self.o_proj = nn.Linear(heads * self.value_width, width, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        """None; Xavier weights and zero biases, so that scores start with variance about 1."""
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.o_proj):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x, memory=None, mask=None, *, causal=False, need_weights=False):
        """Outputs [B, T, D], or with `need_weights` also the weights [B, H, T, S] of every head.

        `mask` is bool, True = may attend: [T, S], or [B, H, T, S] with sizes or 1.
        """
        flag("need_weights", need_weights)
        heads = self.heads_output(x, memory, mask, causal=causal, need_weights=need_weights)
        if need_weights:
            return self.join(heads[0]), heads[1]
        return self.join(heads)

    def heads_output(self, x, memory=None, mask=None, *, causal=False, need_weights=False):
        """What each head found, [B, H, T, V], before the heads are mixed by W_O.

        With `need_weights` the pair of that and the weights [B, H, T, S].
        """
        q, k, v = self.project(x, memory)
        return attend(q, k, v, mask, causal=causal, need_weights=need_weights)

    def project(self, x, memory=None):
        """Queries [B, H, T, K], keys [B, G, S, K] and values [B, G, S, V] of x and memory."""
        self._check(x, "x", self.width)
        if memory is None:
            # Self-attention of a layer built for another width of memory is a mistake.
            same = self.memory_width == self.width
            allowed = f"a tensor [B, S, {self.memory_width}]"
            require(same, "memory", given=None, allowed=allowed)
            memory = x
        else:
            self._check(memory, "memory", self.memory_width)
            B = x.shape[0]
            given, allowed = f"shape {list(memory.shape)}", f"[{B}, S, {self.memory_width}]"
            require(memory.shape[0] == B, "memory", given, allowed, error=ShapeError)
        q = self.q_proj(x).unflatten(-1, (self.heads, self.key_width))
        k = self.k_proj(memory).unflatten(-1, (self.kv_heads, self.key_width))
        v = self.v_proj(memory).unflatten(-1, (self.kv_heads, self.value_width))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def join(self, heads_BHTV):
        """Outputs [B, T, D] of the heads [B, H, T, V]: set side by side, then times W_O."""
        self._check_heads(heads_BHTV)
        return self.o_proj(heads_BHTV.transpose(1, 2).flatten(2))

    @classmethod
    def from_torch(cls, other):
        """A layer with the weights of a `torch.nn.MultiheadAttention`, copied.

        Ours always takes [B, T, D], whatever `batch_first` says there, and drops no weights out:
        a layer with `dropout` is refused.

        >>> theirs = nn.MultiheadAttention(12, 4, batch_first=True)
        >>> x = torch.ones(3, 5, 12)
        >>> ours = MultiHeadAttention.from_torch(theirs)(x)
        >>> bool((ours - theirs(x, x, x)[0]).abs().max() < 1e-5)
        True
        """
        plain = other.bias_k is None and not other.add_zero_attn and other.kdim == other.vdim
        require(plain, "other", given=other, allowed="kdim = vdim, no bias_k, no add_zero_attn")
        require(other.dropout == 0, "other", f"dropout={other.dropout}", "dropout=0")
        biased = other.in_proj_bias is not None
        width, memory_width = other.embed_dim, other.kdim
        ours = cls(width, other.num_heads, memory_width=memory_width, bias=biased)
        separate = (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        weights = separate if other.in_proj_weight is None else other.in_proj_weight.chunk(3)
        layers = (ours.q_proj, ours.k_proj, ours.v_proj)
        ours.to(weights[0])
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                layer.weight.copy_(weight)
            ours.o_proj.weight.copy_(other.out_proj.weight)
            if biased:
                for layer, part in zip(layers, other.in_proj_bias.chunk(3), strict=True):
                    layer.bias.copy_(part)
                ours.o_proj.bias.copy_(other.out_proj.bias)
        return ours.train(other.training)

    def _check_heads(self, heads_BHTV):
        H, V, shape = self.heads, self.value_width, heads_BHTV.shape
        if len(shape) != 4 or shape[1] != H or shape[3] != V:
            allowed = f"[B, H={H}, T, V={V}]"
            require(False, "heads_BHTV", f"shape {list(shape)}", allowed, ShapeError)

    def _check(self, x, name, width):
        tensor = isinstance(x, torch.Tensor) and x.is_floating_point()
        if tensor and (x.ndim != 3 or x.shape[-1] != width):
            letters = f"[B, {'T' if name == 'x' else 'S'}, D={width}]"
            require(False, name, f"shape {list(x.shape)}", letters, error=ShapeError)
        check_input(x, name, self.q_proj.weight if name == "x" else self.k_proj.weight)
