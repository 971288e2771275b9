"""The window kernels in the strict interpreter: every call here checks addresses, NaN and order."""

import math

import pytest
import torch

from labcore.kernels import use
from labcore.kernels.verify.strict import strict
from labcore.kernels.window import window_attention
from tests.kernels.interpreted.window_strict import TOLERANCE, case, check, in_triton
from tests.kernels.window_cases import leaves, relative_error, some_mask


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
