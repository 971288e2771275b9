"""The attention formula against torch, against its own loops, and at its edges."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from labcore.attention import attend, attend_naive, causal_mask, padding_mask, softmax
from labcore.attention import attend as attend_function
from labcore.attention.attend import _attend_opened, _chosen_once
from labcore.kernels import use, why

B, T, S, H, G, K, V = 3, 5, 7, 4, 2, 6, 8


def qkv(lead=(B, H), queries=T, keys=S, kv_lead=None, values=V, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = [
        (*lead, queries, K),
        (*(kv_lead or lead), keys, K),
        (*(kv_lead or lead), keys, values),
    ]
    return [torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in shapes]


def some_mask(shape=(B, H, T, S), seed=1, empty_rows=False):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[..., 0, :] = not empty_rows
    return mask


def written_out(q, k, v, mask=None, scale=None):
    """The formula with torch's own softmax; no row may be empty."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v, weights


def close(a, b, tolerance=1e-9):
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert bool(((a - b).abs() <= tolerance).all()), (a - b).abs().max()


@pytest.mark.parametrize("lead", [(), (B,), (B, H), (2, B, H)])
@pytest.mark.parametrize("scale", [None, 1.0, 0.0, -0.7])
def test_every_rank_and_scale_equals_sdpa_and_the_formula(lead, scale):
    q, k, v = qkv(lead)
    out = attend(q, k, v, scale=scale)
    also, weights = attend(q, k, v, scale=scale, need_weights=True)
    close(out, F.scaled_dot_product_attention(q, k, v, scale=scale))
    wanted, wanted_weights = written_out(q, k, v, scale=scale)
    close(out, wanted), close(also, wanted), close(weights, wanted_weights)


