"""One decoder block: attention to the prefix, attention to the source, a feed-forward layer.

post: x ← Norm(x + Sublayer(x)) three times, the original order (Vaswani et al. 2017, section 3.1).
pre:  x ← x + Sublayer(Norm(x)) three times (Xiong et al. 2020).
Self-attention is causal; cross-attention is not: the source is complete before the first word.
"""

from torch import nn

from labcore.attention import MultiHeadAttention
from labcore.attention.scores import check_float
from labcore.ffn import FeedForward
from labcore.norms import LayerNorm
from labcore.shapes import dropout_share, require


class DecoderBlock(nn.Module):
    """Outputs [B, T, D] of x [B, T, D] and memory [B, S, D]; with `need_weights` the triple of
    outputs, self-attention weights [B, H, T, T] and cross-attention weights [B, H, T, S].

    `mask` further limits self-attention, `memory_mask` cross-attention (bool, True = may attend).

    >>> import torch
    >>> block = DecoderBlock(12, 4, 17)
    >>> found = block(torch.ones(3, 5, 12), torch.ones(3, 7, 12), need_weights=True)
    >>> [list(part.shape) for part in found]
    [[3, 5, 12], [3, 4, 5, 5], [3, 4, 5, 7]]
    """

    def __init__(
        self, width, heads, hidden, norm="post", *, activation="relu", eps=1e-5, dropout=0.0
    ):
        super().__init__()
        require(norm in ("post", "pre"), "norm", given=repr(norm), allowed='"post" or "pre"')
        self.norm = norm
        self.attention = MultiHeadAttention(width, heads)
        self.attention_norm = LayerNorm(width, eps)
        self.cross = MultiHeadAttention(width, heads)
        self.cross_norm = LayerNorm(width, eps)
        self.ffn = FeedForward(width, hidden, activation)
        self.ffn_norm = LayerNorm(width, eps)
        self.dropout = nn.Dropout(dropout_share(dropout))

    def forward(self, x, memory, mask=None, memory_mask=None, *, causal=True, need_weights=False):
        check_float(memory, "memory")  # None would mean self-attention, and not even a causal one
        kept = []

        def found(result):
            if not need_weights:
                return result
            kept.append(result[1])
            return result[0]

        def read_prefix(y):
            return found(self.attention(y, mask=mask, causal=causal, need_weights=need_weights))

        def read_source(y):
            return found(self.cross(y, memory, memory_mask, need_weights=need_weights))

        x = self._around(x, read_prefix, self.attention_norm)
        x = self._around(x, read_source, self.cross_norm)
        x = self._around(x, self.ffn, self.ffn_norm)
        return (x, *kept) if need_weights else x

    def _around(self, x, sublayer, norm):
        """x with what `sublayer` found added, and the norm before the sublayer or after the sum."""
        if self.norm == "post":
            return norm(x + self.dropout(sublayer(x)))
        return x + self.dropout(sublayer(norm(x)))
