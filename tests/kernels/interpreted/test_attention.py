"""The attention kernels in the strict interpreter, against the eager form in float64."""

import math

import pytest
import torch

from labcore.kernels import attention_ops as ops
from labcore.kernels import attention_tiles as tiles
from labcore.kernels import use, why
from labcore.kernels.attention import attention, attention_eager
from labcore.kernels.config import Tile
from labcore.kernels.gpu import attention_backward, attention_forward
from labcore.kernels.verify.strict import strict

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TABLES = (tiles.FORWARD, tiles.DKDV, tiles.DQ, tiles.DELTA)
TABLES = (*TABLES, tiles.FORWARD_ROUGH, tiles.DKDV_ROUGH, tiles.DQ_ROUGH)
SEEDS = [0, 1]


@pytest.fixture(autouse=True)
def in_triton():
    with use("triton"):
        yield
    assert why("attention").startswith("triton")


@pytest.fixture(params=[(16, 16), (32, 16), (16, 32)], ids=lambda t: f"{t[0]}x{t[1]}")
def small(request):
    """Tiles so small that a short sequence has blocks of every kind."""
    with pytest.MonkeyPatch.context() as patch:
        for table in TABLES:
            patch.setattr(table, "find", lambda *_: Tile(*request.param, 0, 4, 1))
        yield


def draw(q=(2, 4, 37, 16), shared=2, keys=None, values=None, dtype=torch.float32, size=1.0):
    """q, k, v and the gradient of o."""
    generator = torch.Generator().manual_seed(5)
    B, H, T, K = q
    S, V = keys or T, values or K
    shapes = q, (B, shared, S, K), (B, shared, S, V), (B, H, T, V)
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [(x * size).to(dtype) for x in made[:3]] + [made[3].to(dtype)]


def computed(q, k, v, do, seed=0, **options):
    """o, lse, dq, dk, dv of the kernels, in the strict interpreter."""
    x = [y.detach().requires_grad_() for y in (q, k, v)]
    with strict(seed):
        o, lse = attention(*x, **options)
        return o.detach(), lse, *torch.autograd.grad(o, x, do)


def exact(q, k, v, do, **options):
    """The same in float64, by the eager form and autograd."""
    x = [y.detach().double().requires_grad_() for y in (q, k, v)]
    o, lse = attention_eager(*x, **options)
    return o.detach(), lse.detach(), *torch.autograd.grad(o, x, do.double())


def check(q, k, v, do, seed=0, floor=1e-6, only=5, **options):
    """Each tensor within its dtype's tolerance, in the Frobenius norm; gives the kernels' results.

    `floor` is what a value that is truly 0 may be off by.
    """
    found = computed(q, k, v, do, seed, **options)
    wanted = exact(q, k, v, do, **options)
    for name, a, b in list(zip(("o", "lse", "dq", "dk", "dv"), found, wanted, strict=True))[:only]:
        limit = TOLERANCE[torch.float32 if name == "lse" else a.dtype]
        assert a.shape == b.shape and not a.isnan().any(), name
        assert torch.equal(a.isinf(), b.isinf()), name
        real = b.isfinite()
        far, size = (a.double() - b)[real].norm(), b[real].norm()
        assert far <= limit * size + floor * math.sqrt(b.numel()), (name, far, size)
    return found


LENGTHS = [1, 2, 7, 15, 16, 17, 31, 33, 63, 65, 127, 129]
# What every change runs; the rest is the whole grid's.
QUICK = [(torch.float32, n) for n in (1, 7, 16, 33, 65)] + [
    (torch.bfloat16, 33),
    (torch.float16, 17),
]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("dtype", "length"),
    [
        pytest.param(dtype, n, marks=() if (dtype, n) in QUICK else pytest.mark.slow)
        for dtype in TOLERANCE
        for n in LENGTHS
    ],
    ids=str,
)
def test_equal_lengths(length, causal, dtype):
    check(*draw((1, 2, length, 16), 1, dtype=dtype), seed=length % 2, causal=causal)


