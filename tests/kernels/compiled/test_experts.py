"""What the compiler makes of the grouped product for every tile of the tables, on every GPU.

A tile of 16 rows is too low for the four-warp instruction of 9.0 (64 rows): it uses the older one,
HMMA, and loses nothing by it, for its time goes into reading the weights.
"""

import re

import pytest
import torch

from labcore.kernels.experts_tiles import DECODE, EXPERT_DW, EXPERT_FORWARD, FINE, LARGE, RAGGED
from labcore.kernels.gpu.experts import forward
from labcore.kernels.gpu.experts_dw import weight_gradient
from labcore.kernels.verify import gate

ROWS = {DECODE: 1, FINE: 512, LARGE: 2048}
E, D, F = 8, 1024, 512
HALF, SINGLE = torch.bfloat16, torch.float32


def meta(*shape, dtype=HALF):
    return torch.empty(*shape, dtype=dtype, device="meta")


def both(average, dtype=HALF, D=D, F=F, flipped=False, experts=E):
    """The forward and the dW launch of one class of tiles; ragged widths make the ragged class."""
    if average == RAGGED:
        average, D, F = LARGE, D - 7, F - 5

    def launch():
        rows = experts * ROWS[average]
        x, dy = meta(rows, D, dtype=dtype), meta(rows, F, dtype=dtype)
        w = meta(experts, F, D, dtype=dtype).mT if flipped else meta(experts, D, F, dtype=dtype)
        offsets = meta(experts, dtype=torch.int32)
        forward(x, w, offsets)
        weight_gradient(x, dy, offsets)

    return launch


def sound(capability, launch, matrix):
    """The two launches, once both kernels are found to be without fault."""
    found = gate.launches(capability, launch)
    assert [one.name for one in found] == ["expert_forward", "expert_dw"]
    for one in found:
        older = one.arguments["ROWS"] < 64
        named = "HMMA" if matrix == "HGMMA" and older else matrix
        assert gate.faults(capability, one.kernel, named) == [], one.name
        assert len(one.grid) == 1  # axes 1 and 2 end at 65,535
    return found


@pytest.mark.parametrize("average", [DECODE, FINE, LARGE, RAGGED])
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_half_precision_is_clean_and_uses_the_matrix_unit(capability, average):
    sound(capability, both(average), gate.MATRIX[capability])


@pytest.mark.parametrize("average", [LARGE, RAGGED])
def test_single_precision_is_clean_and_splits_its_products(average):
    for one in sound(90, both(average, SINGLE), "HGMMA"):
        assert "tf32x3" in one.kernel.asm["ttir"]


@pytest.mark.slow
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("sizes", [(1024, 512), (1000, 520), (8, 8)])
@pytest.mark.parametrize("average", [DECODE, FINE, LARGE, RAGGED])
@pytest.mark.parametrize("dtype", [torch.float16, HALF, SINGLE])
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_whole_grid(capability, dtype, average, sizes, flipped):
    launch = both(average, dtype, max(sizes[0], 16), max(sizes[1], 16), flipped)
    sound(capability, launch, gate.MATRIX[capability] if dtype != SINGLE else None)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [HALF, SINGLE])
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_strides_of_any_kind_are_clean(capability, dtype):
    """Nothing side by side, nothing aligned: every element has an address of its own."""
    rows = E * ROWS[LARGE]
    x, w = meta(rows, 2 * D, dtype=dtype)[:, ::2], meta(E, D, 2 * F, dtype=dtype)[:, :, ::2]
    dy = meta(1, dtype=dtype).expand(rows, F)
    offsets = meta(E, dtype=torch.int64)

    def launch():
        forward(x, w, offsets)
        weight_gradient(x, dy, offsets)

    sound(capability, launch, gate.MATRIX[capability] if dtype == HALF else None)


@pytest.mark.slow
@pytest.mark.parametrize("average", [DECODE, FINE, LARGE, RAGGED])
def test_a_thousand_experts_fit(average):
    for capability in (80, 90):
        sound(capability, both(average, experts=1024), gate.MATRIX[capability])


@pytest.mark.parametrize("average", [DECODE, LARGE, RAGGED])
def test_a_t4_has_the_memory(average):
    for one in gate.launches(75, both(average, torch.float16, 64, 64)):
        assert one.kernel.metadata.shared <= 64 * 1024


def test_tables_name_every_class_for_both_precisions():
    for table in (EXPERT_FORWARD, EXPERT_DW):
        for capability in (75, 80, 89, 90):
            for bits in (16, 32):
                for average in (DECODE, FINE, LARGE, RAGGED):
                    assert table.has(capability, bits, average)


def test_few_kernels_for_all_lengths():
    """From one row to 256, and whatever the offsets hold: their values are not even there."""
    w, offsets = meta(E, D, F), meta(E, dtype=torch.int32)

    def launch():
        for rows in range(1, 257):
            forward(meta(rows, D), w, offsets)
            weight_gradient(meta(rows, D), meta(rows, F), offsets)

    found = gate.launches(90, launch)
    for name in ("expert_forward", "expert_dw"):
        kernels = {id(one.kernel) for one in found if one.name == name}
        assert len(found) == 512 and len(kernels) <= 3


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 1, 8, 2), (5, 8, 1, 2), (1, 16, 16, 1)])
def test_sizes_of_one_compile(sizes):
    """A size of 1 is a constant to the compiler, and so is a stride of 1."""
    rows, depth, width, experts = sizes

    def launch():
        x, dy, offsets = meta(rows, depth), meta(rows, width), meta(experts, dtype=torch.int32)
        forward(x, meta(experts, depth, width), offsets)
        weight_gradient(x, dy, offsets)

    sound(80, launch, "HMMA")


def test_large_tensors_are_addressed_in_64_bits():
    """Whatever can grow large is multiplied as a 64-bit number, in inputs and in the output."""
    least = {"expert_forward": 5, "expert_dw": 7}
    for one in gate.launches(90, both(LARGE)):
        wide = re.findall(r"arith\.muli [^\n]*: (?:tensor<[0-9x]*x)?i64", one.kernel.asm["ttir"])
        assert len(wide) >= least[one.name], one.name


def test_rows_on_16_bytes_are_loaded_16_bytes_at_a_time():
    """D = 1000 is a multiple of 8, not of the 16 that Triton looks for itself."""
    for one in gate.launches(80, both(LARGE, D=1000, F=520)):
        widths = set(
            re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, (0x)?(\d+)", one.kernel.asm["ptx"])
        )
        assert widths and {int(n, 16 if x else 10) for x, n in widths} == {16}, one.name
