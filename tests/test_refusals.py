"""Bad input is refused by name before any compute, and the edges have their defined values."""

import math

import pytest
import torch
from torch import nn

from labcore.attention import (
    AdditiveScore,
    MultiHeadAttention,
    attend,
    attend_naive,
    causal_mask,
    chunk_mask,
    combine,
    padding_mask,
    prefix_mask,
    window_mask,
)
from labcore.blocks import (
    ConvolutionMixer,
    EncoderBlock,
    RecurrentMixer,
    SelfAttentionMixer,
    longest_path,
    receptive_field,
)
from labcore.claims import ClaimError, claim
from labcore.embed import LearnedPositions, SinusoidalPositions, TokenEmbedding, sinusoidal
from labcore.ffn import FeedForward, GatedFeedForward
from labcore.metrics import cost_table, jacobian, layers_to_connect, parameters
from labcore.models import Bert, BertConfig, Encoder
from labcore.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm, layer_norm

B, T, S, H, K, D = 2, 5, 7, 4, 3, 12
SIZES = {"vocabulary": 10, "width": D, "layers": 1, "heads": H, "hidden": 17, "max_length": 9}
IDS = torch.ones(B, T, dtype=torch.long)


def heads(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype)


def bert(**changes):
    return Bert(BertConfig(**{**SIZES, **changes}))


REFUSED = [
    ("offset", ValueError, lambda: causal_mask(3, 3, offset=2**63)),
    ("offset", ValueError, lambda: window_mask(3, 3, 2, offset=2**62)),
    ("chunk", ValueError, lambda: chunk_mask(3, 3, 2**70)),
    ("window", ValueError, lambda: window_mask(3, 3, 2**70)),
    ("lengths", TypeError, lambda: padding_mask(3)),
    ("lengths", TypeError, lambda: padding_mask({1: 2})),
    ("lengths", TypeError, lambda: padding_mask([True, 2])),
    ("masks", ValueError, lambda: combine(torch.ones(3).bool())),
    ("causal", TypeError, lambda: attend(*[heads(T, K)] * 3, causal="no")),
    ("causal", TypeError, lambda: attend_naive(*[heads(T, K)] * 3, causal=None)),
    ("need_weights", TypeError, lambda: attend(*[heads(T, K)] * 3, need_weights="no")),
    ("scale", ValueError, lambda: attend(*[heads(T, K)] * 3, scale=10**400)),
    ("bias", TypeError, lambda: MultiHeadAttention(D, H, bias="no")),
    ("causal", TypeError, lambda: SelfAttentionMixer(D, causal="no")),
    ("heads_BHTV", ValueError, lambda: MultiHeadAttention(D, H).join(heads(B, 6, T, 2))),
    ("heads_BHTV", ValueError, lambda: MultiHeadAttention(D, H).join(heads(B, T, D))),
    ("other", ValueError, lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(D, H, 0.5))),
    ("hidden", ValueError, lambda: AdditiveScore(5, hidden=0)),
    ("key_width", ValueError, lambda: AdditiveScore(5, 0, hidden=3)),
    ("x", ValueError, lambda: AdditiveScore(5, hidden=3)(heads(T, 6))),
    ("x", TypeError, lambda: AdditiveScore(5, hidden=3)([[1.0] * 5])),
    ("memory", TypeError, lambda: AdditiveScore(5, 6, hidden=3)(heads(T, 5), heads(S, 6).double())),
    *[
        ("eps", ValueError, lambda make=make, eps=eps: make(eps))
        for eps in (-1.0, 0, math.nan, "1")
        for make in (
            lambda eps: LayerNorm(4, eps=eps),
            lambda eps: RMSNorm(4, eps=eps),
            lambda eps: BatchNorm(4, eps=eps),
            lambda eps: InstanceNorm(4, eps=eps),
            lambda eps: GroupNorm(2, 4, eps=eps),
            lambda eps: EncoderBlock(D, H, 17, eps=eps),
            lambda eps: bert(eps=eps),
        )
    ],
    ("eps", ValueError, lambda: layer_norm(heads(2, 4), eps=-1)),
    ("weight", TypeError, lambda: layer_norm(heads(2, 4), torch.ones(4).long())),
    ("weight", TypeError, lambda: layer_norm(heads(2, 4), torch.ones(4).double())),
    *[
        ("width", ValueError, lambda make=make, width=width: make(width))
        for width in (0, -3, 2.5, True)
        for make in (FeedForward, GatedFeedForward, LayerNorm, RMSNorm, RecurrentMixer)
    ],
    ("width", ValueError, lambda: ConvolutionMixer(0)),
    ("kernel", ValueError, lambda: ConvolutionMixer(6, True)),
    ("dilation", ValueError, lambda: ConvolutionMixer(6, dilation=True)),
    *[
        ("x", TypeError, lambda layer=layer: layer(heads(B, T, 6, dtype=torch.float64)))
        for layer in (
            FeedForward(6),
            GatedFeedForward(6),
            LayerNorm(6),
            RMSNorm(6),
            ConvolutionMixer(6),
            RecurrentMixer(6),
            LearnedPositions(9, 6),
        )
    ],
    ("x", TypeError, lambda: ConvolutionMixer(6)(heads(B, 0, 6).double())),
    ("x", TypeError, lambda: LearnedPositions(9, 6)(heads(B, T, 6).half())),
    ("activation", ValueError, lambda: FeedForward(6, activation=[])),
    ("scale", ValueError, lambda: TokenEmbedding(4, 4, scale=math.nan)),
    ("scale", ValueError, lambda: TokenEmbedding(4, 4, scale="2")),
    ("vocabulary", ValueError, lambda: TokenEmbedding(True, 4)),
    ("dtype", TypeError, lambda: sinusoidal(2, 4, dtype=torch.int64)),
    ("base", ValueError, lambda: sinusoidal(2, 4, base=1e-320)),
    ("base", ValueError, lambda: sinusoidal(2, 4, base=True)),
    ("base", ValueError, lambda: sinusoidal(2, 4, base=10**400)),
    ("positions", ValueError, lambda: sinusoidal([1, True], 4)),
    ("positions", ValueError, lambda: sinusoidal(torch.tensor([2**53 + 2]), 4)),
    ("positions", ValueError, lambda: sinusoidal([math.inf], 4)),
    ("positions", TypeError, lambda: sinusoidal(None, 4)),
    ("offset", ValueError, lambda: SinusoidalPositions(4)(heads(B, T, 4), offset=2**63)),
    ("layers", ValueError, lambda: receptive_field(-1, 3)),
    ("kernel", ValueError, lambda: receptive_field(4, -3)),
    ("dilation", ValueError, lambda: receptive_field(4, 3, 0.5)),
    ("N", ValueError, lambda: longest_path("recurrence", 2.5)),
    ("kernel", ValueError, lambda: longest_path("convolution", 9, kernel=2.5)),
    ("layers", ValueError, lambda: bert(layers=0)),
    ("hidden", ValueError, lambda: bert(hidden=0)),
    ("token_types", ValueError, lambda: bert(token_types=0)),
    ("config", TypeError, lambda: Bert(None)),
    ("ids", TypeError, lambda: bert()([[1, 2]])),
    ("ids", ValueError, lambda: bert()(torch.ones(B, 10).long())),
    ("token_types", TypeError, lambda: bert()(IDS, token_types=[[0]])),
    ("token_types", ValueError, lambda: bert()(IDS, token_types=IDS + 1)),
    ("causal", TypeError, lambda: prefix_mask(2, 3, causal="no")),
    ("dilated", TypeError, lambda: longest_path("convolution", 9, dilated="no")),
    ("dilated", TypeError, lambda: cost_table(5, 3, dilated="no")),
    ("trainable", TypeError, lambda: parameters(nn.Linear(2, 3), "no")),
    ("most", ValueError, lambda: layers_to_connect(nn.Identity, heads(T, D), most=0)),
    ("outputs", ValueError, lambda: jacobian(nn.Identity(), heads(T, D), [True])),
    ("need_states", TypeError, lambda: Encoder("cnn", D, 1)(heads(B, T, D), need_states="no")),
    ("hidden_BTD", ValueError, lambda: bert().pool(heads(B, 0, D))),
    ("hidden_BTD", ValueError, lambda: bert().pool(heads(B, T, 1, D))),
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