MASKS = [
    {"causal": True},
    {"causal": True, "window": 18},
    {"causal": True, "window": 1},
    {"window": (9, 4)},
    {"window": (0, 30)},
    {},
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("options", MASKS, ids=str)
def test_blocks_of_every_kind(small, options, seed):
    check(*draw((1, 1, 37, 16), 1, keys=45), seed=seed, **options)


@pytest.mark.parametrize("lengths", [(1, 100), (17, 64), (64, 17), (100, 37)], ids=str)
def test_unequal_lengths_are_aligned_to_the_bottom_right(lengths):
    queries, keys = lengths
    check(*draw((1, 2, queries, 16), 1, keys), causal=True, seed=queries)


@pytest.mark.parametrize(
    ("queries", "keys", "options"),
    [
        (64, 17, {"causal": True}),
        (90, 33, {"window": (5, 5)}),
        (90, 33, {"causal": True, "window": 6}),
    ],
)
def test_rows_that_see_nothing(small, queries, keys, options):
    q, k, v, do = draw((1, 1, queries, 16), 1, keys)
    do[:, :, 0] = 1e30  # what arrives at a row that sees nothing must not get out
    o, lse, dq, dk, dv = computed(q, k, v, do, 1, **options)
    empty = lse[0, 0] == -math.inf
    assert 10 < empty.sum() < queries and empty[0]
    assert not o[:, :, empty].any() and not dq[:, :, empty].any()
    do[:, :, 0] = 0
    wanted = exact(q, k, v, do, **options)
    for a, b in zip((o, dq, dk, dv), (wanted[0], *wanted[2:]), strict=True):
        assert (a - b).norm() <= 2e-6 * b.norm()


def test_one_query_and_one_key():
    found = check(*draw((1, 1, 1, 16), 1, dtype=torch.float16, size=3.0), floor=2e-3)
    assert all(x.isfinite().all() for x in found)


def test_what_lies_behind_the_last_row_does_not_matter():
    q, k, v, do = draw((1, 2, 21, 16), 2)
    o, lse = attention(q, k, v)
    buffers = [torch.full((x.numel() + 4096,), math.nan) for x in (q, k, v, do, o, lse)]
    views = []
    for buffer, x in zip(buffers, (q, k, v, do, o, lse), strict=True):
        views.append(buffer[: x.numel()].view(x.shape))
        views[-1].copy_(x)
    q_, k_, v_, do_, o_, lse_ = views
    plain = attention_backward.backward(q, k, v, o, lse, do, -1, -1, 0.25, 0.0)
    again = attention_backward.backward(q_, k_, v_, o_, lse_, do_, -1, -1, 0.25, 0.0)
    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("width", [16, 24, 32, 40, 64, 72, 80, 96, 128])
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str
)
def test_widths(width, dtype):
    check(*draw((1, 1, 35, width), 1, dtype=dtype), causal=True, seed=1)


@pytest.mark.parametrize(("width", "values"), [(16, 128), (72, 24), (64, 32)])
def test_values_of_another_width(width, values):
    check(*draw((1, 2, 35, width), 1, 41, values), causal=True)


@pytest.mark.parametrize("shared", [8, 4, 2, 1])
def test_shared_heads(shared):
    check(*draw((2, 8, 9, 16), shared), causal=True, seed=shared)


def test_softcap_and_its_derivative(small):
    check(*draw((1, 2, 34, 16), 1), softcap=1.5, causal=True, seed=1)


def test_softcap_far_beyond_the_cap():
    q, k, v, do = draw((1, 1, 33, 16), 1, size=60.0)
    assert (q @ k.mT).abs().max() > 1e4
    found = check(q, k, v, do, softcap=20.0, scale=1.0, only=2)
    assert all(x.isfinite().all() for x in found) and found[1].max() <= 20 + math.log(33)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_beyond_half_precision(dtype):
    q, k, v, do = draw((1, 1, 33, 64), 1, dtype=dtype)
    q, k = ((x.double().sign() * (250 + x)).to(dtype) for x in (q, k))
    assert (q.double() @ k.double().mT).abs().max() > 65504
    check(q, k, v, do, only=2)
    assert all(x.isfinite().all() for x in computed(q, k, v, do))


def test_bfloat16_of_1000_is_no_nan():
    thousand = torch.full((1, 2, 20, 16), 1000.0, dtype=torch.bfloat16)
    found = computed(thousand, thousand, thousand, torch.ones_like(thousand))
    assert all(x.isfinite().all() for x in found)
    assert torch.equal(found[0], thousand)


