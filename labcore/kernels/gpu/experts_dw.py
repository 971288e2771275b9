"""The gradient of the experts' weights on a GPU: one product per expert over its own rows."""

import triton
import triton.language as tl

from labcore.kernels.config import bits, capability, precision
from labcore.kernels.experts_tiles import BAND, EXPERT_DW, RAGGED, rows_class
from labcore.kernels.gpu.experts import aligned, in_bands, on_device_of, said


@triton.jit
def _rows_of(offsets, expert, N, SLOTS: tl.constexpr):
    """First and end row of an expert; offsets are held as in the forward kernel."""
    slot = tl.arange(0, SLOTS)
    ends = tl.load(offsets + slot, mask=slot <= expert, other=0)
    ends = tl.minimum(tl.maximum(ends, 0), N).to(tl.int32)
    return tl.max(tl.where(slot < expert, ends, 0), 0), tl.max(ends, 0)


@triton.jit(do_not_specialize=["N"])
def expert_dw(
    x, dy, offsets, dw, N, D, F, x_row, x_col, dy_row, dy_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr,
    SLOTS: tl.constexpr, ALIGN: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dw[e, d, f] = Σ_n x[n, d] · dy[n, f] over the rows n of expert e: one tile of D × F."""
    D, F = said(D, ALIGN), said(F, ALIGN)
    x_row, dy_row = said(x_row, ALIGN), said(dy_row, ALIGN)
    down, across = tl.cdiv(D, ROWS), tl.cdiv(F, COLS)
    expert = tl.program_id(0) // (down * across)
    row, column = in_bands(tl.program_id(0) % (down * across), down, across, BAND)
    first, end = _rows_of(offsets, expert, N, SLOTS)
    rows = row * ROWS + tl.arange(0, ROWS)
    cols = column * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, DEPTH)
    token = (first + depth).to(tl.int64)
    x_at = x + rows[:, None].to(tl.int64) * x_col + token[None, :] * x_row
    dy_at = dy + token[:, None] * dy_row + cols[None, :].to(tl.int64) * dy_col
    deep = tl.full([], DEPTH, tl.int64)
    acc = tl.zeros([ROWS, COLS], tl.float32)
    # An expert without rows goes around no time, and stores zero.
    for done in range(0, end - first, DEPTH):
        left = end - first - done
        # Both sides are masked: zero times a neighbour's infinity would be NaN.
        if WHOLE:
            a = tl.load(x_at, mask=depth[None, :] < left, other=0)
            b = tl.load(dy_at, mask=depth[:, None] < left, other=0)
        else:
            a = tl.load(x_at, mask=(rows[:, None] < D) & (depth[None, :] < left), other=0)
            b = tl.load(dy_at, mask=(depth[:, None] < left) & (cols[None, :] < F), other=0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        x_at += deep * x_row
        dy_at += deep * dy_row
    dw_at = dw + expert.to(tl.int64) * D * F + rows[:, None].to(tl.int64) * F + cols[None, :]
    stored = (rows[:, None] < D) & (cols[None, :] < F)
    tl.store(dw_at, acc.to(dw.dtype.element_ty), mask=stored)


def weight_gradient(x, dy, offsets):
    """dW [E, D, F] of x [N, D], dy [N, F] with any strides and offsets [E]."""
    (N, D), F, E = x.shape, dy.shape[1], offsets.shape[0]
    dw = x.new_empty(E, D, F)
    if dw.numel() == 0:
        return dw
    if N == 0:
        return dw.zero_()
    rowwise = x.stride(1) == 1 == dy.stride(1)
    align = aligned((x, dy), (D, F)) if rowwise else 1
    tile = EXPERT_DW.find(capability(x), bits(x), rows_class(N, E) if align > 1 else RAGGED)
    tiles = triton.cdiv(D, tile.rows) * triton.cdiv(F, tile.cols)
    with on_device_of(x):
        expert_dw[(E * tiles,)](
            x, dy, offsets.contiguous(), dw, N, D, F, *x.stride(), *dy.stride(),
            ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth, BAND=BAND,
            SLOTS=max(triton.next_power_of_2(E), 2), ALIGN=align,
            WHOLE=D % tile.rows == 0 and F % tile.cols == 0, PRECISION=precision(x),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return dw
