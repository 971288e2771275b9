"""One encoder block: attention, then a feed-forward layer, each beside a residual path.

post: x ← Norm(x + Sublayer(x)), the original order (Vaswani et al. 2017, section 3.1; BERT).
pre:  x ← x + Sublayer(Norm(x)), where the residual path stays untouched (Xiong et al. 2020).
The two are told apart by one argument and nothing else, and both are tested against torch.
"""

from torch import nn

from labcore.attention import MultiHeadAttention
from labcore.ffn import FeedForward
from labcore.norms import LayerNorm
from labcore.shapes import require


class EncoderBlock(nn.Module):
    """Outputs [B, T, D] of x [B, T, D], with `need_weights` also the weights [B, H, T, T].

    >>> import torch
    >>> out, weights = EncoderBlock(12, 4, 17)(torch.ones(3, 5, 12), need_weights=True)
    >>> list(out.shape), list(weights.shape)
    ([3, 5, 12], [3, 4, 5, 5])
    """

    def __init__(
        self, width, heads, hidden, norm="post", *, activation="relu", eps=1e-5, dropout=0.0
    ):
        super().__init__()
        require(norm in ("post", "pre"), "norm", given=repr(norm), allowed='"post" or "pre"')
        self.norm = norm
        self.attention = MultiHeadAttention(width, heads)
        self.attention_norm = LayerNorm(width, eps)
        self.ffn = FeedForward(width, hidden, activation)
        self.ffn_norm = LayerNorm(width, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None, *, causal=False, need_weights=False):
        def attention(y):
            return self.attention(y, mask=mask, causal=causal, need_weights=need_weights)

        found = attention(x if self.norm == "post" else self.attention_norm(x))
        found, weights = found if need_weights else (found, None)
        x = x + self.dropout(found)
        if self.norm == "post":
            x = self.attention_norm(x)
            x = self.ffn_norm(x + self.dropout(self.ffn(x)))
        else:
            x = x + self.dropout(self.ffn(self.ffn_norm(x)))
        return (x, weights) if need_weights else x
