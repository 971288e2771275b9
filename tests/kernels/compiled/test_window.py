"""What the compiler makes of the window kernels: memory, registers, spills, matrix instructions."""

import re

import pytest
import torch

from labcore.kernels import window_tiles
from labcore.kernels.gpu.window_backward import backward
from labcore.kernels.gpu.window_forward import forward
from labcore.kernels.verify import gate
from tests.kernels.window_cases import some_mask

GPUS = [80, 89, 90]
HALF = [torch.float16, torch.bfloat16]


def launch(tokens, width, dtype, kind=bool, bias=torch.float32, windows=64, heads=3, late=0):
    """Forward and backward of packed q, k, v without data, starting `late` numbers into memory."""
    count = windows * tokens * 3 * heads * width
    whole = torch.empty(count + 16, dtype=dtype, device="meta")[late : late + count]
    q, k, v = whole.view(windows, tokens, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
    given = bias and torch.empty(heads, tokens, tokens, dtype=bias, device="meta")
    mask = some_mask(kind, tokens, 16)
    mask = None if mask is None else mask.to("meta")
    grad = forward(q, k, v, given, mask, 0.5).transpose(1, 2)
    return backward(grad, q, k, v, given, mask, 0.5, given is not None)


def matrix(capability, found):
    """The instruction that must be there: on 9.0 four warps multiply together from 64 rows on."""
    rows = found.arguments.get("SIDE") or found.arguments["ROWS"]
    half = found.arguments["q"].dtype in HALF
    if capability == 90 and not (half and rows >= 64):
        return "HMMA"
    return gate.MATRIX[capability]


def check(capability, *arguments, **options):
    found = gate.launches(capability, lambda: launch(*arguments, **options))
    # One tile: forward, backward. Blocks: forward, or tile; rows, cols, and bias where asked for.
    assert len(found) in (2, 3, 4)
    for one in found:
        wanted = matrix(capability, one)
        assert gate.faults(capability, one.kernel, wanted) == [], one.name
    return found


@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("tokens", [49, 144])
def test_swin(capability, tokens):
    """What Swin launches: bf16, heads of 32, bias, mask."""
    names = [one.name for one in check(capability, tokens, 32, torch.bfloat16)]
    if tokens == 49:
        assert names == ["window_forward", "window_backward"]


@pytest.mark.parametrize("capability", [80, 90])
def test_float32(capability):
    check(capability, 49, 32, torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize("width", [16, 24, 30, 32, 48, 64])
@pytest.mark.parametrize("tokens", [16, 25, 49, 64, 144])
def test_every_window_and_width(capability, tokens, width, dtype):
    check(capability, tokens, width, dtype, -100.0)


@pytest.mark.slow
@pytest.mark.parametrize("capability", GPUS)
@pytest.mark.parametrize("kind", [None, bool])
@pytest.mark.parametrize("bias", [None, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_every_kind_of_bias_and_mask(capability, dtype, bias, kind):
    check(capability, 49, 32, dtype, kind, bias)


def test_a_late_start_is_read_as_an_early_one():
    """One number into memory nothing is 16-byte aligned: copies are, and run the same kernel."""
    plain, late = (
        gate.launches(90, lambda at=at: launch(49, 32, torch.bfloat16, late=at)) for at in (0, 1)
    )
    assert [one.kernel for one in late] == [one.kernel for one in plain]


def test_the_number_of_windows_compiles_nothing_new():
    kernels = set()
    for windows in (16, 32, 48, 112, 1008, 4096):
        for one in gate.launches(90, lambda n=windows: launch(49, 32, torch.bfloat16, windows=n)):
            kernels.add((one.name, id(one.kernel)))
    # The strides change with nothing; H, MM and K are the model's.
    assert len(kernels) == 2


@pytest.mark.parametrize("capability", [80, 90])
def test_one_head_and_one_window_compile_too(capability):
    check(capability, 49, 32, torch.float16, None, torch.float32, windows=1, heads=1)


def test_offsets_are_multiplied_in_64_bits():
    """Window, head, token and channel of every tensor, times a stride each."""
    for tokens in (49, 144):
        for one in gate.launches(90, lambda t=tokens: launch(t, 32, torch.float16)):
            text = one.kernel.asm["ttir"]
            wide = re.findall(r"arith\.muli [^\n]*: (?:tensor<[0-9x]*x)?i64", text)
            tensors = len({"q", "k", "v", "do", "o", "dq", "dk", "dv"} & one.arguments.keys())
            assert len(wide) >= 3 * tensors - 6, one.name


def test_float32_is_never_multiplied_as_one_tf32_product():
    for one in gate.launches(80, lambda: launch(49, 16, torch.float32)):
        dots = [line for line in one.kernel.asm["ttir"].splitlines() if "tt.dot" in line]
        assert dots and all("inputPrecision = tf32x3" in line for line in dots)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("tokens", [49, 144])
def test_forced_onto_an_old_gpu_it_fits(tokens, dtype):
    """7.5 has 64 KiB, and no matrix unit that this compiler uses: never picked, but it runs."""
    for one in gate.launches(75, lambda: launch(tokens, 32, dtype)):
        assert gate.report(one.kernel).shared <= 64 * 1024


def test_bfloat16_is_refused_there():
    from labcore.kernels.config import assume

    with assume(75):
        assert "bfloat16" in window_tiles.refusal(torch.zeros(1, 1, 49, 32, dtype=torch.bfloat16))
        assert window_tiles.refusal(torch.zeros(1, 1, 49, 32, dtype=torch.float16)) is None
