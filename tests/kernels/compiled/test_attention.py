"""What the compiler makes of the attention kernels, for GPUs that are not here."""

import pytest
import torch

from labcore.kernels import attention_tiles as tiles
from labcore.kernels.gpu import attention_backward, attention_forward
from labcore.kernels.verify import gate

WIDTHS = [16, 24, 32, 40, 64, 72, 80, 96, 128]
HALF = (torch.float16, torch.bfloat16)
KERNELS = {f"attention_{name}_kernel" for name in ("forward", "delta", "dkdv", "dq")}
# Rows that cannot be copied 16 bytes at a time, in the three ways there are.
LAYOUTS = {
    "plain": lambda a, s, w, **o: torch.empty(*a, s, w, **o),
    "odd rows": lambda a, s, w, **o: torch.empty(*a, s, w + 1, **o)[..., :w],
    "every other": lambda a, s, w, **o: torch.empty(*a, s, 2 * w, **o)[..., ::2],
    "width first": lambda a, s, w, **o: torch.empty(*a, w, s, **o).mT,
}


def launches(
    capability, width=64, values=None, dtype=torch.bfloat16, layout="plain", T=1000, S=1000,
    heads=(2, 8, 2), softcap=0.0, scale=0.125,
):  # fmt: skip
    """Forward and backward on meta tensors: their launches, compiled."""
    B, H, G = heads
    values = values or width
    q, k, v, do = (
        LAYOUTS[layout]((B, n), length, wide, dtype=dtype, device="meta")
        for n, length, wide in ((H, T, width), (G, S, width), (G, S, values), (H, T, values))
    )
    rest = -1, 0, scale, softcap

    def both():
        o, lse = attention_forward.forward(q, k, v, *rest)
        attention_backward.backward(q, k, v, o, lse, do, *rest)

    return gate.launches(capability, both)


def matrix(capability, dtype, name):
    """The instruction that a kernel must have; δ multiplies no tiles."""
    return gate.MATRIX.get(capability) if dtype in HALF and name.count("delta") == 0 else None


def check(capability, dtype=torch.bfloat16, **options):
    found = launches(capability, dtype=dtype, **options)
    assert {x.name for x in found} == KERNELS
    for x in found:
        assert gate.faults(capability, x.kernel, matrix(capability, dtype, x.name)) == [], x.name


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_usual_widths_are_clean(capability, width):
    check(capability, width=width)


@pytest.mark.parametrize(
    ("capability", "options"),
    [
        (90, {"width": 80, "softcap": 30.0}),
        (90, {"width": 128, "layout": "odd rows"}),
        (80, {"width": 96, "dtype": torch.float16}),
        (90, {"width": 64, "dtype": torch.float32}),
        (80, {"width": 128, "dtype": torch.float32}),
    ],
    ids=str,
)
def test_a_sample_of_the_others_is_clean(capability, options):
    check(capability, **options)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("capability", [80, 89, 90])
class TestEveryConfiguration:
    @pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
    def test_plain(self, capability, dtype, width):
        check(capability, dtype=dtype, width=width)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_softcap_and_layouts(self, capability, dtype, width, layout):
        check(capability, dtype=dtype, width=width, layout=layout, softcap=30.0)

    def test_values_of_another_width(self, capability, width):
        check(capability, width=width, values=160 - width if width > 24 else 128, scale=-0.125)


@pytest.mark.parametrize(
    "width", [w if w == 64 else pytest.param(w, marks=pytest.mark.slow) for w in (16, 64, 128)]
)
@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str
)
def test_the_t4_has_room(width, dtype):
    for x in launches(75, width=width, dtype=dtype):
        assert gate.report(x.kernel).shared <= 64 * 1024, x.name
        # Without a matrix unit a whole row of products lives in registers: at 128 it may spill.
        assert width == 128 or gate.faults(75, x.kernel) == [], x.name


def test_every_table_has_a_tile_for_every_gpu_and_width():
    for table in (
        tiles.FORWARD, tiles.DKDV, tiles.DQ, tiles.DELTA,
        tiles.FORWARD_ROUGH, tiles.DKDV_ROUGH, tiles.DQ_ROUGH,
    ):  # fmt: skip
        for capability in (75, 80, 86, 89, 90):
            for bits in (16, 32):
                for width in (16, 32, 64, 128):
                    tile = table.find(capability, bits, width)
                    assert tile.rows >= 16 and (table is tiles.DELTA or tile.cols >= 16)


@pytest.mark.parametrize(("capability", "wanted"), [(90, "inputPrecision = tf32x3 "), (75, "")])
def test_float32_is_not_rounded_to_tf32(capability, wanted):
    for x in launches(capability, width=16, dtype=torch.float32):
        dots = [line for line in x.kernel.asm["ttir"].splitlines() if "tt.dot " in line]
        # Exact products are what is left unsaid.
        assert all(wanted in line and ("inputPrecision" in line) == bool(wanted) for line in dots)
        assert bool(dots) == (x.name != "attention_delta_kernel")


def test_offsets_have_64_bits():
    for x in launches(90):
        products = [line for line in x.kernel.asm["ttir"].splitlines() if "arith.muli" in line]
        assert sum(": i64 " in line for line in products) >= 2, x.name  # batch and head
        assert any("xi64>" in line for line in products), x.name  # rows


def test_heads_and_blocks_share_the_first_axis_of_the_grid():
    for x in launches(90, heads=(700, 100, 100), T=300, S=200, width=16):
        assert len(x.grid) == 1 and x.grid[0] % 70_000 == 0 and x.grid[0] > 70_000


@pytest.mark.parametrize(
    "width",
    [64, pytest.param(24, marks=pytest.mark.slow), pytest.param(80, marks=pytest.mark.slow)],
)
def test_one_kernel_serves_all_lengths(width):
    found = {}
    for T in range(1, 257):
        for x in launches(90, width=width, T=T, S=2 * T, heads=(1, 2, 2)):
            found.setdefault(x.name, set()).add(x.kernel.hash)
    assert set(found) == KERNELS
    assert all(len(kinds) <= 3 for kinds in found.values()), found


def test_masks_share_a_kernel():
    q = torch.empty(1, 2, 100, 16, dtype=torch.float16, device="meta")
    kinds = set()
    for left, right in ((-1, -1), (-1, 0), (15, 0), (3, 4)):
        (x,) = gate.launches(
            90, lambda b=(left, right): attention_forward.forward(q, q, q, *b, 0.1, 0.0)
        )
        kinds.add(x.kernel.hash)
    assert len(kinds) == 1


def test_empty_outputs_launch_nothing():
    assert launches(90, heads=(0, 8, 2)) == []
    assert {x.name for x in launches(90, T=0, width=16)} == {"attention_dkdv_kernel"}


def test_half_a_row_off_is_another_kernel():
    """A pointer that is not 16-byte aligned, as a view with an offset has it."""

    def odd(*sizes):
        count = torch.Size(sizes).numel()
        return torch.empty(count + 1, dtype=torch.float16, device="meta")[1:].view(sizes)

    assert odd(1, 2, 100, 16).data_ptr() % 16 == 2
    found = []
    for make in (odd, lambda *s: torch.empty(s, dtype=torch.float16, device="meta")):
        q = make(1, 2, 100, 16)
        (x,) = gate.launches(90, lambda q=q: attention_forward.forward(q, q, q, -1, 0, 0.1, 0.0))
        assert gate.faults(90, x.kernel, "HGMMA") == []
        found.append(x.kernel.asm["ptx"])
    wide = [text.count("cp.async.cg.shared.global") for text in found]
    assert wide[0] == 0 < wide[1]