@pytest.mark.parametrize("shape", [(T, S), (1, S), (B, 1, 1, S), (1, H, T, S), (B, H, T, S)])
def test_masks_equal_sdpa_and_the_formula(shape):
    q, k, v = qkv()
    mask = some_mask(shape)
    mask[..., 3] = True
    out = attend(q, k, v, mask)
    also, weights = attend(q, k, v, mask, need_weights=True)
    wanted, wanted_weights = written_out(q, k, v, mask)
    close(out, wanted), close(also, wanted), close(weights, wanted_weights)
    close(out, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


@pytest.mark.parametrize("queries, keys", [(5, 7), (7, 5), (5, 5), (1, 7), (5, 1)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("values", [K, V])
def test_causal_is_aligned_to_the_bottom_right(queries, keys, masked, values):
    q, k, v = qkv(queries=queries, keys=keys, values=values)
    mask = some_mask((queries, keys)) if masked else None
    # The definition, said in another way than the code: flip both axes of an upper triangle.
    lower = torch.ones(queries, keys).flip(0, 1).triu().flip(0, 1).bool()
    full = lower if mask is None else lower & mask
    out = attend(q, k, v, mask, causal=True)
    also, weights = attend(q, k, v, mask, causal=True, need_weights=True)
    naive, naive_weights = attend_naive(q, k, v, full)
    close(out, naive), close(also, naive), close(weights, naive_weights)
    assert not weights[..., ~full].any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, G, H])
def test_shared_key_value_heads_equal_repeated_ones(groups, causal, masked):
    q, k, v = qkv(kv_lead=(B, groups))
    mask = padding_mask([7, 4, 6]) if masked else None
    share = H // groups
    repeated = [x.repeat_interleave(share, 1) for x in (k, v)]
    wanted, wanted_weights = attend_naive(q, *repeated, mask, causal=causal)
    naive, naive_weights = attend_naive(q, k, v, mask, causal=causal)
    out, weights = attend(q, k, v, mask, causal=causal, need_weights=True)
    close(out, wanted), close(weights, wanted_weights)
    close(naive, wanted), close(naive_weights, wanted_weights)
    close(attend(q, k, v, mask, causal=causal), wanted)


def test_empty_rows_never_reach_a_kernel_that_cannot_take_them(monkeypatch):
    """Off the CPU, kernels differ: here one that divides 0 by 0 stands in for the worst of them."""

    def careless(q, k, v, attn_mask, scale, enable_gqa):
        return written_out(q, k, v, attn_mask)[0]

    monkeypatch.setattr(F, "scaled_dot_product_attention", careless)
    q, k, v = qkv()
    mask = some_mask()
    mask[0, 1, 2] = False
    assert careless(q, k, v, mask, None, False).isnan().any()
    out = _attend_opened(q, k, v, mask, None, False)
    close(out, attend_naive(q, k, v, mask)[0])
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


# torch's fused CPU kernel takes equal widths only: values=K is there to reach it.
@pytest.mark.parametrize("values", [K, V])
@pytest.mark.parametrize("way", ["sdpa", "weights", "opened", "naive"])
def test_rows_that_see_nothing_give_zeros_and_zero_gradients(way, values):
    q, k, v = qkv(values=values)
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[2] = False
    if way == "sdpa":
        out = attend(q, k, v, mask)
    elif way == "opened":
        out = _attend_opened(q, k, v, mask, None, False)
    else:
        call = attend_naive if way == "naive" else lambda *a: attend(*a, need_weights=True)
        out, weights = call(q, k, v, mask)
        assert not weights[:, :, 2].any()
    assert not out[:, :, 2].any()
    draw = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
    gradients = torch.autograd.grad((out * draw).sum(), (q, k, v))
    assert not gradients[0][:, :, 2].any()
    seen = [0, 1, 3, 4]
    rest = written_out(q[:, :, seen], k, v)[0]
    wanted = torch.autograd.grad((rest * draw[:, :, seen]).sum(), (q, k, v))
    for got, want in zip(gradients, wanted, strict=True):
        close(got, want)


@pytest.mark.parametrize("values", [K, V])
def test_a_mask_that_hides_everything_gives_zeros_only(values):
    q, k, v = qkv(values=values)
    nothing = torch.zeros(T, S, dtype=torch.bool)
    for need_weights in (False, True):
        out = attend(q, k, v, nothing, need_weights=need_weights)
        out = out[0] if need_weights else out
        gradients = torch.autograd.grad(out.sum(), (q, k, v))
        assert not out.any()
        assert not any(g.any() for g in gradients)


@pytest.mark.parametrize(
    "lead, queries, keys", [((0, H), 5, 7), ((B, H), 0, 7), ((B, H), 5, 0), ((B, H), 0, 0)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_empty_batches_queries_and_keys(lead, queries, keys, causal):
    q, k, v = qkv(lead, queries, keys)
    for out, weights in (
        attend(q, k, v, causal=causal, need_weights=True),
        attend_naive(q, k, v, causal=causal),
    ):
        assert out.shape == (*lead, queries, V)
        assert weights.shape == (*lead, queries, keys)
        assert not out.any()
    out = attend(q, k, v, causal=causal)
    assert out.shape == (*lead, queries, V)
    assert not out.any()
    assert not any(g.any() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("values", [K, V])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kv_lead", [None, (2, 1)])
def test_gradients_are_right(need_weights, kv_lead, values):
    q, k, v = qkv((2, 2), 3, 4, kv_lead, values)
    mask = some_mask((3, 4), empty_rows=True)

    def run(q, k, v):
        out = attend(q, k, v, mask, causal=True, need_weights=need_weights)
        return out

    assert torch.autograd.gradcheck(run, (q, k, v))


def test_gradients_of_both_ways_agree_with_the_loops():
    q, k, v = qkv((2, 2), 3, 4, (2, 1))
    draw = torch.randn(2, 2, 3, V, dtype=torch.float64)
    wanted = torch.autograd.grad((attend_naive(q, k, v, causal=True)[0] * draw).sum(), (q, k, v))
    for need_weights in (False, True):
        out = attend(q, k, v, causal=True, need_weights=need_weights)
        out = out[0] if need_weights else out
        for got, want in zip(
            torch.autograd.grad((out * draw).sum(), (q, k, v)), wanted, strict=True
        ):
            close(got, want)


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_future_does_not_leak(need_weights):
    q, k, v = (x.detach() for x in qkv(queries=T, keys=S))

    def run(k, v):
        out = attend(q, k, v, causal=True, need_weights=need_weights)
        return out[0] if need_weights else out

    before = run(k, v)
    for changed in range(S - T + 1, S):
        k2, v2 = k.clone(), v.clone()
        k2[:, :, changed], v2[:, :, changed] = 1e6, 1e6
        after = run(k2, v2)
        blind = changed - (S - T)  # queries before this one may not see the changed key
        assert torch.equal(after[:, :, :blind], before[:, :, :blind])
        assert bool((after[:, :, blind:] != before[:, :, blind:]).any(-1).all())


def test_step_by_step_equals_all_at_once():
    q, k, v = qkv(queries=S, keys=S)
    whole = attend(q, k, v, causal=True)
    for start, stop in itertools.combinations(range(S + 1), 2):
        part = attend(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], causal=True)
        close(part, whole[:, :, start:stop])


def test_permuting_keys_and_values_together_changes_nothing():
    q, k, v = qkv()
    order = torch.randperm(S, generator=torch.Generator().manual_seed(3))
    close(attend(q, k[:, :, order], v[:, :, order]), attend(q, k, v))


def test_permuting_queries_permutes_outputs():
    q, k, v = qkv()
    order = torch.randperm(T, generator=torch.Generator().manual_seed(3))
    close(attend(q[:, :, order], k, v), attend(q, k, v)[:, :, order])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)])
