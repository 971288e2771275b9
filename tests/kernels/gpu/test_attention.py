"""The attention kernels on a real GPU: what neither interpreter nor compiler can show."""

import pytest
import torch

from labcore.attention import attend
from labcore.kernels import use, why
from labcore.kernels.attention import attention, attention_eager

pytestmark = pytest.mark.gpu
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
MASKS = [{}, {"causal": True}, {"causal": True, "window": 100}, {"window": (30, 5)}]


@pytest.fixture(autouse=True)
def in_triton():
    with use("triton"):
        yield


def draw(q=(2, 4, 300, 64), shared=2, keys=None, values=None, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(5)
    B, H, T, K = q
    S, V = keys or T, values or K
    shapes = q, (B, shared, S, K), (B, shared, S, V), (B, H, T, V)
    return [torch.randn(s, generator=generator, device="cuda").to(dtype) for s in shapes]


def results(form, q, k, v, do, **options):
    x = [y.detach().requires_grad_() for y in (q, k, v)]
    o, lse = form(*x, **options)
    return o.detach(), lse.detach(), *torch.autograd.grad(o, x, do)


def check(q, k, v, do, **options):
    found = results(attention, q, k, v, do, **options)
    with use("eager"):
        wanted = results(attention_eager, *(x.double() for x in (q, k, v, do)), **options)
    for name, a, b in zip(("o", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        limit = TOLERANCE[torch.float32 if name == "lse" else a.dtype]
        assert torch.equal(a.isfinite(), b.isfinite()), name
        real = b.isfinite()
        assert (a.double() - b)[real].norm() <= limit * b[real].norm() + 1e-6, name
    assert why("attention").startswith("triton")
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("width", [16, 24, 32, 40, 64, 72, 80, 96, 128])
def test_widths(width, dtype):
    check(*draw((2, 4, 333, width), dtype=dtype), causal=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("options", MASKS, ids=str)
@pytest.mark.parametrize(
    "lengths", [(700, 700), (130, 517), (517, 130), (1, 1000), (1, 1)], ids=str
)
def test_masks_and_lengths(lengths, options, dtype):
    queries, keys = lengths
    check(*draw((2, 4, queries, 64), keys=keys, dtype=dtype), **options)


@pytest.mark.parametrize("width", [64, 128])
def test_softcap_scale_and_other_values(width):
    check(*draw((2, 6, 200, width), 3, 230, 32), softcap=2.0, scale=-0.3, causal=True)


def test_a_second_run_gives_the_same_bits():
    x = draw((2, 8, 1000, 128), 2)
    first, second = results(attention, *x, causal=True), results(attention, *x, causal=True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_odd_layouts(dtype):
    q, k, v, do = draw((2, 4, 200, 64), 4, dtype=dtype)
    packed = torch.stack([x.transpose(1, 2) for x in (q, k, v)], 2)
    views = [x.transpose(1, 2) for x in packed.unbind(2)]
    check(*views, do.mT.contiguous().mT, causal=True)
    buffer = torch.zeros(q.numel() + 1, dtype=dtype, device="cuda")[1:]
    check(buffer.copy_(q.flatten()).view(q.shape), k.repeat_interleave(2, -1)[..., ::2], v, do)
    check(q, k, v, torch.ones((), dtype=dtype, device="cuda").expand_as(q))


def test_strides_beyond_32_bits():
    reach = 2**31 + 8
    if torch.cuda.mem_get_info()[0] < 3 * reach:
        pytest.skip(f"needs {3 * reach / 2**30:.0f} GiB of free memory")
    q, k, v, do = draw((2, 2, 40, 64), 2, dtype=torch.float16)
    memory = torch.empty(reach + 2 * 40 * 64, dtype=torch.float16, device="cuda")
    far = memory.as_strided(k.shape, (reach, 40 * 64, 64, 1)).copy_(k)
    for a, b in zip(
        results(attention, q, k, v, do), results(attention, q, far, v, do), strict=True
    ):
        assert torch.equal(a, b)


def test_more_heads_than_a_second_grid_axis_could_hold():
    check(*draw((700, 100, 3, 16), 100))


def test_no_nan_where_others_had_one():
    thousand = torch.full((1, 2, 200, 64), 1000.0, dtype=torch.bfloat16, device="cuda")
    found = results(attention, thousand, thousand, thousand, torch.ones_like(thousand))
    assert all(x.isfinite().all() for x in found)
    q, k, v, do = draw((1, 1, 1, 64), 1, dtype=torch.float16)
    assert all(x.isfinite().all() for x in results(attention, 3 * q, 3 * k, v, do))


def test_the_second_gpu():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = [y.to("cuda:1") for y in draw()]
    with torch.cuda.device(0):
        check(*x)


def test_attend_runs_the_kernel_alone_and_compiled():
    q, k, v, _ = draw()
    with use("auto"):
        wanted = attention(q, k, v, causal=True)[0]
        assert torch.equal(attend(q, k, v, causal=True), wanted)
        assert why("attention").startswith("triton: compute capability")
        run = torch.compile(attend, fullgraph=True, dynamic=True)
        assert torch.equal(run(q, k, v, causal=True), wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    q, k, v, _ = draw(dtype=torch.float32)
    with torch.autocast("cuda", dtype=dtype):
        o, _ = attention(q, k.half(), v)
    assert o.dtype == dtype
