"""Window attention backward, a window as one tile: dQ, dK, dV and dBias in one launch.

The weights P are made once more, since a window's rows of scores are short: nothing is kept from
the forward pass but q, k, v. With dP = dO·Vᵀ and δ the row sums of P ∘ dP,
    dS = P ∘ (dP - δ),  dQ = scale · dS·K,  dK = scale · dSᵀ·Q,  dV = Pᵀ·dO,  dBias = Σ_windows dS.
dBias is summed by every program over its own windows and written once; the partial sums are then
added in a fixed order, without atomics: two runs give the same bits.
"""

import torch
import triton
import triton.language as tl

from labcore.kernels.config import precision
from labcore.kernels.gpu.window_backward_blocks import backward_blocks
from labcore.kernels.gpu.window_forward import (
    LOG2E,
    load_tile,
    on_device,
    places,
    small_operands,
    softmax_row,
)
from labcore.kernels.window_tiles import BACKWARD_WHOLE, padded, readable, split, whole_tile


@triton.jit(do_not_specialize=["images", "share", "R"])
def window_backward(
    do, q, k, v, bias, mask, dq, dk, dv, partial, do_strides, q_strides, k_strides, v_strides,
    out_strides, scale, images, share, R, H, MM: tl.constexpr, K: tl.constexpr,
    SIDE: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One head of `share` windows that wear the same mask, with their part of dBias."""
    program = tl.program_id(0)
    h, r, first = program % H, program // H % R, program // (H * R) * share
    t, d = tl.arange(0, SIDE), tl.arange(0, WIDTH)
    inside = (t < MM)[:, None] & (d < K)[None, :]
    tile = load_tile(bias, mask, h, r, t, t, MM)
    dbias = tl.zeros([SIDE, SIDE], tl.float32)
    for image in range(first, tl.minimum(first + share, images)):
        n = r + image * R
        q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=inside, other=0.0)
        k_tile = tl.load(k + places(k_strides, n, h, t, d), mask=inside, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, t, d), mask=inside, other=0.0)
        do_tile = tl.load(do + places(do_strides, n, h, t, d), mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
        p, total = softmax_row(scores + tile)
        p /= total[:, None]
        narrow = p.to(q_tile.dtype)
        out = places(out_strides, n, h, t, d)
        grad = tl.dot(tl.trans(narrow), do_tile, input_precision=PRECISION)
        tl.store(dv + out, grad.to(dv.dtype.element_ty), mask=inside)
        ds = tl.dot(do_tile, tl.trans(v_tile), input_precision=PRECISION)
        ds = p * (ds - tl.sum(p * ds, 1)[:, None])
        if partial is not None:
            dbias += ds
        narrow = ds.to(q_tile.dtype)
        grad = tl.dot(narrow, k_tile, input_precision=PRECISION) * scale
        tl.store(dq + out, grad.to(dq.dtype.element_ty), mask=inside)
        grad = tl.dot(tl.trans(narrow), q_tile, input_precision=PRECISION) * scale
        tl.store(dk + out, grad.to(dk.dtype.element_ty), mask=inside)
    if partial is not None:
        at = program.to(tl.int64) * (MM * MM) + t[:, None] * MM + t[None, :]
        tl.store(partial + at, dbias, mask=(t < MM)[:, None] & (t < MM)[None, :])


def backward(grad, q, k, v, bias, mask, scale, need_bias):
    """The gradients of q, k, v [windows, MM, H, K], contiguous, and of bias [H, MM, MM] in float32
    ([0] unless `need_bias`); `grad` [windows, H, MM, K] of any strides."""
    windows, H, MM, asked = q.shape
    if q.numel() == 0:
        found = [q.new_empty(windows, MM, H, asked) for _ in range(3)]
        return *found, q.new_zeros((H, MM, MM) if need_bias else 0, dtype=torch.float32)
    grad, q, k, v = (readable(x) for x in (grad, q, k, v))
    found = [q.new_empty(windows, MM, H, q.shape[-1]) for _ in range(3)]
    bias, mask, R = small_operands(bias, mask)
    one_tile = whole_tile(BACKWARD_WHOLE, q)
    launch = backward_blocks if one_tile is None else _backward_whole
    dbias = launch(grad, q, k, v, bias, mask, R, scale, need_bias, found)
    return *(x[..., :asked].contiguous() for x in found), dbias


def _backward_whole(grad, q, k, v, bias, mask, R, scale, need_bias, found):
    """Fills dq, dk, dv in `found` [windows, MM, H, K]; gives dBias in float32, [0] without need."""
    windows, H, MM, K = q.shape
    tile = whole_tile(BACKWARD_WHOLE, q)
    share, programs = split(windows // R, R * H)
    partial = None
    if need_bias:
        partial = q.new_empty(programs // H, H, MM, MM, dtype=torch.float32)
    strides = (*(x.stride() for x in (grad, q, k, v)), found[0].transpose(1, 2).stride())
    with on_device(q):
        window_backward[(programs,)](
            grad, q, k, v, bias, mask, *found, partial, *strides, scale, windows // R, share, R, H,
            MM=MM, K=K, SIDE=tile.rows, WIDTH=padded(K), PRECISION=precision(q),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return partial.sum(0) if need_bias else q.new_empty(0, dtype=torch.float32)
