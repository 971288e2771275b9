"""What the window kernels' launches write, where they reach, and what they leave alone."""

import math

import numpy as np
import pytest
import torch

from labcore.kernels import use, window_tiles
from labcore.kernels.gpu import window_backward as backward_module
from labcore.kernels.gpu import window_forward as forward_module
from labcore.kernels.window import window_attention
from tests.kernels.interpreted.window_strict import case, check, in_triton
from tests.kernels.window_cases import draw, gradients, leaves, some_mask


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