@pytest.mark.parametrize("scale", [0.0, -0.4, 1, 1e-45])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_scales(scale, softcap):
    check(*draw((1, 1, 18, 16), 1), scale=scale, softcap=softcap, causal=True)


class TestLayouts:
    def test_views_of_a_packed_projection(self):
        q, k, v, do = draw((2, 2, 19, 16), 2)
        packed = torch.stack([x.transpose(1, 2) for x in (q, k, v)], 2)
        views = [x.transpose(1, 2) for x in packed.unbind(2)]
        assert not any(x.is_contiguous() for x in views)
        plain, found = computed(q, k, v, do, causal=True), computed(*views, do, causal=True)
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))

    @pytest.mark.parametrize("kind", ["heads last", "width first", "every other"])
    def test_other_strides(self, kind):
        q, k, v, do = draw((2, 2, 19, 16), 2)
        change = {
            "heads last": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
            "width first": lambda x: x.mT.contiguous().mT,
            "every other": lambda x: x.repeat_interleave(2, -1)[..., ::2],
        }[kind]
        found = computed(change(q), k, change(v), change(do), causal=True)
        plain = computed(q, k, v, do, causal=True)
        for a, b in zip(plain, found, strict=True):
            assert torch.allclose(a, b, atol=1e-6)

    @pytest.mark.parametrize("kind", ["sum", "one row"])
    def test_expanded_gradients(self, kind):
        q, k, v, do = draw((1, 2, 19, 16), 2)
        do = torch.ones(()) if kind == "sum" else do[:, :, :1]
        do = do.expand_as(q)
        found, plain = computed(q, k, v, do), computed(q, k, v, do.contiguous())
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, found, strict=True))

    def test_a_pointer_that_is_not_aligned(self):
        q, k, v, do = draw((1, 2, 19, 16), 2, dtype=torch.float16)

        def moved(x):
            buffer = torch.zeros(x.numel() + 1, dtype=x.dtype)[1:]
            return buffer.copy_(x.flatten()).view(x.shape)

        assert moved(q).data_ptr() % 16 == 2
        plain = computed(q, k, v, do, causal=True)
        found = computed(*map(moved, (q, k, v, do)), causal=True)
        for a, b in zip(plain, found, strict=True):
            assert torch.allclose(a, b, atol=1e-3)

    @pytest.mark.parametrize("axis", [0, 1, 2, 3])
    def test_strides_beyond_32_bits(self, axis):
        """Views over memory that is reserved and never touched but for a few pages."""
        sizes = (2, 2, 2, 16) if axis < 2 else (1, 1, 3, 16)
        reach = 2**31 + 8 if axis < 3 else 2**28 + 8
        memory = torch.empty((sizes[axis] - 1) * reach + 4096, dtype=torch.float16)
        strides = [64, 32, 16, 1]
        strides[axis] = reach
        q, k, v, do = draw(sizes, sizes[1], dtype=torch.float16)
        for name, near in (("k", k), ("q", q), ("v", v)):
            far = memory.as_strided(sizes, strides)
            far.copy_(near)
            given = {"q": q, "k": k, "v": v} | {name: far}
            found = computed(*given.values(), do)
            plain = computed(q, k, v, do)
            for a, b in zip(plain, found, strict=True):
                assert torch.allclose(a, b, atol=1e-3), name

    @pytest.mark.parametrize("sizes", [(0, 2, 5, 16), (2, 2, 0, 16), (2, 0, 5, 16)])
    def test_empty_axes_launch_nothing(self, sizes):
        q, k, v, do = draw(sizes, 0 if sizes[1] == 0 else 2, 7)
        with strict() as counts:
            found = computed(q, k, v, do)
        assert not any(x.any() for x in found)
        assert counts["stores"] == 0 or sizes[2] == 0

    def test_no_keys(self):
        q, _, _, do = draw((1, 2, 5, 16), 2)
        none = torch.zeros(1, 2, 0, 16)
        o, lse, *grads = computed(q, none, none, do)
        assert not o.any() and bool((lse == -math.inf).all()) and not any(g.any() for g in grads)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (3, 20)}], ids=str)
