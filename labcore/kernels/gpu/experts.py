"""The grouped matrix product on a GPU: one kernel for y and dX, whatever the distribution.

The grid holds as many row tiles as the worst distribution needs, and each finds its expert from
the offsets itself: the host never learns how many rows an expert has (the tiles of sorted rows are
those of MegaBlocks, Gale et al. 2023, and ScatterMoE, Tan et al. 2024).
"""

import contextlib

import torch
import triton
import triton.language as tl

from labcore.kernels.config import bits, capability, precision
from labcore.kernels.experts_tiles import BAND, EXPERT_FORWARD, RAGGED, rows_class


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _owner(offsets, tile, N, E, ROWS: tl.constexpr, SLOTS: tl.constexpr):
    """Expert, first row and end row of a row tile; expert E owns the rows past the last offset.

    Tiles never cross from one expert to the next: expert e has ⌈rows / ROWS⌉ of them, and the
    running sum of these counts says whose the tile is. Offsets are held within 0 … N and never
    decrease: whatever is in them, no row has two owners and none lies outside.
    """
    slot = tl.arange(0, SLOTS)
    before = tl.load(offsets + slot - 1, mask=(slot >= 1) & (slot <= E), other=0)
    before = tl.where(slot > E, N, tl.minimum(tl.maximum(before, 0), N)).to(tl.int32)
    upto = tl.load(offsets + slot, mask=slot < E, other=0)
    upto = tl.where(slot >= E, N, tl.minimum(tl.maximum(upto, 0), N)).to(tl.int32)
    start = tl.associative_scan(before, 0, _larger)
    end = tl.associative_scan(upto, 0, _larger)
    tiles = (end - start + ROWS - 1) // ROWS
    last_tile = tl.cumsum(tiles, 0)
    expert = tl.sum((last_tile <= tile).to(tl.int32), 0)
    mine = slot == expert
    first = tl.sum(tl.where(mine, start + (tile - last_tile + tiles) * ROWS, 0), 0)
    return expert, first, tl.sum(tl.where(mine, end, 0), 0)


@triton.jit
def said(n, ALIGN: tl.constexpr):
    """n, which the host has seen to be a multiple of ALIGN, in a form that tells the compiler.

    Triton itself looks for multiples of 16 elements only; 16 bytes are 8 of them in half precision.
    """
    return n // ALIGN * ALIGN


@triton.jit
def in_bands(program, down, across, BAND: tl.constexpr):
    """Row and column of a tile: BAND rows of tiles at a time, so that L2 holds what they read."""
    band = program // (BAND * across)
    high = tl.minimum(down - band * BAND, BAND)
    inside = program - band * BAND * across
    return band * BAND + inside % high, inside // high


@triton.jit(do_not_specialize=["N", "row_tiles"])
def expert_forward(
    x, w, offsets, y, N, D, F, E, row_tiles, x_row, x_col, w_expert, w_row, w_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, BAND: tl.constexpr,
    SLOTS: tl.constexpr, ALIGN: tl.constexpr, ACROSS: tl.constexpr, WHOLE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """y[n, f] = Σ_d x[n, d] · w[e(n), d, f]: one tile of ROWS rows of one expert × COLS columns."""
    D, F, x_row, w_expert = (
        said(D, ALIGN),
        said(F, ALIGN),
        said(x_row, ALIGN),
        said(w_expert, ALIGN),
    )
    if ACROSS:
        w_row = said(w_row, ALIGN)
    else:
        w_col = said(w_col, ALIGN)
    tile, column = in_bands(tl.program_id(0), row_tiles, tl.cdiv(F, COLS), BAND)
    expert, first, end = _owner(offsets, tile, N, E, ROWS, SLOTS)
    if expert > E:
        return  # the worst distribution would have needed this tile
    rows = first + tl.arange(0, ROWS)
    cols = column * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, DEPTH)
    # Rows past the expert's end read its last row again, and are not stored.
    read = tl.minimum(rows, end - 1).to(tl.int64)
    whose = tl.minimum(expert, E - 1).to(tl.int64)
    x_at = x + read[:, None] * x_row + depth[None, :].to(tl.int64) * x_col
    w_at = w + whose * w_expert
    w_at += depth[:, None].to(tl.int64) * w_row + cols[None, :].to(tl.int64) * w_col
    deep = tl.full([], DEPTH, tl.int64)
    acc = tl.zeros([ROWS, COLS], tl.float32)
    # Rows past the last offset have no expert: nothing is added up, and zero is stored.
    for i in range(0, tl.where(expert < E, tl.cdiv(D, DEPTH), 0)):
        if WHOLE:
            a = tl.load(x_at)
            b = tl.load(w_at)
        else:
            left = D - i * DEPTH
            a = tl.load(x_at, mask=depth[None, :] < left, other=0)
            b = tl.load(w_at, mask=(depth[:, None] < left) & (cols[None, :] < F), other=0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        x_at += deep * x_col
        w_at += deep * w_row
    y_at = y + rows[:, None].to(tl.int64) * F + cols[None, :]
    stored = (rows[:, None] < end) & (cols[None, :] < F)
    tl.store(y_at, acc.to(y.dtype.element_ty), mask=stored)


def on_device_of(x):
    """A `with` block in which kernels are launched on the GPU of `x`, whichever is current."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else contextlib.nullcontext()


def aligned(matrices, sizes):
    """Elements in 16 bytes where every row of every matrix starts on a multiple of them, else 1.

    Only then are 16 bytes loaded at once. Rows are what lies side by side: of the last two axes,
    the one whose stride is 1.
    """
    step = 16 // matrices[0].element_size()
    for m in matrices:
        *outer, near, last = m.stride()
        far = near if last == 1 else last
        whole = all(s % step == 0 for s in (*outer, far)) and 1 in (near, last)
        if not whole or m.data_ptr() % 16:
            return 1
    return step if all(s % step == 0 for s in sizes) else 1


def grid_rows(N, E, rows):
    """Row tiles that suffice for every distribution of N rows over E experts and the rest.

    Each of the experts that have rows, and the rest, leaves at most rows - 1 places empty.
    """
    return (N + min(E + 1, N) * (rows - 1)) // rows


def forward(x, w, offsets):
    """y [N, F] of x [N, D], w [E, D, F] with any strides and offsets [E]; see `expert_gemm`."""
    (N, D), (E, _, F) = x.shape, w.shape
    y = x.new_empty(N, F)
    if y.numel() == 0:
        return y
    if E == 0 or D == 0:
        return y.zero_()
    align = aligned((x, w), (D, F)) if x.stride(1) == 1 else 1
    tile = EXPERT_FORWARD.find(capability(x), bits(x), rows_class(N, E) if align > 1 else RAGGED)
    down = grid_rows(N, E, tile.rows)
    with on_device_of(x):
        expert_forward[(down * triton.cdiv(F, tile.cols),)](
            x, w, offsets.contiguous(), y, N, D, F, E, down, *x.stride(), *w.stride(),
            ROWS=tile.rows, COLS=tile.cols, DEPTH=tile.depth, BAND=BAND,
            SLOTS=max(triton.next_power_of_2(E + 1), 2), ALIGN=align, ACROSS=w.stride(2) == 1,
            WHOLE=D % tile.depth == 0 and F % tile.cols == 0, PRECISION=precision(x),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return y
