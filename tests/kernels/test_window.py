"""Window attention without Triton: three forms, one result; the operator; what is refused."""

import copy
import math

import pytest
import torch

from labcore.attention.window import relative_index, shift_mask, window_partition
from labcore.kernels.window import (
    window_attention,
    window_attention_eager,
    window_attention_naive,
)
from tests.kernels.window_cases import (
    MM,
    WINDOWS,
    H,
    K,
    R,
    by_loop,
    close,
    draw,
    gradients,
    leaves,
    packed,
    some_mask,
)

FORMS = [window_attention, window_attention_eager, window_attention_naive]
MASKS = [None, bool, -100.0, -math.inf]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scale", [None, 0.0, -0.7, 2])
def test_three_forms_equal_the_formula_with_all_gradients(kind, biased, scale):
    q, k, v = packed()
    bias, mask = draw(2, H, MM, MM) if biased else None, some_mask(kind)
    upstream = draw(3, WINDOWS, H, MM, K)
    factor = K**-0.5 if scale is None else scale
    inputs = leaves(q, k, v, bias)
    wanted = by_loop(*inputs, mask, factor)
    wanted_gradients = gradients(wanted, upstream, *inputs)
    for form in FORMS:
        inputs = leaves(q, k, v, bias)
        out = form(*inputs, mask, scale=scale)
        close(out, wanted)
        for found, truth in zip(gradients(out, upstream, *inputs), wanted_gradients, strict=True):
            close(found, truth)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [bool, -math.inf])
def test_a_token_that_sees_nothing_gets_zeros_and_passes_nothing(form, kind):
    inputs = leaves(*packed(), draw(2, H, MM, MM))
    out = form(*inputs, some_mask(kind))
    assert not out[::R, :, 1].any()
    assert out[1::R, :, 1].all()
    lost = torch.zeros_like(out)
    lost[::R, :, 1] = draw(3, WINDOWS // R, H, K)
    assert not any(g.any() for g in gradients(out, lost, *inputs))
    assert all(g.isfinite().all() for g in gradients(form(*inputs, some_mask(kind)), out, *inputs))


@pytest.mark.parametrize("form", FORMS)
def test_adding_minus_100_is_hiding_up_to_rounding(form):
    q, k, v = packed()
    hidden, added = some_mask(bool, empty=False), some_mask(-100.0, empty=False)
    close(form(q, k, v, None, added), form(q, k, v, None, hidden), 1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32_and_rounded_once(form, dtype):
    q, k, v = packed(dtype=dtype)
    q *= 200  # raw scores beyond what float16 can hold
    bias = draw(2, H, MM, MM, dtype=torch.float32)
    wide = [x.float() for x in (q, k, v)]
    wanted = window_attention_naive(*wide, bias, some_mask(bool), scale=1.0)
    found = form(q, k, v, bias, some_mask(bool), scale=1.0)
    assert found.dtype == dtype
    apart = (found.float() - wanted.to(dtype).float()).abs()
    assert bool((apart <= torch.finfo(dtype).eps * wanted.abs() + 1e-6).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_gradient_of_bias_is_summed_in_float32_whatever_its_dtype(dtype):
    """4,096 windows that each add 2^-10 or so: a sum in half precision would stand still."""
    windows = 4096
    q, k, v = packed(windows, 1, 4, 8, torch.float16)
    upstream = torch.ones(windows, 1, 4, 8, dtype=torch.float16) / 64
    v[..., 0, :] += 1
    bias = torch.zeros(1, 4, 4, dtype=dtype, requires_grad=True)
    (found,) = gradients(window_attention(q, k, v, bias), upstream, bias)
    (wide,) = leaves(bias.double())
    wanted = gradients(window_attention(q.double(), k.double(), v.double(), wide), upstream, wide)
    assert found.dtype == dtype
    close(found.double(), wanted[0], 2 * torch.finfo(dtype).eps * wanted[0].abs().max() + 1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.float32, torch.float64), (torch.float64, torch.float32)]
)
def test_bias_and_mask_of_another_dtype_are_cast_and_get_theirs_back(form, dtype, other):
    inputs = leaves(*packed(dtype=dtype), draw(2, H, MM, MM, dtype=other))
    out = form(*inputs, some_mask(-100.0).half())
    assert out.dtype == dtype
    found = gradients(out, torch.ones_like(out), *inputs)
    assert [x.dtype for x in found] == [dtype, dtype, dtype, other]


def test_the_gradient_reaches_the_table_of_relative_positions():
    table = draw(2, 25, H).requires_grad_()

    def bias():
        return table[relative_index(3)].permute(2, 0, 1)

    q, k, v = packed()
    upstream = draw(3, WINDOWS, H, MM, K)
    assert not bias().is_contiguous()
    (found,) = gradients(window_attention(q, k, v, bias()), upstream, table)
    (wanted,) = gradients(by_loop(q, k, v, bias(), None, K**-0.5), upstream, table)
    close(found, wanted)


def test_masks_stand_in_the_order_of_the_windows_of_an_image():
    """Two images at once are one image after the other; the mask is that of the shifted cut."""
    images = draw(0, 2, 6, 9, 3 * K)
    mask = shift_mask(6, 9, 3, 1)
    split = [
        [x[:, None] for x in window_partition(part.roll((-1, -1), (1, 2)), 3).split(K, -1)]
        for part in (images, images[:1], images[1:])
    ]
    both, *single = (window_attention(*parts, None, mask) for parts in split)
    close(both, torch.cat(single))


def test_only_what_is_asked_for_gets_a_gradient():
    q, k, v = packed()
    for asked in range(4):
        given = [q, k, v, draw(2, H, MM, MM)]
        inputs = [x.detach().requires_grad_(i == asked) for i, x in enumerate(given)]
        window_attention(*inputs).sum().backward()
        assert [x.grad is not None for x in inputs] == [i == asked for i in range(4)]
        (wanted,) = leaves(inputs[asked])
        others = [wanted if i == asked else x for i, x in enumerate(inputs)]
        by_loop(*others, None, K**-0.5).sum().backward()
        close(inputs[asked].grad, wanted.grad)


@pytest.mark.parametrize("sizes", [(0, H, MM, K), (WINDOWS, 0, MM, K), (WINDOWS, H, 0, K)])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_gives_nothing_out_and_gradients_of_zero(form, sizes):
    inputs = leaves(*(torch.zeros(sizes, dtype=torch.float64) for _ in range(3)))
    inputs += leaves(torch.zeros(sizes[1], sizes[2], sizes[2]))
    mask = torch.ones(R, sizes[2], sizes[2], dtype=torch.bool)
    out = form(*inputs, mask)
    assert list(out.shape) == list(sizes)
    for x, found in zip(inputs, gradients(out, torch.zeros_like(out), *inputs), strict=True):
        assert found.shape == x.shape and not found.any()


def test_inputs_stay_as_they_are_and_outputs_are_new():
    inputs = leaves(*packed(), draw(2, H, MM, MM))
    mask = some_mask(-math.inf)
    before = copy.deepcopy([*(x.detach() for x in inputs), mask])
    out = window_attention(*inputs, mask)
    found = gradients(out, torch.ones_like(out), *inputs)
    after = [*(x.detach() for x in inputs), mask]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    starts = {x.untyped_storage().data_ptr() for x in after}
    assert not starts & {x.untyped_storage().data_ptr() for x in (out, *found)}


def test_heads_join_without_a_copy():
    out = window_attention(*packed())
    assert out.transpose(1, 2).is_contiguous()


def test_gradients_by_finite_differences():
    inputs = leaves(*packed(4, 2, 4, 3), draw(2, 2, 4, 4))
    mask = some_mask(bool, 4, 2)
    assert torch.autograd.gradcheck(lambda *x: window_attention(*x, mask, scale=0.8), inputs)


def test_a_second_derivative_is_an_error_and_not_a_wrong_number():
    inputs = leaves(*packed())
    out = window_attention(*inputs)
    (first,) = torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first.sum(), inputs[0])


