"""Multi-head attention against torch's module, head by head, and at its edges."""

import pytest
import torch
from torch import nn

from labcore.attention import MultiHeadAttention, attend_naive, causal_mask, padding_mask

B, T, S, D, H = 3, 5, 7, 24, 4


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def layer(*given, seed=0, **named):
    torch.manual_seed(seed)
    made = MultiHeadAttention(*given, **named).double()
    for name, weight in made.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight)
    return made


def theirs(bias=True, memory_width=None):
    torch.manual_seed(1)
    made = nn.MultiheadAttention(
        D, H, bias=bias, kdim=memory_width, vdim=memory_width, batch_first=True
    ).double()
    for weight in made.parameters():
        nn.init.normal_(weight)
    return made


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("memory_width", [None, 10])
def test_equals_torch_with_masks_and_weights(bias, memory_width):
    other = theirs(bias, memory_width)
    ours = MultiHeadAttention.from_torch(other)
    x, memory = draw(B, T, D), draw(B, S, memory_width or D, seed=1)
    keep = padding_mask([7, 3, 5])
    causal = causal_mask(T, S)
    wanted, wanted_weights = other(
        x,
        memory,
        memory,
        key_padding_mask=~keep[:, 0, 0],
        attn_mask=~causal,
        average_attn_weights=False,
    )
    out, weights = ours(x, memory, keep, causal=True, need_weights=True)
    assert (out - wanted).abs().max() < 1e-9
    assert (weights - wanted_weights).abs().max() < 1e-9
    assert (ours(x, memory, keep, causal=True) - wanted).abs().max() < 1e-9


def test_equals_torch_in_self_attention_with_gradients():
    other = theirs()
    ours = MultiHeadAttention.from_torch(other)
    x = draw(B, T, D).requires_grad_()
    pull = draw(B, T, D, seed=2)
    wanted = torch.autograd.grad((other(x, x, x)[0] * pull).sum(), [x, *other.parameters()])
    got = torch.autograd.grad((ours(x) * pull).sum(), [x, *ours.parameters()])
    assert (got[0] - wanted[0]).abs().max() < 1e-9
    named = dict(zip([n for n, _ in ours.named_parameters()], got[1:], strict=True))
    joined = torch.cat([named[f"{part}_proj.weight"] for part in "qkv"])
    theirs_named = dict(zip([n for n, _ in other.named_parameters()], wanted[1:], strict=True))
    assert (joined - theirs_named["in_proj_weight"]).abs().max() < 1e-9
    assert (named["o_proj.weight"] - theirs_named["out_proj.weight"]).abs().max() < 1e-9


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("need_weights", [False, True])
def test_every_width_its_own_head_by_head(kv_heads, need_weights):
    """K, V, D/H and the memory's width all differ; each head is computed from its own rows."""
    K, V, memory_width = 6, 8, 10
    made = layer(D, H, kv_heads=kv_heads, key_width=K, value_width=V, memory_width=memory_width)
    x, memory = draw(B, T, D), draw(B, S, memory_width, seed=1)
    out = made(x, memory, need_weights=need_weights)
    out, weights = out if need_weights else (out, None)
    heads = made.heads_output(x, memory)
    assert heads.shape == (B, H, T, V)
    total = made.o_proj.bias.clone()
    for h in range(H):
        g = h // (H // kv_heads)
        q = x @ made.q_proj.weight[h * K : h * K + K].T + made.q_proj.bias[h * K : h * K + K]
        k = memory @ made.k_proj.weight[g * K : g * K + K].T + made.k_proj.bias[g * K : g * K + K]
        v = memory @ made.v_proj.weight[g * V : g * V + V].T + made.v_proj.bias[g * V : g * V + V]
        head, head_weights = attend_naive(q, k, v)
        assert (heads[:, h] - head).abs().max() < 1e-9
        if need_weights:
            assert (weights[:, h] - head_weights).abs().max() < 1e-9
        total = total + head @ made.o_proj.weight[:, h * V : h * V + V].T
    assert (out - total).abs().max() < 1e-9


def test_heads_output_with_weights_and_join():
    made, x = layer(D, H), draw(B, T, D)
    heads, weights = made.heads_output(x, need_weights=True)
    assert weights.shape == (B, H, T, T)
    assert (made.join(heads) - made(x)).abs().max() < 1e-12


