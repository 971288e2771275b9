"""The gate itself: it sees a matrix instruction, its absence, a spill, and too much memory."""

import pytest
import torch
import triton
import triton.language as tl

from labcore.kernels.verify import gate


@triton.jit
def product(a, b, out, K, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr):
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    inner = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, K, DEPTH):
        left = tl.load(a + row * K + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * COLS + col)
        total = tl.dot(left, right, total)
    tl.store(out + row * COLS + col, total)


def launch(rows=64, cols=64, depth=32, dtype=torch.float16, **options):
    a, b = (torch.empty(size, dtype=dtype, device="meta") for size in ((rows, 256), (256, cols)))
    out = torch.empty(rows, cols, device="meta")
    product[(1,)](a, b, out, 256, ROWS=rows, COLS=cols, DEPTH=depth, **options)


@pytest.mark.parametrize(("capability", "instruction"), [(80, "HMMA"), (89, "HMMA"), (90, "HGMMA")])
def test_the_matrix_instruction_of_each_gpu_is_found(capability, instruction):
    (found,) = gate.launches(capability, launch)
    assert (found.name, found.grid) == ("product", (1,))
    assert found.arguments["K"] == 256
    report = gate.report(found.kernel)
    assert report.matrix[instruction] > 0 and not report.spills
    assert gate.faults(capability, found.kernel, instruction) == []


def test_a_missing_matrix_instruction_is_a_fault():
    (found,) = gate.launches(80, launch)
    assert any("no HGMMA" in told for told in gate.faults(80, found.kernel, "HGMMA"))


def test_too_large_a_tile_spills_and_is_a_fault():
    (found,) = gate.launches(80, lambda: launch(256, 256, 32, num_warps=4, num_stages=2))
    assert any("spills" in told for told in gate.faults(80, found.kernel))


def test_too_much_shared_memory_is_a_fault():
    def deep():
        launch(128, 128, 128, num_warps=8, num_stages=3)

    (found,) = gate.launches(89, deep)
    assert any("shared memory" in told for told in gate.faults(89, found.kernel))


def test_the_driver_is_put_back_and_a_second_capability_compiles_anew():
    kinds = {
        found: gate.launches(found, launch)[0].kernel.metadata.target.arch for found in (80, 90)
    }
    assert kinds == {80: 80, 90: 90}


def test_unknown_capabilities_are_refused():
    with pytest.raises(ValueError, match=r"capability: got 70"):
        gate.launches(70, launch)