def test_an_activation_set_later_is_checked_too():
    layer = RecurrentMixer(6)
    layer.activation = "TANH"
    with pytest.raises(ValueError, match="^activation: got 'TANH'"):
        layer(heads(B, T, 6))


@pytest.mark.parametrize("lead", [(0, H), (B, H)])
@pytest.mark.parametrize("queries", [0, T])
def test_empty_grouped_attention_with_weights(lead, queries):
    q, k, v = heads(*lead, queries, K), heads(lead[0], 2, S, K), heads(lead[0], 2, S, 6)
    out, weights = attend(q, k, v, need_weights=True)
    assert out.shape == (*lead, queries, 6) and weights.shape == (*lead, queries, S)
    assert out.shape == attend(q, k, v).shape


@pytest.mark.parametrize("keys", [0, S])
def test_the_loops_give_zero_gradients_where_nothing_is_seen(keys):
    q, k, v = (torch.randn(n, K, requires_grad=True) for n in (T, keys, keys))
    out, _ = attend_naive(q, k, v, torch.zeros(T, keys).bool())
    grads = torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True)
    assert out.eq(0).all() and all(g is None or g.eq(0).all() for g in grads)
    assert grads[0] is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_do_not_overflow(dtype):
    q = torch.full((2, 8), 200.0, dtype=dtype)
    v = torch.ones(2, 3, dtype=dtype)
    fused = attend(q, q, v, scale=1.0)
    for out, weights in (
        attend(q, q, v, scale=1.0, need_weights=True),
        attend_naive(q, q, v, scale=1),
    ):
        assert out.dtype == weights.dtype == dtype
        assert torch.equal(out, fused) and torch.equal(out, v)
        assert weights.eq(0.5).all()


def test_hidden_nan_is_left_out_where_the_docstring_says_so():
    q, k, v = torch.randn(3, 4, 6).unbind(0)
    seen = torch.ones(4, 4).bool()
    seen[:, 3] = False
    k[3] = math.nan
    assert attend(q, k, v, seen, need_weights=True)[0].isfinite().all()
    v[3] = math.nan
    assert attend_naive(q, k, v, seen)[0].isfinite().all()


def test_a_forgotten_abs_does_not_pass_as_a_small_residual():
    with pytest.raises(ClaimError, match="negative"):
        claim("A01-07", max_difference=-5.0)
