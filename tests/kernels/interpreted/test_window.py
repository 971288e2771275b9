"""The window kernels in the strict interpreter: every call here checks addresses, NaN and order."""

import math

import numpy as np
import pytest
import torch

from labcore.kernels import use, why, window_tiles
from labcore.kernels.config import Tile
from labcore.kernels.gpu import window_backward as backward_module
from labcore.kernels.gpu import window_forward as forward_module
from labcore.kernels.verify.strict import strict
from labcore.kernels.window import window_attention, window_attention_eager
from tests.kernels.window_cases import draw, gradients, leaves, packed, relative_error, some_mask

# Relative Frobenius error against float64.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
NAMES = ("o", "dq", "dk", "dv", "dbias")


def in_triton(inputs, mask, upstream, seed=0, scale=None):
    """(o, gradients …) of the kernels, interpreted strictly, programs in the order of `seed`."""
    with use("triton"), strict(seed=seed):
        out = window_attention(*inputs, mask, scale=scale)
        found = gradients(out, upstream, *inputs)
    assert why("window_attention").startswith("triton")
    return [out.detach(), *found]


def in_float64(inputs, mask, upstream, scale=None):
    wide = leaves(*(None if x is None else x.detach().double() for x in inputs))
    out = window_attention_eager(*wide, mask, scale=scale)
    return [out.detach(), *gradients(out, upstream.double(), *wide)]


def check(inputs, mask, upstream, seed=0, scale=None):
    found = in_triton(inputs, mask, upstream, seed, scale)
    wanted = in_float64(inputs, mask, upstream, scale)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        tolerance = TOLERANCE[inputs[0].dtype]
        error = relative_error(one, other)
        assert error <= tolerance, f"{name}: {error}"
    return found


def case(windows, heads, tokens, width, dtype, bias=torch.float32, seed=0):
    q, k, v = packed(windows, heads, tokens, width, dtype, seed)
    bias = None if bias is None else draw(seed + 2, heads, tokens, tokens, dtype=bias)
    return leaves(q, k, v, bias), draw(seed + 3, windows, heads, tokens, width, dtype=dtype)


@pytest.fixture
def large_blocks(monkeypatch):
    """Fewer, larger blocks: the interpreter's time goes by their number, not by their size."""
    for name in ("FORWARD", "ROWS", "COLS", "BIAS"):
        table = getattr(window_tiles, name)
        monkeypatch.setattr(table, "find", lambda *key: Tile(64, 64))


@pytest.fixture
def few_programs(monkeypatch):
    """A GPU that asks for few programs, so that each takes several windows."""
    monkeypatch.setattr(window_tiles, "PROGRAMS", 4)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_window_of_swin(large_blocks, few_programs, dtype, seed):
    """M=7, 49 tokens in a tile of 64, packed q, k, v, bias and a mask that hides a whole row."""
    inputs, upstream = case(6, 2, 49, 32, dtype)
    found = check(inputs, some_mask(bool, 49), upstream, seed)
    assert not found[0][0, :, 1].any() and not found[1][0, :, 1].any()


GRID = [(tokens, width) for tokens in (16, 36, 49, 64, 144) for width in (16, 24, 30, 32, 48)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("tokens", "width"), [*GRID, (121, 64), (25, 8), (9, 40)])
def test_every_window_and_width(large_blocks, tokens, width, dtype):
    inputs, upstream = case(4, 2, tokens, width, dtype)
    for seed in (0, 1):
        check(inputs, some_mask(bool, tokens, 2), upstream, seed)


@pytest.mark.parametrize(("tokens", "width"), [(16, 24), (36, 48), (64, 30), (25, 64)])
def test_other_windows_and_widths(tokens, width):
    inputs, upstream = case(4, 3, tokens, width, torch.float16)
    check(inputs, some_mask(-100.0, tokens, 2), upstream)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_window_goes_in_blocks(large_blocks, dtype):
    """M=12: 144 tokens, three blocks of 64 in both directions."""
    inputs, upstream = case(2, 1, 144, 32, dtype)
    check(inputs, some_mask(bool, 144, 2), upstream)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("tokens", "dtype"), [(144, torch.float16), (49, torch.float32)])
def test_the_blocks_of_each_gpu(tokens, dtype, capability):
    from labcore.kernels.config import assume

    inputs, upstream = case(2, 1, tokens, 32, dtype)
    with assume(capability):
        check(inputs, some_mask(bool, tokens, 2), upstream)


@pytest.mark.parametrize("tokens", [49, 81])
@pytest.mark.parametrize("kind", [None, -100.0, -math.inf])
def test_masks_of_every_kind(large_blocks, tokens, kind):
    inputs, upstream = case(2, 1, tokens, 16, torch.float16)
    check(inputs, some_mask(kind, tokens, 2), upstream)