def test_any_program_order_gives_the_same_bits(small, options):
    x = draw((1, 4, 34, 16), 2)
    first, second = computed(*x, seed=0, **options), computed(*x, seed=7, **options)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_every_element_is_written_and_no_input(monkeypatch):
    new_empty = torch.Tensor.new_empty

    def poisoned(x, *size, **options):
        made = new_empty(x, *size, **options)
        return made.fill_(math.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    x = draw((2, 4, 37, 24), 2, 45)
    before = [y.clone() for y in x]
    found = computed(*x, causal=True)
    assert all(y.isfinite().all() for y in found)
    assert all(torch.equal(a, b) for a, b in zip(x, before, strict=True))


def test_only_what_is_asked_for_is_computed(monkeypatch):
    ran = []
    for name in ("launch_dkdv", "launch_dq"):
        whole = getattr(attention_backward, name)
        monkeypatch.setattr(
            attention_backward, name, lambda *a, w=whole, n=name: ran.append(n) or w(*a)
        )
    q, k, v, do = draw((1, 2, 17, 16), 2)
    wanted = computed(q, k, v, do)
    for needed, launched in (("q", ["launch_dq"]), ("v", ["launch_dkdv"])):
        ran.clear()
        given = {"q": q, "k": k, "v": v}
        given[needed] = given[needed].clone().requires_grad_()
        attention(**given)[0].backward(do)
        assert ran == launched
        assert torch.equal(given[needed].grad, wanted[2 if needed == "q" else 4])


def test_finite_differences():
    q, k, v, do = draw((1, 2, 9, 16), 1, 11)
    options = {"causal": True, "softcap": 3.0}
    _, _, *grads = computed(q, k, v, do, **options)
    generator = torch.Generator().manual_seed(2)
    for place, grad in enumerate(grads):
        step = torch.randn(grad.shape, generator=generator) * 1e-2
        ends = []
        for sign in (1, -1):
            x = [q, k, v]
            x[place] = x[place] + sign * step
            ends.append((attention(*x, **options)[0].double() * do).sum())
        slope = (ends[0] - ends[1]) / 2
        assert abs(slope - (grad * step).sum()) <= 1e-3 * slope.abs() + 1e-5


def test_a_long_row_of_equal_large_logits():
    q = torch.full((1, 1, 1, 16), 30.0, dtype=torch.float16)
    k = torch.full((1, 1, 4096, 16), 30.0, dtype=torch.float16)
    with strict(0):
        o, lse = attention(q, k, torch.ones_like(k))
    assert torch.equal(o, torch.ones_like(o))
    assert abs(lse.item() - (3600 + math.log(4096))) < 1e-2


@pytest.mark.parametrize("width", [8, 136])
def test_other_widths_are_refused(width):
    with pytest.raises(ValueError, match="multiples of 8 from 16 to 128"):
        attention(*draw((1, 1, 4, width), 1)[:3])


def test_the_kernels_are_launched_on_the_device_of_the_tensors(monkeypatch):
    entered = []

    class Device:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            entered.append(self.device)

        def __exit__(self, *_):
            pass

    class Fake:
        is_cuda, device = True, "cuda:1"

    monkeypatch.setattr(torch.cuda, "device", Device)
    with attention_forward.on_device(Fake()):
        pass
    assert entered == ["cuda:1"]
    monkeypatch.setattr(attention_forward, "on_device", lambda x: Device("forward"))
    monkeypatch.setattr(attention_backward, "on_device", lambda x: Device("backward"))
    computed(*draw((1, 1, 5, 16), 1))
    assert entered[1:] == ["forward", "backward", "backward", "backward"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("width", [24, 64, 128])
@pytest.mark.parametrize("options", MASKS, ids=str)
def test_the_tables_own_tiles(dtype, width, options):
    check(*draw((1, 2, 200, width), 1, 270, dtype=dtype), seed=3, **options)


def test_the_operator_takes_bounds_that_hide_nothing():
    q, k, v, _ = draw((1, 2, 20, 16), 1)
    o, lse = ops.attention_forward(q, k, v, 2**31 - 1, 2**31 - 1, 0.25, 0.0)
    wanted, wanted_lse = attention(q, k, v)
    assert torch.equal(o, wanted) and torch.equal(lse, wanted_lse)
