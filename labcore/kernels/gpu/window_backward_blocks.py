"""Window attention backward in blocks, for windows too large for one tile, and for float32.

Three launches, each summing over what it alone owns, so that none needs atomics:
rows   a block of queries: its softmax and δ, kept for the other two, and dQ;
cols   a block of keys: dK and dV, over the blocks of queries;
bias   a block of dBias, over windows: partial sums, added afterwards in a fixed order.
"""

import torch
import triton
import triton.language as tl

from labcore.kernels.config import precision
from labcore.kernels.gpu.window_forward import (
    LOG2E,
    MOST_REGISTERS,
    load_tile,
    on_device,
    places,
)
from labcore.kernels.window_tiles import BIAS, COLS, ROWS, padded, split, tile_of


@triton.jit(do_not_specialize=["R"])
def window_backward_rows(
    do, q, k, v, bias, mask, dq, level, delta, do_strides, q_strides, k_strides, v_strides,
    out_strides, scale, R, H, MM: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ of a block of queries, with log2 of the softmax's sum and δ of its rows."""
    program = tl.program_id(0)
    h, block = program % H, program // H % tl.cdiv(MM, ROWS)
    n = program // (H * tl.cdiv(MM, ROWS))
    t, d = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (t < MM)[:, None] & (d < K)[None, :]
    q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=inside, other=0.0)
    do_tile = tl.load(do + places(do_strides, n, h, t, d), mask=inside, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS], tl.float32)
    for start in range(0, MM, COLS):
        s = start + tl.arange(0, COLS)
        there = (s < MM)[:, None] & (d < K)[None, :]
        k_tile = tl.load(k + places(k_strides, n, h, s, d), mask=there, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, s, d), mask=there, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
        scores += load_tile(bias, mask, h, n % R, t, s, MM)
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        p, shrink = tl.exp2(scores - base[:, None]), tl.exp2(top - base)
        dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=PRECISION)
        total = total * shrink + tl.sum(p, 1)
        mean = mean * shrink + tl.sum(p * dp, 1)
        top = higher
    # A row that sees nothing: +∞ makes all its weights 0 from here on.
    sure = tl.where(total == 0.0, 1.0, total)
    top = tl.where(total == 0.0, float("inf"), top + tl.log2(sure))
    mean /= sure
    row = (n.to(tl.int64) * H + h) * MM + t
    tl.store(level + row, top, mask=t < MM)
    tl.store(delta + row, mean, mask=t < MM)
    grad = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, MM, COLS):
        s = start + tl.arange(0, COLS)
        there = (s < MM)[:, None] & (d < K)[None, :]
        k_tile = tl.load(k + places(k_strides, n, h, s, d), mask=there, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, s, d), mask=there, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
        scores += load_tile(bias, mask, h, n % R, t, s, MM)
        dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=PRECISION)
        ds = tl.exp2(scores - top[:, None]) * (dp - mean[:, None])
        grad += tl.dot(ds.to(k_tile.dtype), k_tile, input_precision=PRECISION)
    at = places(out_strides, n, h, t, d)
    tl.store(dq + at, (grad * scale).to(dq.dtype.element_ty), mask=inside)


