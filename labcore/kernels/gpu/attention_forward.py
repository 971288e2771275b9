"""Attention forward in Triton: one program per block of queries, one pass over the keys it sees.

Dao 2023 (FlashAttention-2), algorithm 1: the maximum, the sum of exponentials and the weighted sum
of values are carried along and rescaled when the maximum grows, so the scores live in registers
only. Exponentials are to the base 2, with log2(e) folded into the scale: that is the instruction
the hardware has. Offsets of batches, heads and tokens are 64 bits wide; every strided axis may
have any stride. Heads and blocks share grid axis 0, the only one that may exceed 65,535.
"""

import contextlib

import torch
import triton
import triton.language as tl

from labcore.kernels.attention_tiles import FORWARD, FORWARD_ROUGH
from labcore.kernels.config import bits, capability, precision

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# The smallest normal float32.
SMALLEST = 2.0**-126
NOT_SPECIALIZED = [f"{x}_{i}" for x in ("q", "k", "v") for i in ("b", "h", "t")]
NOT_SPECIALIZED += ["T", "S", "left", "right", "H", "SHARE"]


@triton.jit
def load_rows(base, rows, last, s_row, s_col, W: tl.constexpr, WP: tl.constexpr,
              UNIT: tl.constexpr, MASK: tl.constexpr):  # fmt: skip
    """A tile [rows, WP] with zeros past `last` (only if MASK) and past the width W."""
    cols = tl.arange(0, WP)
    # In 64 bits from the start: a stride may fit 32 bits, and its multiples not.
    at = base + rows.to(tl.int64)[:, None] * s_row * UNIT + cols.to(tl.int64)[None, :] * s_col
    if MASK and W < WP:
        return tl.load(at, mask=(rows < last)[:, None] & (cols < W)[None, :], other=0.0)
    elif MASK:
        return tl.load(at, mask=(rows < last)[:, None], other=0.0)
    elif W < WP:
        return tl.load(at, mask=(cols < W)[None, :], other=0.0)
    else:
        return tl.load(at)


@triton.jit
def tanh(x):
    """tanh without a library: (1 - e)/(1 + e) with e = exp(-2|x|), which cannot overflow.

    Near 0 the difference would cancel; there the series x - x³/3 + 2x⁵/15 - 17x⁷/315 is exact to
    rounding.
    """
    e = tl.exp2(tl.abs(x) * (-2 * LOG2E))
    far = (1 - e) / (1 + e)
    y = x * x
    near = x * (1 + y * (-1 / 3 + y * (2 / 15 + y * (-17 / 315))))
    return tl.where(y < 0.01, near, tl.where(x < 0, -far, far))


@triton.jit
def visible(rows, cols, T, S, left, right):
    """Who sees whom, for `rows` and `cols` of any broadcastable shapes: the last row ends at S."""
    at = rows + (S - T)
    return (rows < T) & (cols < S) & (cols <= at + right) & (cols >= at - left)


@triton.jit
def key_blocks(t0, T, S, left, right, M: tl.constexpr, N: tl.constexpr):
    """For queries t0 … t0+M-1: the first key that one of them sees, first and end of the blocks
    that all see, and the number of the other blocks.

    Keys outside are never loaded; keys that all these queries see need no mask.
    """
    low = t0 + (S - T)
    high = tl.minimum(t0 + M, T) - 1 + (S - T)
    first = tl.maximum(low - left, 0) // N * N
    end = tl.minimum(tl.maximum(high + right + 1, 0), S)
    full_first = tl.cdiv(tl.maximum(high - left, 0), N) * N
    full_end = tl.minimum(tl.maximum(low + right + 1, 0), S) // N * N
    some = full_end > full_first
    full_first = tl.where(some, full_first, first)
    full_end = tl.where(some, full_end, first)
    others = tl.cdiv(tl.maximum(end - first, 0), N) - (full_end - full_first) // N
    return first, full_first, full_end, others


