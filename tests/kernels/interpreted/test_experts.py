"""The grouped matrix product's kernels, run in NumPy under the strict mode, in two orders."""

import types

import pytest
import torch

from labcore.kernels import use, why
from labcore.kernels.config import Tile, assume
from labcore.kernels.experts import expert_gemm, offsets_of
from labcore.kernels.experts_eager import bounds
from labcore.kernels.experts_tiles import DECODE, EXPERT_DW, EXPERT_FORWARD, FINE, LARGE
from labcore.kernels.gpu.experts import forward, grid_rows, on_device_of
from labcore.kernels.gpu.experts_dw import weight_gradient
from labcore.kernels.verify.strict import strict

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
FULL = [torch.float32, torch.float16, torch.bfloat16]
# 16 rows a tile: one fewer, exactly, one more than a tile; experts without rows; rows for nobody.
SPREADS = {
    "around a tile": ([1, 15, 16, 17, 31], 80),
    "empty first": ([0, 17, 4, 0, 2], 23),
    "empty last and some for nobody": ([9, 0, 5, 3, 0], 37),
    "all empty": ([0, 0, 0, 0, 0], 19),
    "one takes all": ([0, 0, 50, 0, 0], 50),
    "one row each": ([1, 1, 1, 1, 1], 5),
    "fewer rows than experts": ([0, 1, 0, 0, 0], 2),
}
SMALL = Tile(16, 16, 16, warps=4, stages=2)