@triton.jit
def weights_and_ds(
    q_tile, k_tile, v_tile, do_tile, tile, level, delta, row, t, scale,
    MM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """P and dS of a block, [queries t, keys], from what `window_backward_rows` kept."""
    top = tl.load(level + row + t, mask=t < MM, other=float("inf"))
    mean = tl.load(delta + row + t, mask=t < MM, other=0.0)
    scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
    p = tl.exp2(scores + tile - top[:, None])
    dp = tl.dot(do_tile, tl.trans(v_tile), input_precision=PRECISION)
    return p, p * (dp - mean[:, None])


@triton.jit(do_not_specialize=["R"])
def window_backward_cols(
    do, q, k, v, bias, mask, dk, dv, level, delta, do_strides, q_strides, k_strides, v_strides,
    out_strides, scale, R, H, MM: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK and dV of a block of keys of one window and head."""
    program = tl.program_id(0)
    h, block = program % H, program // H % tl.cdiv(MM, COLS)
    n = program // (H * tl.cdiv(MM, COLS))
    s, d = block * COLS + tl.arange(0, COLS), tl.arange(0, WIDTH)
    inside = (s < MM)[:, None] & (d < K)[None, :]
    k_tile = tl.load(k + places(k_strides, n, h, s, d), mask=inside, other=0.0)
    v_tile = tl.load(v + places(v_strides, n, h, s, d), mask=inside, other=0.0)
    row = (n.to(tl.int64) * H + h) * MM
    dk_sum = tl.zeros([COLS, WIDTH], tl.float32)
    dv_sum = tl.zeros([COLS, WIDTH], tl.float32)
    for start in range(0, MM, ROWS):
        t = start + tl.arange(0, ROWS)
        there = (t < MM)[:, None] & (d < K)[None, :]
        q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=there, other=0.0)
        do_tile = tl.load(do + places(do_strides, n, h, t, d), mask=there, other=0.0)
        tile = load_tile(bias, mask, h, n % R, t, s, MM)
        p, ds = weights_and_ds(
            q_tile, k_tile, v_tile, do_tile, tile, level, delta, row, t, scale, MM, PRECISION
        )
        dv_sum += tl.dot(tl.trans(p.to(q_tile.dtype)), do_tile, input_precision=PRECISION)
        dk_sum += tl.dot(tl.trans(ds.to(q_tile.dtype)), q_tile, input_precision=PRECISION)
    at = places(out_strides, n, h, s, d)
    tl.store(dk + at, (dk_sum * scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + at, dv_sum.to(dv.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["images", "share", "R"])
def window_backward_bias(
    do, q, k, v, bias, mask, partial, level, delta, do_strides, q_strides, k_strides, v_strides,
    scale, images, share, R, H, MM: tl.constexpr, K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of dBias of one head, summed over `share` windows that wear the same mask."""
    program = tl.program_id(0)
    UP: tl.constexpr = (MM + ROWS - 1) // ROWS
    ACROSS: tl.constexpr = (MM + COLS - 1) // COLS
    h, block, part = program % H, program // H % (UP * ACROSS), program // (H * UP * ACROSS)
    r, first = part % R, part // R * share
    t, d = block // ACROSS * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    s = block % ACROSS * COLS + tl.arange(0, COLS)
    here, there = (t < MM)[:, None] & (d < K)[None, :], (s < MM)[:, None] & (d < K)[None, :]
    tile = load_tile(bias, mask, h, r, t, s, MM)
    dbias = tl.zeros([ROWS, COLS], tl.float32)
    for image in range(first, tl.minimum(first + share, images)):
        n = r + image * R
        q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=here, other=0.0)
        do_tile = tl.load(do + places(do_strides, n, h, t, d), mask=here, other=0.0)
        k_tile = tl.load(k + places(k_strides, n, h, s, d), mask=there, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, s, d), mask=there, other=0.0)
        row = (n.to(tl.int64) * H + h) * MM
        p, ds = weights_and_ds(
            q_tile, k_tile, v_tile, do_tile, tile, level, delta, row, t, scale, MM, PRECISION
        )
        dbias += ds
    at = (part.to(tl.int64) * H + h) * (MM * MM) + t[:, None] * MM + s[None, :]
    tl.store(partial + at, dbias, mask=(t < MM)[:, None] & (s < MM)[None, :])


def backward_blocks(grad, q, k, v, bias, mask, R, scale, need_bias, found):
    """Fills dq, dk, dv in `found` [windows, MM, H, K]; gives dBias in float32, [0] without need."""
    windows, H, MM, K = q.shape
    dq, dk, dv = found
    level, delta = (q.new_empty(windows, H, MM, dtype=torch.float32) for _ in range(2))
    given = (grad, q, k, v, bias, mask)
    strides = tuple(x.stride() for x in given[:4])
    out = dq.transpose(1, 2).stride()
    sizes = {"MM": MM, "K": K, "WIDTH": padded(K), "PRECISION": precision(q)}
    with on_device(q):
        tile = _sized(ROWS, q)
        programs = windows * H * triton.cdiv(MM, tile["ROWS"])
        window_backward_rows[(programs,)](
            *given, dq, level, delta, *strides, out, scale, R, H, **sizes, **tile
        )
        tile = _sized(COLS, q)
        programs = windows * H * triton.cdiv(MM, tile["COLS"])
        window_backward_cols[(programs,)](
            *given, dk, dv, level, delta, *strides, out, scale, R, H, **sizes, **tile
        )
        if not need_bias:
            return q.new_empty(0, dtype=torch.float32)
        tile = _sized(BIAS, q)
        blocks = triton.cdiv(MM, tile["ROWS"]) * triton.cdiv(MM, tile["COLS"])
        share, programs = split(windows // R, R * H * blocks)
        partial = q.new_empty(programs // (H * blocks), H, MM, MM, dtype=torch.float32)
        window_backward_bias[(programs,)](
            *given, partial, level, delta, *strides, scale, windows // R, share, R, H,
            **sizes, **tile,
        )  # fmt: skip
    return partial.sum(0)


def _sized(table, q):
    """The tile of a table as keyword arguments of a launch."""
    tile = tile_of(table, q)
    options = {"num_warps": tile.warps, "num_stages": tile.stages, "maxnreg": MOST_REGISTERS}
    return {"ROWS": tile.rows, "COLS": tile.cols, **options}