@triton.jit
def attend_blocks(acc, total, top, q, t0, k, v, k_t, k_k, v_t, v_v, T, S, left, right, scale, bend,
                  first, jump, gap, count, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr,
                  VP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SOFTCAP: tl.constexpr,
                  UNIT: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """`acc`, `total`, `top` after `count` blocks of keys from `first` on, leaping `gap` at `jump`.

    The leap is over the blocks that need no mask: both ends of a window are one loop.
    """
    for i in tl.range(0, count, disable_licm=True):  # what is hoisted would hold registers
        n0 = first + i * N
        if MASKED:
            n0 = tl.where(n0 < jump, n0, n0 + gap)
        cols = n0 + tl.arange(0, N)
        keys = load_rows(k, cols, S, k_t, k_k, K, KP, UNIT, MASKED)
        x = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
        if SOFTCAP:
            x = tanh(x * bend)
        if MASKED:
            rows = t0 + tl.arange(0, M)
            seen = visible(rows[:, None], cols[None, :], T, S, left, right)
            x = tl.where(seen, x, float("-inf"))
        # scale ≥ 0: the largest product is the largest score, and scaling joins the subtraction.
        higher = tl.maximum(top, tl.max(x, 1) * scale)
        shift = higher
        if MASKED:  # a row that has seen nothing yet must not compute -inf - (-inf)
            shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(x * scale - shift[:, None])
        shrink = tl.exp2(top - shift)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        values = load_rows(v, cols, S, v_t, v_v, V, VP, UNIT, MASKED)
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision=PRECISION)
        top = higher
    return acc, total, top


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_forward_kernel(
    q, k, v, o, lse, scale, bend,
    q_b, q_h, q_t, q_k, k_b, k_h, k_t, k_k, v_b, v_h, v_t, v_v,
    T, S, left, right, H, SHARE,
    K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, SOFTCAP: tl.constexpr, SIGN: tl.constexpr, UNIT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(T, M)
    head = tl.program_id(0) // blocks
    # The last queries see most under a causal mask: long programs first, short ones fill the end.
    t0 = (blocks - 1 - tl.program_id(0) % blocks) * M
    b = (head // H).to(tl.int64)
    h = (head % H).to(tl.int64)
    q += (b * q_b + h * q_h) * UNIT
    k += (b * k_b + h // SHARE * k_h) * UNIT
    v += (b * v_b + h // SHARE * v_h) * UNIT
    rows = t0 + tl.arange(0, M)
    queries = load_rows(q, rows, T, q_t, q_k, K, KP, UNIT, True)
    if SIGN != 1:
        queries = (queries * SIGN).to(queries.dtype)
    first, full_first, full_end, others = key_blocks(t0, T, S, left, right, M, N)
    acc = tl.zeros([M, VP], tl.float32)
    total = tl.zeros([M], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    acc, total, top = attend_blocks(
        acc, total, top, queries, t0, k, v, k_t, k_k, v_t, v_v, T, S, left, right,
        scale, bend, full_first, 0, 0, (full_end - full_first) // N, K, V, KP, VP, M, N, SOFTCAP,
        UNIT, False, PRECISION,
    )  # fmt: skip
    acc, total, top = attend_blocks(
        acc, total, top, queries, t0, k, v, k_t, k_k, v_t, v_v, T, S, left, right,
        scale, bend, first, full_first, full_end - full_first, others, K, V, KP, VP, M, N, SOFTCAP,
        UNIT, True, PRECISION,
    )  # fmt: skip
    empty = total == 0
    total = tl.where(empty, 1.0, total)
    acc = acc / total[:, None]
    at = head.to(tl.int64) * T + rows
    cols = tl.arange(0, VP)
    inside = (rows < T)[:, None] & (cols < V)[None, :]
    tl.store(o + at[:, None] * V + cols[None, :], acc.to(o.dtype.element_ty), mask=inside)
    found = tl.where(empty, float("-inf"), (top + tl.log2(total)) * LN2)
    tl.store(lse + at, found, mask=rows < T)


def forward(q, k, v, left, right, scale, softcap):
    """The pair o [B, H, T, V] and lse [B, H, T] (float32); see `labcore.kernels.attention`.

    `left` and `right` bound the visible keys, -1 standing for no bound; `softcap` = 0 for none.
    """
    B, H, T, K = q.shape
    G, S, V = v.shape[1:]
    o = q.new_empty(B, H, T, V)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    if lse.numel() == 0:
        return o, lse
    unit = stride_unit(q, k, v)
    table = FORWARD if smooth(q, k, v) else FORWARD_ROUGH
    tile = table.find(capability(q), bits(q), padded(max(K, V)))
    sign, factor, bend = factors(scale, softcap)
    with on_device(q):
        attention_forward_kernel[programs(B * H, T, tile.rows)](
            q, k, v, o, lse, factor, bend,
            *strides(q, unit), *strides(k, unit), *strides(v, unit),
            T, S, *bounds(T, S, left, right), H, H // G,
            K=K, V=V, KP=padded(K), VP=padded(V), M=tile.rows, N=tile.cols,
            SOFTCAP=bool(softcap), SIGN=sign, UNIT=unit, PRECISION=precision(q),
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return o, lse


def padded(width):
    """The power of two, at least 16, that a tile of this width is padded to."""
    return max(16, triton.next_power_of_2(width))


def stride_unit(*tensors):
    """8 if every stride over batch, heads and tokens is a multiple of 8, else 1.

    The kernel multiplies strides by this constant, so the compiler knows rows of 16 bytes to be
    aligned by construction, not by a hint, and needs no variant of the kernel per length.
    """
    return 8 if all(s % 8 == 0 for x in tensors for s in x.stride()[:3]) else 1


def smooth(*tensors):
    """Whether rows are copied 16 bytes at a time, with no lane left over: the tables' first choice.

    Otherwise addresses and masks take registers of their own, and the tiles must be smaller.
    """
    return stride_unit(*tensors) == 8 and all(
        x.stride(3) == 1 and x.data_ptr() % 16 == 0 and x.shape[3] == padded(x.shape[3])
        for x in tensors
    )


def strides(x, unit):
    """The four strides of `x`, the first three in units."""
    return *(s // unit for s in x.stride()[:3]), x.stride(3)


def bounds(T, S, left, right):
    """`left` and `right`, with a number that hides nothing where there is no bound.

    Neither can then make a position leave 32 bits, and one kernel serves every mask.
    """
    return (left if 0 <= left < S else S), (right if 0 <= right < T else T)


def factors(scale, softcap):
    """(sign, scale, bend) of the kernels: scores in powers of 2 are sign·scale·q·k, or with a
    softcap c, for which bend = scale/c, sign·c·log2(e)·tanh(bend·q·k).

    The sign goes to q: with a scale above 0 the largest product is the largest score. A factor that
    float32 would round to 0 is sign 0: the products are 0 then, and hidden scores stay -inf.
    """
    size, bend = abs(scale) * LOG2E.value, 0.0
    if softcap:
        size, bend = softcap * LOG2E.value, abs(scale) / softcap
    if scale == 0 or size < SMALLEST:
        return 0, 1.0, bend
    return (1 if scale > 0 else -1), size, bend


def programs(heads, T, rows):
    """The grid: heads and blocks folded on axis 0, the only one that may exceed 65,535."""
    return (heads * triton.cdiv(T, rows),)


def on_device(x):
    """A context in which the GPU of `x` is the current one, whichever it was."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