@pytest.mark.parametrize("bias", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [16, 81])
def test_bias_of_every_kind(large_blocks, tokens, bias):
    inputs, upstream = case(2, 1, tokens, 16, torch.float16, bias)
    found = check(inputs, None, upstream)
    assert bias is None or found[-1].dtype == bias


@pytest.mark.parametrize("tokens", [16, 81])
def test_a_bias_without_gradient_costs_no_sum(large_blocks, monkeypatch, tokens):
    inputs, upstream = case(2, 1, tokens, 16, torch.float16)
    inputs[3].requires_grad_(False)
    sums = []
    with use("triton"), strict(seed=0):
        out = window_attention(*inputs)
        real = torch.Tensor.sum
        monkeypatch.setattr(torch.Tensor, "sum", lambda *a, **k: sums.append(a) or real(*a, **k))
        found = torch.autograd.grad(out, inputs[:3], upstream)
    assert not sums and len(found) == 3


@pytest.mark.parametrize("windows", [1, 5, 7])
def test_windows_that_no_split_divides(few_programs, windows):
    """5 and 7 windows on 4 programs: the last ones have fewer, or none."""
    inputs, upstream = case(windows, 1, 16, 16, torch.float16)
    check(inputs, None, upstream)


@pytest.mark.parametrize("tokens", [49, 81])
def test_two_orders_of_the_programs_give_the_same_bits(large_blocks, few_programs, tokens):
    inputs, upstream = case(4, 1, tokens, 16, torch.float16)
    mask = some_mask(bool, tokens, 2)
    first, second, again = (in_triton(inputs, mask, upstream, seed) for seed in (0, 7, 0))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def behind_nan(x):
    """A view of the same numbers with NaN in every place of its memory that it does not show."""
    windows, heads, tokens, width = x.shape
    whole = torch.full((windows, heads, tokens + 15, width + 16), math.nan, dtype=x.dtype)
    whole[:, :, :tokens, :width] = x
    return whole[:, :, :tokens, :width]


@pytest.mark.parametrize("tokens", [49, 81])
def test_what_lies_behind_a_window_is_never_read(large_blocks, tokens):
    inputs, upstream = case(2, 2, tokens, 16, torch.float16)
    hidden = [behind_nan(x) for x in inputs[:3]] + [inputs[3]]
    assert hidden[0].stride() == (2 * (tokens + 15) * 32, (tokens + 15) * 32, 32, 1)
    check(leaves(*hidden), None, behind_nan(upstream))


@pytest.mark.parametrize("tokens", [16, 81])
def test_strides_of_every_kind(large_blocks, tokens):
    """q packed, k with heads outermost and late by one number, v with channels apart."""
    (q, k, v, bias), upstream = case(4, 2, tokens, 16, torch.float16)
    late = torch.zeros(k.numel() + 1, dtype=k.dtype)[1:].view(2, 4, tokens, 16).transpose(0, 1)
    late.copy_(k.detach())
    apart = v.detach().permute(1, 3, 2, 0).contiguous().permute(3, 0, 2, 1)
    bias = bias.detach().permute(1, 2, 0).contiguous().permute(2, 0, 1)
    inputs = leaves(q, late, apart, bias)
    assert late.data_ptr() % 16 and apart.stride(-1) != 1 and not bias.is_contiguous()
    for grad in (upstream, upstream.mT.contiguous().mT, upstream[:1, :1, :1, :1].expand_as(q)):
        check(inputs, some_mask(bool, tokens, 2), grad)


@pytest.mark.parametrize("scale", [0.0, -0.7, 2])
def test_scales(scale):
    inputs, upstream = case(2, 1, 16, 16, torch.float16)
    check(inputs, None, upstream, scale=scale)


@pytest.mark.parametrize("tokens", [16, 81])
def test_scores_beyond_half_precision(large_blocks, tokens):
    inputs, upstream = case(2, 1, tokens, 16, torch.float16)
    q, k, v, bias = (x.detach() for x in inputs)
    out = check(leaves(q * 100, k * 100, v, bias), None, upstream, scale=1.0)
    assert all(x.isfinite().all() for x in out)
    # All keys and values alike: the true gradients of q and k are 0, small differences of large
    # products, so that only their being finite can be asked for.
    same = torch.full_like(q, 1000).bfloat16()
    out = in_triton(leaves(same, same, same, bias), None, upstream.bfloat16())
    assert all(x.isfinite().all() for x in out) and relative_error(out[0], same) < 1e-2