def test_smaller_dtypes_stay_close(dtype, tolerance):
    q, k, v = qkv()
    wanted = attend(q, k, v, causal=True)
    small = [x.to(dtype) for x in (q, k, v)]
    out, weights = attend(*small, causal=True, need_weights=True)
    assert out.dtype == weights.dtype == dtype
    close(out.double(), wanted, tolerance * 3)
    close(attend(*small, causal=True).double(), wanted, tolerance * 3)


def test_a_hostile_size_with_huge_scores():
    q, k, v = qkv((1, 2), 67, 131, values=K, seed=5)
    mask = padding_mask([130], 131)
    out, weights = attend(q * 1e4, k * 1e4, v, mask, causal=True, need_weights=True)
    assert weights.isfinite().all()
    close(weights.sum(-1), torch.ones(1, 2, 67, dtype=torch.float64), 1e-12)
    close(attend(q * 1e4, k * 1e4, v, mask, causal=True), out, 1e-7)


def test_hidden_nan_spreads_as_documented():
    """Zeros must replace padding before attention: hiding it is not enough, here as in torch."""
    q, k, v = (x.detach() for x in qkv())
    v[:, :, -1] = float("nan")
    mask = causal_mask(T, S) & (torch.arange(S) < S - 1)
    assert attend(q, k, v, mask).isnan().all()
    assert attend(q, k, v, mask, need_weights=True)[0].isnan().all()
    v[:, :, -1] = 0
    assert attend(q, k, v, mask).isfinite().all()