@pytest.fixture(autouse=True)
def no_memory_is_zero_by_chance():
    """What is allocated is filled with NaN: an element that no program writes shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.isnan(torch.zeros(1).new_empty(3)).all()
    yield
    torch.use_deterministic_algorithms(False)


def draw(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def wanted_y(x, w, offsets):
    y = torch.zeros(len(x), w.shape[2], dtype=torch.float64)
    for expert, (first, end) in enumerate(bounds(offsets, len(x))):
        y[first:end] = x[first:end].double() @ w[expert].double()
    return y


def wanted_dw(x, dy, offsets):
    spans = bounds(offsets, len(x))
    return torch.stack([x[a:b].double().t() @ dy[a:b].double() for a, b in spans])


def close(found, wanted, dtype=torch.float32):
    assert found.shape == wanted.shape and found.is_contiguous()
    error, size = (found.double() - wanted).norm().item(), wanted.norm().item()
    assert error <= TOLERANCE[dtype] * max(size, 1e-30)


def both_orders(function, *arguments):
    """The result of a launch under the strict mode, the same to the bit in two orders."""
    found = []
    for seed in (0, 1):
        with strict(seed) as counts:
            found.append(function(*arguments))
        assert counts["stores"] > 0
    bits = torch.int32 if found[0].dtype == torch.float32 else torch.int16
    assert torch.equal(*(m.view(bits) for m in found))  # NaN is not equal to itself
    return found[0]


def case(counts, rows, D, F, dtype=torch.float32, kind=torch.int32):
    offsets = torch.tensor(counts).cumsum(0).to(kind)
    x, w = draw(rows, D, dtype=dtype), draw(len(counts), D, F, dtype=dtype, seed=1)
    return x, w, draw(rows, F, dtype=dtype, seed=2), offsets


def verify(x, w, dy, offsets):
    """y, dX and dW of one case against float64, in two orders."""
    dtype = x.dtype
    close(both_orders(forward, x, w, offsets), wanted_y(x, w, offsets), dtype)
    flipped = w.transpose(1, 2)
    close(both_orders(forward, dy, flipped, offsets), wanted_y(dy, flipped, offsets), dtype)
    dw = both_orders(weight_gradient, x, dy, offsets)
    close(dw, wanted_dw(x, dy, offsets), dtype)
    for expert, (first, end) in enumerate(bounds(offsets, len(x))):
        assert first < end or dw[expert].abs().max() == 0


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_distribution(spread, dtype):
    counts, rows = SPREADS[spread]
    verify(*case(counts, rows, 24, 40, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sizes", [(64, 64), (128, 48), (33, 50), (1, 1), (129, 8)])
@pytest.mark.parametrize("dtype", FULL)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_the_whole_grid(spread, sizes, dtype, kind):
    counts, rows = SPREADS[spread]
    verify(*case(counts, rows, *sizes, dtype, kind))


@pytest.mark.parametrize("dtype", FULL)
@pytest.mark.parametrize("sizes", [(33, 50), (128, 64), (1, 1)])
def test_sizes_that_are_no_multiple_of_anything(sizes, dtype):
    verify(*case([3, 0, 17, 1], 25, *sizes, dtype, torch.int64))


@pytest.mark.parametrize("average", [DECODE, FINE, LARGE])
@pytest.mark.parametrize("bits", [16, 32])
def test_every_class_of_tiles_as_the_tables_have_it(average, bits):
    """Two experts, one of them with a row more than a tile, at the tile that 9.0 takes."""
    tile = EXPERT_FORWARD.find(90, bits, average)
    dtype = torch.bfloat16 if bits == 16 else torch.float32
    with EXPERT_FORWARD.override(tile), EXPERT_DW.override(EXPERT_DW.find(90, bits, average)):
        verify(*case([tile.rows + 1, tile.rows - 1], 2 * tile.rows + 3, 144, 72, dtype))


@pytest.mark.parametrize("found", [75, 80, 89])
def test_the_tiles_of_older_gpus(found):
    with assume(found):
        verify(*case([33, 0, 31], 70, 40, 24, torch.float16))


def test_bands_of_row_tiles_cover_every_tile_once():
    """More row tiles than a band holds, a last band that is not full, several columns."""
    with EXPERT_FORWARD.override(SMALL), EXPERT_DW.override(SMALL):
        verify(*case([33, 0, 83, 1], 118, 16, 24))
        verify(*case([5, 9], 16, 16 * 8 + 8, 24))


@pytest.mark.parametrize("E", [18, pytest.param(70, marks=pytest.mark.slow)])
def test_many_experts_of_few_rows(E):
    counts = [(7 * e) % 4 for e in range(E)]
    verify(*case(counts, sum(counts) + 3, 16, 16))


def test_no_row_meets_a_neighbours_weights_or_values():
    x, w, dy, offsets = case([5, 1, 16, 7], 31, 24, 40)
    for poison in (float("nan"), float("inf")):
        spoilt = w.clone()
        spoilt[[0, 2]] = poison
        y = both_orders(forward, x, spoilt, offsets)
        clean = torch.isfinite(y).all(1)
        assert clean.tolist() == [not (n < 5 or 6 <= n < 22) for n in range(31)]
        close(y[clean], wanted_y(x, w, offsets)[clean])
        # Rows of experts 0 and 2, and those of nobody, hold nothing that dW of 1 and 3 may see.
        rows = torch.tensor([n < 5 or 6 <= n < 22 or n >= 29 for n in range(31)])
        bad = x.masked_fill(rows[:, None], poison), dy.masked_fill(rows[:, None], poison)
        for pair in ((bad[0], dy), (x, bad[1]), bad):
            dw = both_orders(weight_gradient, *pair, offsets)
            close(dw[[1, 3]], wanted_dw(x, dy, offsets)[[1, 3]])
            assert not torch.isfinite(dw[[0, 2]]).all()


def test_rows_for_nobody_are_zero_whatever_is_in_them():
    x, w, _, offsets = case([5, 0, 3], 31, 24, 40)
    x[8:] = float("nan")
    y = both_orders(forward, x, w, offsets)
    assert y[8:].abs().max() == 0
    close(y[:8], wanted_y(x[:8], w, offsets))


@pytest.mark.parametrize("values", [[3, 1, 9, 99, 12], [-4, 2, 2, 1, 23], [50, 40, 30, 20, 10]])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_offsets_that_decrease_or_leave_the_rows_are_held(values, kind):
    given = torch.tensor(values, dtype=kind)
    x, w, dy, _ = case([1] * 5, 23, 24, 40)
    held = given.clamp(0, 23).cummax(0).values
    close(both_orders(forward, x, w, given), wanted_y(x, w, held))
    close(both_orders(weight_gradient, x, dy, given), wanted_dw(x, dy, held))


def test_strides_are_honoured_without_a_copy():
    counts, rows, D, F = [3, 0, 17, 1], 25, 24, 40
    x, w, dy, offsets = case(counts, rows, D, F)
    packed = draw(rows, 3 * D)
    views = {
        "packed": (packed[:, D : 2 * D], w, dy),
        "every second column": (draw(rows, 2 * D)[:, ::2], w, dy),
        "columns": (draw(D, rows).t(), w, draw(F, rows).t()),
        "weights as [E, F, D]": (x, draw(4, F, D).transpose(1, 2), dy),
        "weights as [D, E, F]": (x, draw(D, 4, F).transpose(0, 1), dy),
        "one matrix for all": (x, draw(D, F).expand(4, D, F), dy),
        "expanded gradient": (x, w, torch.ones(()).expand(rows, F)),
        "one element further": (draw(rows * D + 1)[1:].view(rows, D), w, dy),
        "weights one further": (x, draw(4 * D * F + 1)[1:].view(4, D, F), dy),
    }
    apart = torch.stack([offsets, offsets + 99], 1)[:, 0]  # offsets that do not lie side by side
    for name, (x, w, dy) in views.items():
        try:
            verify(x, w, dy, apart)
        except Exception as error:
            raise AssertionError(name) from error


def test_half_precision_sums_in_float32():
    x = torch.full((3, 96), 60000.0, dtype=torch.float16)
    x[:, 47:95] = -60000  # running sums pass 65504 by far; the true sum is 0
    offsets = torch.tensor([1, 3])
    assert both_orders(forward, x, torch.ones(2, 96, 16).half(), offsets).abs().max() == 0
    y = both_orders(forward, x[:, :2], torch.ones(2, 2, 16).half(), offsets)
    assert torch.isposinf(y).all()
    dw = both_orders(weight_gradient, x.t()[:, :3], torch.ones(96, 8).half(), torch.tensor([96]))
    assert dw.abs().max() == 0


def test_addresses_beyond_32_bits():
    """Strides of 2³⁰ elements, which fit into 32 bits, times an index, which does not: in memory
    of which a few pages are ever touched."""
    torch.use_deterministic_algorithms(False)  # it would fill all 8 GiB
    far, memory = 2**30, torch.empty(2**32, dtype=torch.float16)

    def sparse(shape, strides, seed):
        m = memory.as_strided(shape, strides)
        return m.copy_(draw(*shape, seed=seed))

    half, offsets = torch.float16, torch.tensor([1, 2, 2, 4])
    w = draw(4, 16, 16, dtype=half)
    verify(sparse((4, 16), (far, 1), 0), w, draw(4, 16, dtype=half), offsets)
    verify(draw(4, 16, dtype=half), w, sparse((4, 16), (far, 1), 1), offsets)
    x, dy = draw(4, 16, dtype=half), draw(4, 16, dtype=half)
    verify(x, sparse((4, 16, 16), (far, 16, 1), 2), dy, offsets)
    verify(x[:, :4], sparse((4, 4, 16), (16, far, 1), 3), dy, offsets)
    verify(x, sparse((4, 16, 4), (16, 1, far), 4), dy[:, :4], offsets)
    wide = sparse((4, 4), (1, far), 5)
    verify(wide, w[:, :4], dy, offsets)
    verify(x, w[:, :, :4], wide, offsets)


def test_the_door_runs_the_kernels_and_their_gradients():
    x, w, dy, offsets = case([4, 0, 9, 2], 17, 24, 40)
    x, w = x.requires_grad_(), w.requires_grad_()
    with use("triton"):
        y = expert_gemm(x, w, offsets)
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        again = torch.autograd.grad(expert_gemm(x, w, offsets), (x, w), dy)
    assert why("expert_gemm").startswith("triton") and why("expert_gemm_dw").startswith("triton")
    assert torch.equal(dx, again[0]) and torch.equal(dw, again[1])
    with use("eager"):
        wanted = torch.autograd.grad(expert_gemm(x.double(), w.double(), offsets), (x, w), dy)
    close(dx, wanted[0].double())
    close(dw, wanted[1].double())
    assert dw[1].abs().max() == 0 and dx[15:].abs().max() == 0


def test_finite_differences_of_the_kernel():
    """The loss along one direction, in float32, against the gradient that the kernels give."""
    x, w, dy, offsets = case([4, 0, 9, 2], 17, 24, 40)
    directions = draw(17, 24, seed=3), draw(4, 24, 40, seed=4)
    with use("triton"):
        tensors = [m.clone().requires_grad_() for m in (x, w)]
        (expert_gemm(*tensors, offsets) * dy).sum().backward()
        slope = sum((m.grad * d).sum() for m, d in zip(tensors, directions, strict=True)).item()
        step = 1e-2

        def loss(sign):
            moved = [m + sign * step * d for m, d in zip((x, w), directions, strict=True)]
            return (expert_gemm(*moved, offsets).double() * dy).sum().item()

        found = (loss(1) - loss(-1)) / (2 * step)
    assert abs(found - slope) < 1e-3 * abs(slope)


@pytest.mark.parametrize("sizes", [(0, 8, 8, 3), (5, 0, 8, 3), (5, 8, 0, 3), (5, 8, 8, 0)])
def test_sizes_of_zero_launch_nothing(sizes):
    rows, D, F, E = sizes
    offsets = torch.zeros(E, dtype=torch.int32)
    with strict() as counts:
        y = forward(torch.ones(rows, D), torch.ones(E, D, F), offsets)
        dw = weight_gradient(torch.ones(rows, D), torch.ones(rows, F), offsets)
    assert y.shape == (rows, F) and not y.abs().sum()
    assert dw.shape == (E, D, F) and not dw.abs().sum()
    if rows and D and F:
        assert counts["stores"] == 0


def test_inputs_stay_as_they_were():
    given = case([4, 0, 9, 2], 17, 24, 40)
    before = [m.clone() for m in given]
    verify(*given)
    assert all(torch.equal(*pair) for pair in zip(given, before, strict=True))


@pytest.mark.parametrize("rows", [16, 128])
@pytest.mark.parametrize("E", [1, 3, 8])
def test_the_grid_has_a_row_tile_for_every_distribution(rows, E):
    draw_counts = torch.Generator().manual_seed(0)
    for N in (1, 2, E, rows - 1, rows, rows + 1, 3 * rows + 5):
        tight = min(E + 1, N) - 1
        worst = [N - tight * (N // (tight + 1)) if tight else N] + [N // (tight + 1)] * tight
        spreads = [worst + [0] * (E + 1 - len(worst))]
        for _ in range(50):
            owner = torch.randint(0, E + 1, (N,), generator=draw_counts)
            spreads.append(torch.bincount(owner, minlength=E + 1).tolist())
        most = max(sum(-(-count // rows) for count in counts) for counts in spreads)
        assert most <= grid_rows(N, E, rows) <= N // rows + E + 1


def test_a_launch_goes_to_the_gpu_of_its_tensors():
    other = types.SimpleNamespace(device=torch.device("cuda", 1))
    assert on_device_of(other).idx == 1
    with on_device_of(torch.zeros(1)):
        pass


def test_offsets_of_counts_reach_the_kernel_as_they_are():
    counts = torch.tensor([2, 0, 5])
    x, w, *_ = case([2, 0, 5], 9, 16, 16)
    close(both_orders(forward, x, w, offsets_of(counts)), wanted_y(x, w, offsets_of(counts)))
