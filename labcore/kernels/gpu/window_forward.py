"""Window attention forward: a window as one tile, or in blocks of keys with a running softmax.

q, k, v come with the strides of every axis, so that views of a packed projection need no copy, and
offsets are in 64 bits. Scores are in powers of two: exp2 is one instruction where exp is two.
"""

import math

import torch
import triton
import triton.language as tl

from labcore.kernels.config import precision
from labcore.kernels.window_tiles import (
    FORWARD,
    FORWARD_WHOLE,
    padded,
    readable,
    split,
    tile_of,
    whole_tile,
)

LOG2E = tl.constexpr(math.log2(math.e))
# All there are for a thread: told so, the assembler does not give some up for a few spilled bytes.
MOST_REGISTERS = 255


@triton.jit
def places(strides, n, h, t, d):
    """Offsets [t, d] of window n and head h in a tensor with these four strides."""
    here = n.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1]
    return here + t.to(tl.int64)[:, None] * strides[2] + d.to(tl.int64)[None, :] * strides[3]


@triton.jit
def load_tile(bias, mask, h, r, t, s, MM: tl.constexpr):
    """What is added to the scores of tokens t and s, in powers of two; -∞ for padded keys s."""
    inside = (t < MM)[:, None] & (s < MM)[None, :]
    at = t[:, None] * MM + s[None, :]
    tile = tl.where((s < MM)[None, :], 0.0, float("-inf")) + tl.zeros_like(at).to(tl.float32)
    if bias is not None:
        here = bias + h.to(tl.int64) * (MM * MM)
        tile += tl.load(here + at, mask=inside, other=0.0).to(tl.float32) * LOG2E
    if mask is not None:
        here = mask + r.to(tl.int64) * (MM * MM)
        if mask.dtype.element_ty == tl.uint8:  # a bool mask
            tile = tl.where(tl.load(here + at, mask=inside, other=0) != 0, tile, float("-inf"))
        else:
            tile += tl.load(here + at, mask=inside, other=0.0).to(tl.float32) * LOG2E
    return tile


@triton.jit
def softmax_row(scores):
    """exp2(scores - top) and its row sums, without a NaN where a row sees nothing."""
    top = tl.max(scores, 1)
    grown = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(grown, 1)
    return grown, tl.where(total == 0.0, 1.0, total)


@triton.jit(do_not_specialize=["images", "share", "R"])
def window_forward(
    q, k, v, bias, mask, o, q_strides, k_strides, v_strides, o_strides, scale, images, share, R, H,
    MM: tl.constexpr, K: tl.constexpr, SIDE: tl.constexpr, WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One head of `share` windows that wear the same mask: one window, one tile."""
    program = tl.program_id(0)
    h, r, first = program % H, program // H % R, program // (H * R) * share
    t, d = tl.arange(0, SIDE), tl.arange(0, WIDTH)
    inside = (t < MM)[:, None] & (d < K)[None, :]
    tile = load_tile(bias, mask, h, r, t, t, MM)
    for image in range(first, tl.minimum(first + share, images)):
        n = r + image * R
        q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=inside, other=0.0)
        k_tile = tl.load(k + places(k_strides, n, h, t, d), mask=inside, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, t, d), mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        p, total = softmax_row(scores * (scale * LOG2E) + tile)
        out = tl.dot(p.to(v_tile.dtype), v_tile, input_precision=PRECISION) / total[:, None]
        tl.store(o + places(o_strides, n, h, t, d), out.to(o.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["R"])
def window_forward_blocks(
    q, k, v, bias, mask, o, q_strides, k_strides, v_strides, o_strides, scale, R, H,
    MM: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of queries of one window and head: its keys come block by block."""
    program = tl.program_id(0)
    h, block = program % H, program // H % tl.cdiv(MM, ROWS)
    n = program // (H * tl.cdiv(MM, ROWS))
    t, d = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (t < MM)[:, None] & (d < K)[None, :]
    q_tile = tl.load(q + places(q_strides, n, h, t, d), mask=inside, other=0.0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, MM, COLS):
        s = start + tl.arange(0, COLS)
        there = (s < MM)[:, None] & (d < K)[None, :]
        k_tile = tl.load(k + places(k_strides, n, h, s, d), mask=there, other=0.0)
        v_tile = tl.load(v + places(v_strides, n, h, s, d), mask=there, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * (scale * LOG2E)
        scores += load_tile(bias, mask, h, n % R, t, s, MM)
        higher = tl.maximum(top, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        p, shrink = tl.exp2(scores - level[:, None]), tl.exp2(top - level)
        total = total * shrink + tl.sum(p, 1)
        out *= shrink[:, None]
        out += tl.dot(p.to(v_tile.dtype), v_tile, input_precision=PRECISION)
        top = higher
    out /= tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(o + places(o_strides, n, h, t, d), out.to(o.dtype.element_ty), mask=inside)


def forward(q, k, v, bias, mask, scale):
    """The outputs [windows, MM, H, K], contiguous, of q, k, v [windows, H, MM, K]."""
    windows, H, MM, asked = q.shape
    if q.numel() == 0:
        return q.new_empty(windows, MM, H, asked)
    q, k, v = (readable(x) for x in (q, k, v))
    K = q.shape[-1]
    o = q.new_empty(windows, MM, H, K)
    bias, mask, R = small_operands(bias, mask)
    rows = (q, k, v, o.transpose(1, 2))
    strides = tuple(x.stride() for x in rows)
    whole = whole_tile(FORWARD_WHOLE, q)
    tile = whole or tile_of(FORWARD, q)
    sizes = {"MM": MM, "K": K, "WIDTH": padded(K), "PRECISION": precision(q)}
    sizes |= {"num_warps": tile.warps, "num_stages": tile.stages}
    with on_device(q):
        if whole:
            share, programs = split(windows // R, R * H)
            window_forward[(programs,)](
                q, k, v, bias, mask, o, *strides, scale, windows // R, share, R, H,
                SIDE=tile.rows, **sizes,
            )  # fmt: skip
        else:
            programs = windows * H * triton.cdiv(MM, tile.rows)
            window_forward_blocks[(programs,)](
                q, k, v, bias, mask, o, *strides, scale, R, H, ROWS=tile.rows, COLS=tile.cols,
                maxnreg=MOST_REGISTERS, **sizes,
            )  # fmt: skip
    return o[..., :asked].contiguous()


def small_operands(bias, mask):
    """Bias and mask as the kernels read them, contiguous (a copy of a few kilobytes at most, where
    they were not), with the bool mask as bytes; and R."""
    bias = None if bias is None else bias.contiguous()
    if mask is None:
        return bias, None, 1
    mask = mask.contiguous()
    return bias, mask.view(torch.uint8) if mask.dtype == torch.bool else mask, mask.shape[0]


def on_device(x):
    """A block whose launches go to the GPU of `x`, whichever is the current one."""
    return torch.cuda.device(x.device if x.device.type == "cuda" else -1)