def test_a_call_without_weights_is_one_call_of_sdpa(monkeypatch):
    calls, real = [], F.scaled_dot_product_attention

    def spy(*given, **named):
        calls.append(named)
        return real(*given, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    q, k, v = qkv(queries=S)
    attend(q, k, v), attend(q, k, v, causal=True), attend(q, k, v, causal_mask(S))
    attend(q[:, :, :1], k, v, causal=True)
    assert [c["is_causal"] for c in calls if "is_causal" in c] == [False, True, False]
    assert len(calls) == 4
    attend(q, k, v, need_weights=True)
    assert len(calls) == 4


def test_it_compiles_no_data_dependence_into_the_graph():
    """Shapes decide everything: fake tensors, which hold no numbers, pass through."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = torch.empty(B, H, T, K), torch.empty(B, G, S, K), torch.empty(B, G, S, V)
        mask = torch.empty(T, S, dtype=torch.bool)
        assert attend(q, k, v, mask, causal=True).shape == (B, H, T, V)
        assert attend(q, k, v, mask, need_weights=True)[1].shape == (B, H, T, S)


ZERO = torch.zeros
BAD = [
    ("q", ValueError, {"q": ZERO(K)}),
    ("q", ValueError, {"q": ZERO(B, H, T, 0), "k": ZERO(B, H, S, 0)}),
    ("q", TypeError, {"q": ZERO(B, H, T, K, dtype=torch.int64)}),
    ("q", TypeError, {"q": ZERO(B, H, T, K, dtype=torch.complex64)}),
    ("q", TypeError, {"q": [[1.0]]}),
    ("k", TypeError, {"k": ZERO(B, H, S, K, dtype=torch.int64)}),
    ("k", TypeError, {"k": ZERO(B, H, S, K, dtype=torch.float64)}),
    ("k", ValueError, {"k": ZERO(B, H, S, K + 1)}),
    ("k", ValueError, {"k": ZERO(H, S, K)}),
    ("k", ValueError, {"k": ZERO(1, H, S, K)}),
    ("k", ValueError, {"k": ZERO(B, 3, S, K)}),
    ("k", ValueError, {"k": ZERO(B, 8, S, K)}),
    ("k", ValueError, {"k": ZERO(B, 0, S, K)}),
    ("k", ValueError, {"k": ZERO(B, H, S, K, device="meta")}),
    ("v", ValueError, {"v": ZERO(B, H, S + 1, V)}),
    ("v", ValueError, {"v": ZERO(B, G, S, V)}),
    ("v", ValueError, {"v": ZERO(B, H, S)}),
    ("v", TypeError, {"v": ZERO(B, H, S, V, dtype=torch.float16)}),
    ("mask", TypeError, {"mask": ZERO(T, S)}),
    ("mask", TypeError, {"mask": ZERO(T, S, dtype=torch.int64)}),
    ("mask", TypeError, {"mask": [[True] * S] * T}),
    ("mask", ValueError, {"mask": ZERO(S, T).bool()}),
    ("mask", ValueError, {"mask": ZERO(S).bool()}),
    ("mask", ValueError, {"mask": ZERO(T, 1).bool()}),
    ("mask", ValueError, {"mask": ZERO(B, S).bool()}),
    ("mask", ValueError, {"mask": ZERO(H, T, S).bool()}),
    ("mask", ValueError, {"mask": ZERO(B, G, T, S).bool()}),
    ("mask", ValueError, {"mask": ZERO(1, B, H, T, S).bool()}),
    ("mask", ValueError, {"mask": ZERO(T, S, device="meta").bool()}),
    ("scale", ValueError, {"scale": float("nan")}),
    ("scale", ValueError, {"scale": float("inf")}),
    ("scale", ValueError, {"scale": "1"}),
    ("scale", ValueError, {"scale": True}),
]


@pytest.mark.parametrize("name, error, changed", BAD)
@pytest.mark.parametrize("call", [attend, attend_naive, "weights"])
def test_bad_input_is_named(call, name, error, changed):
    given = {"q": ZERO(B, H, T, K), "k": ZERO(B, H, S, K), "v": ZERO(B, H, S, V)} | changed
    call = (lambda **a: attend_function(**a, need_weights=True)) if call == "weights" else call
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call(**given)


def test_grouped_heads_need_four_axes():
    with pytest.raises(ValueError, match="^k: got"):
        attend(ZERO(H, T, K), ZERO(G, S, K), ZERO(G, S, V))


def test_softmax_and_attend_agree_on_masks():
    q, k, v = qkv()
    mask = some_mask()
    close(attend(q, k, v, mask, need_weights=True)[1], softmax(q @ k.mT * K**-0.5, mask))


@pytest.fixture
def kernel_calls(monkeypatch):
    """The options of the calls that reach the kernels' door, as on a GPU that it serves."""
    import sys

    module, calls = sys.modules["labcore.attention.attend"], []
    door = module.attention
    monkeypatch.setattr(module, "_kernel_chosen", lambda *_: True)
    monkeypatch.setattr(module, "attention", lambda *x, **o: calls.append(o) or door(*x, **o))
    return calls


@pytest.mark.parametrize("lead", [(), (B,), (B, H), (2, B, H)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_chosen_kernel_gives_the_same_for_every_rank(kernel_calls, lead, causal):
    q, k, v = qkv(lead)
    close(
        attend(q, k, v, causal=causal, scale=0.3),
        attend_naive(q, k, v, causal=causal, scale=0.3)[0],
    )
    assert kernel_calls == [{"causal": causal, "scale": 0.3}]


def test_a_chosen_kernel_shares_heads_and_takes_no_keys(kernel_calls):
    q, k, v = qkv(kv_lead=(B, G))
    close(attend(q, k, v, causal=True), attend_naive(q, k, v, causal=True)[0])
    q, k, v = qkv(keys=0)
    assert not attend(q, k, v).any()
    assert len(kernel_calls) == 2


def test_masks_and_weights_stay_with_torch(kernel_calls):
    q, k, v = qkv()
    attend(q, k, v, some_mask(), causal=True)
    attend(q, k, v, need_weights=True)
    assert kernel_calls == []


def test_on_a_cpu_the_kernels_are_not_asked(monkeypatch):
    import sys

    monkeypatch.setattr(sys.modules["labcore.attention.attend"], "choose", None)
    attend(*qkv())


def test_the_choice_for_a_traced_graph_names_its_reason():
    assert _chosen_once("cpu", None, torch.float32, 16) is False
    assert why("attention") == "eager: the tensors are on cpu"
    with use("triton"), pytest.raises(ValueError, match="head width K=1"):
        _chosen_once("cpu", None, torch.float32, 1)


def test_a_traced_call_is_one_graph_whatever_is_chosen(kernel_calls):
    run = torch.compile(attend, backend="aot_eager", fullgraph=True, dynamic=True)
    torch._dynamo.reset()
    q, k, v = qkv()
    close(run(q, k, v, causal=True), attend_naive(q, k, v, causal=True)[0])
