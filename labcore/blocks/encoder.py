"""One encoder block: attention, then a feed-forward layer, each beside a residual path.

post: x ← Norm(x + Sublayer(x)), the original order (Vaswani et al. 2017, section 3.1; BERT).
pre:  x ← x + Sublayer(Norm(x)), where the residual path stays untouched (Xiong et al. 2020).
The two are told apart by one argument and nothing else, and both are tested against torch.
`norm="none"` and `residual=False` leave a part out, so that one can see what it was good for.
"""

from torch import nn

from labcore.attention import MultiHeadAttention
from labcore.ffn import FeedForward
from labcore.norms import LayerNorm
from labcore.shapes import dropout_share, flag, require

LAYOUTS = ("post", "pre", "none")


def placed(x, sublayer, norm, layout="post", residual=True):
    """What the residual path carries after one sub-layer, a function of x [..., D].

    post: norm(x + F(x)); pre: x + F(norm(x)); none: x + F(x); without `residual` the x + is gone.

    >>> import torch
    >>> x, double = torch.tensor([1.0, 3.0]), lambda y: 2 * y
    >>> [placed(x, double, torch.tanh, layout).tolist()[0] for layout in ("none", "pre")]
    [3.0, 2.523188352584839]
    """
    found = sublayer(norm(x) if layout == "pre" else x)
    total = x + found if residual else found
    return norm(total) if layout == "post" else total


class EncoderBlock(nn.Module):
    """Outputs [B, T, D] of x [B, T, D], with `need_weights` also the weights [B, H, T, T].

    >>> import torch
    >>> out, weights = EncoderBlock(12, 4, 17)(torch.ones(3, 5, 12), need_weights=True)
    >>> list(out.shape), list(weights.shape)
    ([3, 5, 12], [3, 4, 5, 5])
    """

    def __init__(
        self,
        width,
        heads,
        hidden,
        norm="post",
        *,
        activation="relu",
        eps=1e-5,
        dropout=0.0,
        residual=True,
    ):
        super().__init__()
        check_layout(norm)
        self.norm, self.residual = norm, flag("residual", residual)
        self.attention = MultiHeadAttention(width, heads)
        self.attention_norm = norm_of(norm, width, eps)
        self.ffn = FeedForward(width, hidden, activation)
        self.ffn_norm = norm_of(norm, width, eps)
        self.dropout = nn.Dropout(dropout_share(dropout))

    def forward(self, x, mask=None, *, causal=False, need_weights=False):
        kept = []

        def attention(y):
            found = self.attention(y, mask=mask, causal=causal, need_weights=need_weights)
            found, weights = found if need_weights else (found, None)
            kept.append(weights)
            return self.dropout(found)

        def ffn(y):
            return self.dropout(self.ffn(y))

        x = placed(x, attention, self.attention_norm, self.norm, self.residual)
        x = placed(x, ffn, self.ffn_norm, self.norm, self.residual)
        return (x, kept[0]) if need_weights else x

    @classmethod
    def from_torch(cls, layer):
        """A block with the weights of a `torch.nn.TransformerEncoderLayer`, copied; no dropout.

        >>> import torch
        >>> theirs = nn.TransformerEncoderLayer(12, 4, 17, 0.0, batch_first=True, norm_first=True)
        >>> x = torch.ones(3, 5, 12)
        >>> bool((EncoderBlock.from_torch(theirs)(x) - theirs(x)).abs().max() < 1e-5)
        True
        """
        width, hidden = layer.linear1.in_features, layer.linear1.out_features
        block = cls(
            width,
            layer.self_attn.num_heads,
            hidden,
            "pre" if layer.norm_first else "post",
            activation=layer.activation,
            eps=layer.norm1.eps,
        ).to(layer.linear1.weight)
        block.attention = MultiHeadAttention.from_torch(layer.self_attn)
        for ours, theirs in (
            (block.ffn.up_proj, layer.linear1),
            (block.ffn.down_proj, layer.linear2),
            (block.attention_norm, layer.norm1),
            (block.ffn_norm, layer.norm2),
        ):
            ours.load_state_dict(theirs.state_dict())
        return block.train(layer.training)


class MixerBlock(nn.Module):
    """`EncoderBlock` with another way to mix positions: outputs [B, N, D] of x [B, N, D].

    `mixer(y, lengths)` takes the place of attention; norms, residual paths and the feed-forward
    layer are the same, so that two blocks differ in their mixer alone.

    >>> import torch
    >>> block = MixerBlock(lambda y, lengths: y.flip(1), 6, 11, "pre")
    >>> list(block(torch.ones(3, 5, 6)).shape)
    [3, 5, 6]
    """

    def __init__(self, mixer, width, hidden, norm="post", *, activation="relu", dropout=0.0):
        super().__init__()
        check_layout(norm)
        self.norm, self.mixer = norm, mixer
        self.mixer_norm = norm_of(norm, width)
        self.ffn = FeedForward(width, hidden, activation)
        self.ffn_norm = norm_of(norm, width)
        self.dropout = nn.Dropout(dropout_share(dropout))

    def forward(self, x, lengths=None):
        x = placed(x, lambda y: self.dropout(self.mixer(y, lengths)), self.mixer_norm, self.norm)
        return placed(x, lambda y: self.dropout(self.ffn(y)), self.ffn_norm, self.norm)


def check_layout(norm):
    """None, or a ValueError when `norm` is no layout."""
    require(norm in LAYOUTS, "norm", given=repr(norm), allowed='"post" or "pre", or "none"')


def norm_of(layout, width, eps=1e-5):
    """A `LayerNorm`, or nothing where the layout has none."""
    return nn.Identity() if layout == "none" else LayerNorm(width, eps)