def test_permuting_heads_with_their_rows_changes_nothing():
    made, x = layer(D, H), draw(B, T, D)
    before, order = made(x), [2, 0, 3, 1]
    rows = torch.arange(D).reshape(H, D // H)[order].flatten()
    with torch.no_grad():
        for part in (made.q_proj, made.k_proj, made.v_proj):
            part.weight.copy_(part.weight[rows].clone())
            part.bias.copy_(part.bias[rows].clone())
        made.o_proj.weight.copy_(made.o_proj.weight[:, rows].clone())
    assert (made(x) - before).abs().max() < 1e-9


def test_permuting_positions_permutes_outputs():
    made, x = layer(D, H), draw(B, T, D)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert (made(x[:, order]) - made(x)[:, order]).abs().max() < 1e-9
    assert (made(x[:, order], causal=True) - made(x, causal=True)[:, order]).abs().max() > 0.01


def test_the_future_does_not_leak():
    made, x = layer(D, H, kv_heads=2), draw(B, T, D)
    before = made(x, causal=True)
    for t in range(1, T):
        changed = x.clone()
        changed[:, t] += 100
        assert torch.equal(made(changed, causal=True)[:, :t], before[:, :t])


def test_parameters_do_not_depend_on_the_number_of_heads():
    for heads in (1, 2, 4, 8, 16):
        counts = [
            sum(p.numel() for p in MultiHeadAttention(512, heads, bias=bias).parameters())
            for bias in (False, True)
        ]
        assert counts == [4 * 512**2, 4 * 512**2 + 4 * 512]


def test_widths_given_by_hand_need_no_divisor():
    made = layer(D, 7, key_width=3, value_width=2)
    assert made(draw(B, T, D)).shape == (B, T, D)


def test_empty_batches_and_sequences():
    made = layer(D, H)
    assert made(draw(0, T, D)).shape == (0, T, D)
    assert made(draw(B, 0, D)).shape == (B, 0, D)
    out, weights = made(draw(B, T, D), draw(B, 0, D), need_weights=True)
    assert weights.shape == (B, H, T, 0)
    assert torch.equal(out, made.o_proj.bias.expand(B, T, D))


def test_a_hidden_memory_leaves_only_the_bias():
    made, x = layer(D, H), draw(2, T, D)
    out = made(x, draw(2, S, D, seed=1), padding_mask([0, 7], S))
    assert torch.equal(out[0], made.o_proj.bias.expand(T, D))
    assert out.isfinite().all()


def test_gradients_are_right():
    made = layer(4, 2, kv_heads=1, memory_width=3)
    x, memory = draw(2, 3, 4).requires_grad_(), draw(2, 5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, m: made(x, m, need_weights=True), (x, memory))


def test_a_hostile_size():
    made = layer(D, H).float()
    x = draw(1, 257, D).float()
    out, weights = made(x * 1e3, causal=True, need_weights=True)
    assert weights.isfinite().all()
    assert (made(x * 1e3, causal=True) - out).abs().max() < 1e-3 * out.abs().max()


def test_half_precision_under_autocast():
    # Short on purpose: torch's long bfloat16 kernel fails where ATEN_CPU_CAPABILITY lowers the
    # instruction set below what the processor has.
    made = layer(D, H).float()
    x = draw(B, T, D).float()
    with torch.autocast("cpu", torch.bfloat16):
        out = made(x, causal=True)
    assert out.dtype == torch.bfloat16
    assert (out.float() - made(x, causal=True)).abs().max() < 0.1


ZERO = torch.zeros
GOOD = MultiHeadAttention(D, H)
WIDE = MultiHeadAttention(D, H, memory_width=10)


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("heads", ValueError, lambda: MultiHeadAttention(512, 7)),
        ("heads", ValueError, lambda: MultiHeadAttention(12, 0)),
        ("width", ValueError, lambda: MultiHeadAttention(12.0, 4)),
        ("kv_heads", ValueError, lambda: MultiHeadAttention(12, 4, kv_heads=3)),
        ("key_width", ValueError, lambda: MultiHeadAttention(12, 4, key_width=0)),
        ("memory_width", ValueError, lambda: MultiHeadAttention(12, 4, memory_width=-1)),
        ("x", ValueError, lambda: GOOD(ZERO(T, D))),
        ("x", ValueError, lambda: GOOD(ZERO(B, T, D + 1))),
        ("x", TypeError, lambda: GOOD(ZERO(B, T, D, dtype=torch.int64))),
        ("x", TypeError, lambda: GOOD(ZERO(B, T, D, dtype=torch.float64))),
        ("x", ValueError, lambda: GOOD(ZERO(B, T, D, device="meta"))),
        ("memory", ValueError, lambda: GOOD(ZERO(B, T, D), ZERO(B + 1, S, D))),
        ("memory", ValueError, lambda: GOOD(ZERO(B, T, D), ZERO(B, S, D + 1))),
        ("memory", ValueError, lambda: WIDE(ZERO(B, T, D))),
        ("mask", ValueError, lambda: GOOD(ZERO(B, T, D), mask=ZERO(B, T, T).bool())),
        ("mask", TypeError, lambda: GOOD(ZERO(B, T, D), mask=ZERO(T, T))),
        (
            "other",
            ValueError,
            lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(D, H, add_bias_kv=True)),
        ),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got (?s:.*); allowed: "):
        call()