CASES = {
    "q": ({"q": [1.0]}, TypeError, "q: got list; allowed: a floating-point tensor"),
    "int": ({"q": torch.zeros(6, 2, 9, 5).long()}, TypeError, "q: got torch.int64"),
    "rank": ({"q": torch.zeros(6, 9, 5)}, ValueError, r"q: .*four axes, \[windows, H, MM, K\]"),
    "width": ({"q": torch.zeros(6, 2, 9, 0)}, ValueError, "q: .*a width K of at least 1"),
    "k": ({"k": torch.zeros(6, 2, 8, 5)}, ValueError, r"k: got shape \[6, 2, 8, 5\].*as q"),
    "v": ({"v": torch.zeros(6, 2, 9, 5)}, TypeError, "v: got torch.float32.*torch.float64, as q"),
    "device": (
        {"v": torch.zeros(6, 2, 9, 5, device="meta").double()},
        ValueError,
        "v: got device",
    ),
    "bias": ({"bias": torch.zeros(2, 9, 8)}, ValueError, r"bias: .*\[H=2, MM=9, MM=9\]"),
    "bias int": ({"bias": torch.zeros(2, 9, 9).int()}, TypeError, "bias: got torch.int32"),
    "mask": ({"mask": torch.zeros(3, 9, 8)}, ValueError, r"mask: .*\[R, MM=9, MM=9\]"),
    "mask rank": ({"mask": torch.zeros(9, 9)}, ValueError, r"mask: got shape \[9, 9\]"),
    "mask int": ({"mask": torch.zeros(3, 9, 9).int()}, TypeError, "mask: got torch.int32"),
    "R": ({"mask": torch.zeros(4, 9, 9)}, ValueError, "mask: got R=4 for 6 windows"),
    "no R": ({"mask": torch.zeros(0, 9, 9)}, ValueError, "mask: .*R of at least 1"),
    "learnt": (
        {"mask": torch.zeros(3, 9, 9, requires_grad=True)},
        ValueError,
        "mask: .*requires grad.*`bias`",
    ),
    "scale": ({"scale": math.nan}, ValueError, "scale: got nan"),
    "scale word": ({"scale": "1"}, ValueError, "scale: got '1'"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_named(form, case):
    given, error, told = CASES[case]
    q, k, v = packed()
    arguments = {"q": q, "k": k, "v": v, "bias": None, "mask": None, "scale": None} | given
    with pytest.raises(error, match=told):
        form(**arguments)