@pytest.mark.parametrize("tokens", [16, 81])
def test_every_element_of_the_outputs_is_written(large_blocks, monkeypatch, tokens):
    """New memory comes full of NaN, also that of the partial sums."""
    real = torch.Tensor.new_empty

    def dirty(x, *sizes, **options):
        made = real(x, *sizes, **options)
        return made.fill_(math.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch.Tensor, "new_empty", dirty)
    inputs, upstream = case(2, 1, tokens, 16, torch.float16)
    assert all(x.isfinite().all() for x in check(inputs, some_mask(bool, tokens, 2), upstream))


@pytest.mark.parametrize(("axis", "tokens"), [(0, 4), (1, 4), (0, 81), (1, 81), (2, 81), (2, 36)])
def test_offsets_beyond_32_bits(large_blocks, axis, tokens):
    """A stride of 2³⁰ elements fits into 32 bits, 3 times it does not: in memory of which a few
    pages are ever touched."""
    torch.use_deterministic_algorithms(False)  # it would fill all of it
    sizes, strides = [1, 1, tokens, 16], [16, 16, 16, 1]
    sizes[axis], strides[axis] = (tokens, 2**26) if axis == 2 else (4, 2**30)
    memory = torch.empty(sizes[axis] * strides[axis], dtype=torch.float16)
    far = memory.as_strided(sizes, strides).copy_(draw(0, *sizes))
    assert window_tiles.readable(far) is far
    near = [draw(i, *sizes, dtype=torch.float16) for i in (1, 2)]
    for place in range(3):
        given = list(near)
        given.insert(place, far)
        check(leaves(*given, None), None, draw(3, *sizes, dtype=torch.float16))
    check(leaves(*near, near[0], None), None, far)


def grids(monkeypatch, *kernels):
    found = []
    for module, name in kernels:
        kernel = getattr(module, name)

        class Recorded:
            def __getitem__(self, grid, kernel=kernel):
                found.append(grid)
                return kernel[grid]

        monkeypatch.setattr(module, name, Recorded())
    return found


def test_programs_stand_on_the_first_axis_of_the_grid(monkeypatch):
    """70,000 windows and heads would not fit the other axes, which end at 65,535."""
    found = grids(monkeypatch, (forward_module, "window_forward"))
    inputs, _ = case(6, 2, 16, 16, torch.float16)
    with use("triton"):
        window_attention(*inputs, some_mask(bool, 16))
    assert found == [(12,)]
    assert window_tiles.split(70_000, 1) == (35, 2000)
    assert window_tiles.split(7, 3 * 2048) == (7, 6144)


@pytest.mark.parametrize("sizes", [(0, 2, 16, 16), (2, 0, 16, 16), (2, 2, 0, 16)])
def test_nothing_launches_nothing(monkeypatch, sizes):
    found = grids(
        monkeypatch,
        (forward_module, "window_forward"),
        (backward_module, "window_backward"),
    )
    inputs = leaves(*(torch.zeros(sizes) for _ in range(3)), torch.zeros(sizes[1], *[sizes[2]] * 2))
    with use("triton"):
        out = window_attention(*inputs)
        result = gradients(out, torch.zeros_like(out), *inputs)
    assert out.shape == sizes and not found
    assert all(x.shape == y.shape and not x.any() for x, y in zip(result, inputs, strict=True))


def test_inputs_stay_as_they_are(large_blocks):
    inputs, upstream = case(2, 1, 81, 16, torch.float16)
    mask = some_mask(bool, 81, 2)
    given = [*(x.detach() for x in inputs), mask, upstream]
    before = [x.clone() for x in given]
    in_triton(inputs, mask, upstream)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def test_launches_go_to_the_device_of_the_tensors(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: seen.append(device))

    class There:
        device = torch.device("cuda", 1)

    forward_module.on_device(There())
    assert seen == [torch.device("cuda", 1)]


def test_gradients_by_finite_differences():
    """A step of 2^-6 in float32 through the kernels, along a drawn direction."""
    inputs, upstream = case(2, 1, 16, 16, torch.float32)
    _, *found = in_triton(inputs, None, upstream)
    for place, gradient in enumerate(found):
        direction = draw(place + 9, *gradient.shape, dtype=torch.float32)

        def at(step, place=place, direction=direction):
            moved = [x.detach() for x in inputs]
            moved[place] = moved[place] + step * direction
            with use("triton"):
                return (window_attention(*moved).double() * upstream.double()).sum()

        step = 2**-6
        slope = ((at(step) - at(-step)) / (2 * step)).item()
        assert np.isclose(slope, (gradient * direction).sum().item(), rtol=5e-3, atol=5e-2)
