"""Attention backward in Triton: scores are computed again from q, k and the saved logsumexp.

Three kernels, no atomic additions, so the same inputs give the same bits (Dao 2023, algorithm 2,
with its one loop cut into two): δ = Σ_v o·do per query; dK and dV, one program per block of keys
that walks over the queries of every head that shares them; dQ, one program per block of queries
that walks over keys. With P = exp(scores - lse): dV = PᵀdO, dP = dO·Vᵀ, dS = P ∘ (dP - δ),
dQ = scale·dS·K and dK = scale·dSᵀQ; a softcap multiplies dS by 1 - tanh².
"""

import torch
import triton
import triton.language as tl

from labcore.kernels.attention_tiles import DELTA, DKDV, DKDV_ROUGH, DQ, DQ_ROUGH
from labcore.kernels.config import bits, capability, precision
from labcore.kernels.gpu.attention_forward import (
    LOG2E,
    bounds,
    factors,
    key_blocks,
    load_rows,
    on_device,
    padded,
    programs,
    smooth,
    stride_unit,
    strides,
    tanh,
    visible,
)

NOT_SPECIALIZED = [f"{x}_{i}" for x in ("q", "k", "v", "do") for i in ("b", "h", "t")]
NOT_SPECIALIZED += ["T", "S", "left", "right", "H", "G", "SHARE"]


@triton.jit(do_not_specialize=["do_b", "do_h", "do_t", "T", "H"])
def attention_delta_kernel(
    o, do, delta, do_b, do_h, do_t, do_v, T, H,
    V: tl.constexpr, VP: tl.constexpr, M: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """δ [B, H, T]: the product of output and its gradient, summed over the width."""
    blocks = tl.cdiv(T, M)
    head = tl.program_id(0) // blocks
    rows = tl.program_id(0) % blocks * M + tl.arange(0, M)
    do += ((head // H).to(tl.int64) * do_b + (head % H).to(tl.int64) * do_h) * UNIT
    start = head.to(tl.int64) * T
    outs = load_rows(o + start * V, rows, T, V, 1, V, VP, 1, True).to(tl.float32)
    grads = load_rows(do, rows, T, do_t, do_v, V, VP, UNIT, True).to(tl.float32)
    tl.store(delta + start + rows, tl.sum(outs * grads, 1), mask=rows < T)


@triton.jit
def query_blocks(n0, T, S, left, right, M: tl.constexpr, N: tl.constexpr):
    """`key_blocks`, the other way round: for keys n0 … n0+N-1 the queries that see them."""
    low = n0 - (S - T)
    high = tl.minimum(n0 + N, S) - 1 - (S - T)
    first = tl.maximum(low - right, 0) // M * M
    end = tl.minimum(tl.maximum(high + left + 1, 0), T)
    full_first = tl.cdiv(tl.maximum(high - right, 0), M) * M
    full_end = tl.minimum(tl.maximum(low + left + 1, 0), T) // M * M
    some = full_end > full_first
    full_first = tl.where(some, full_first, first)
    full_end = tl.where(some, full_end, first)
    others = tl.cdiv(tl.maximum(end - first, 0), M) - (full_end - full_first) // M
    return first, full_first, full_end, others


@triton.jit
def weights(x, lse, seen, scale, bend, SOFTCAP: tl.constexpr, MASKED: tl.constexpr):
    """P = exp(scores - lse) of raw products `x`, and tanh² of the softcap, where there is one."""
    slope = 0.0
    if SOFTCAP:
        x = tanh(x * bend)
        slope = x * x
    p = tl.exp2(x * scale - lse)
    if MASKED:  # after the exponential: the lse of a row that sees nothing is -inf
        p = tl.where(seen, p, 0.0)
    return p, slope


@triton.jit
def add_keys(dk, dv, keys, values, n0, q, do, lse, delta, q_t, q_k, do_t, do_v, T, S, left, right,
             scale, bend, first, jump, gap, count, K: tl.constexpr, V: tl.constexpr,
             KP: tl.constexpr, VP: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
             SOFTCAP: tl.constexpr, UNIT: tl.constexpr,
             MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """`dk` and `dv` with `count` blocks of queries added, from `first` on, leaping at `jump`."""
    for i in tl.range(0, count, disable_licm=True):  # what is hoisted would hold registers
        t0 = first + i * M
        if MASKED:
            t0 = tl.where(t0 < jump, t0, t0 + gap)
        rows = t0 + tl.arange(0, M)
        queries = load_rows(q, rows, T, q_t, q_k, K, KP, UNIT, MASKED)
        grads = load_rows(do, rows, T, do_t, do_v, V, VP, UNIT, MASKED)
        if MASKED:
            row_lse = tl.load(lse + rows, mask=rows < T, other=0.0) * LOG2E
            row_delta = tl.load(delta + rows, mask=rows < T, other=0.0)
        else:
            row_lse = tl.load(lse + rows) * LOG2E
            row_delta = tl.load(delta + rows)
        x = tl.dot(keys, tl.trans(queries), input_precision=PRECISION)  # [N, M]: all transposed
        cols = n0 + tl.arange(0, N)
        seen = visible(rows[None, :], cols[:, None], T, S, left, right)
        p, slope = weights(x, row_lse[None, :], seen, scale, bend, SOFTCAP, MASKED)
        dv = tl.dot(p.to(grads.dtype), grads, dv, input_precision=PRECISION)
        dp = tl.dot(values, tl.trans(grads), input_precision=PRECISION)
        ds = p * (dp - row_delta[None, :])
        if SOFTCAP:
            ds = ds * (1 - slope)
        dk = tl.dot(ds.to(queries.dtype), queries, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_dkdv_kernel(
    q, k, v, do, lse, delta, dk, dv, scale, bend, factor,
    q_b, q_h, q_t, q_k, k_b, k_h, k_t, k_k, v_b, v_h, v_t, v_v, do_b, do_h, do_t, do_v,
    T, S, left, right, H, G, SHARE,
    K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, SOFTCAP: tl.constexpr, SIGN: tl.constexpr, UNIT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(S, N)
    group = tl.program_id(0) // blocks
    n0 = tl.program_id(0) % blocks * N  # under a causal mask the first keys are seen most
    b = (group // G).to(tl.int64)
    g = (group % G).to(tl.int64)
    cols = n0 + tl.arange(0, N)
    keys = load_rows(k + (b * k_b + g * k_h) * UNIT, cols, S, k_t, k_k, K, KP, UNIT, True)
    values = load_rows(v + (b * v_b + g * v_h) * UNIT, cols, S, v_t, v_v, V, VP, UNIT, True)
    if SIGN != 1:
        keys = (keys * SIGN).to(keys.dtype)
    first, full_first, full_end, others = query_blocks(n0, T, S, left, right, M, N)
    dk_sum = tl.zeros([N, KP], tl.float32)
    dv_sum = tl.zeros([N, VP], tl.float32)
    for h in range(SHARE):
        h_q = (g * SHARE + h).to(tl.int64)
        q_at = q + (b * q_b + h_q * q_h) * UNIT
        do_at = do + (b * do_b + h_q * do_h) * UNIT
        line = (b * H + h_q) * T
        dk_sum, dv_sum = add_keys(
            dk_sum, dv_sum, keys, values, n0, q_at, do_at, lse + line, delta + line, q_t,
            q_k, do_t, do_v, T, S, left, right, scale, bend, full_first, 0, 0,
            (full_end - full_first) // M, K, V, KP, VP, M, N, SOFTCAP, UNIT, False,
            PRECISION,
        )  # fmt: skip
        dk_sum, dv_sum = add_keys(
            dk_sum, dv_sum, keys, values, n0, q_at, do_at, lse + line, delta + line, q_t,
            q_k, do_t, do_v, T, S, left, right, scale, bend, first, full_first,
            full_end - full_first, others, K, V, KP, VP, M, N, SOFTCAP, UNIT, True,
            PRECISION,
        )  # fmt: skip
    at = (group.to(tl.int64) * S + cols)[:, None]
    width = tl.arange(0, KP)[None, :]
    inside = (cols < S)[:, None] & (width < K)
    tl.store(dk + at * K + width, (dk_sum * factor).to(dk.dtype.element_ty), mask=inside)
    width = tl.arange(0, VP)[None, :]
    inside = (cols < S)[:, None] & (width < V)
    tl.store(dv + at * V + width, dv_sum.to(dv.dtype.element_ty), mask=inside)


@triton.jit
def add_queries(dq, queries, grads, row_lse, row_delta, t0, k, v, k_t, k_k, v_t, v_v, T, S, left,
                right, scale, bend, first, jump, gap, count, K: tl.constexpr, V: tl.constexpr,
                KP: tl.constexpr, VP: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                SOFTCAP: tl.constexpr, UNIT: tl.constexpr,
                MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """`dq` with `count` blocks of keys added, from `first` on, leaping `gap` at `jump`."""
    for i in tl.range(0, count, disable_licm=True):
        n0 = first + i * N
        if MASKED:
            n0 = tl.where(n0 < jump, n0, n0 + gap)
        cols = n0 + tl.arange(0, N)
        keys = load_rows(k, cols, S, k_t, k_k, K, KP, UNIT, MASKED)
        values = load_rows(v, cols, S, v_t, v_v, V, VP, UNIT, MASKED)
        x = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
        rows = t0 + tl.arange(0, M)
        seen = visible(rows[:, None], cols[None, :], T, S, left, right)
        p, slope = weights(x, row_lse[:, None], seen, scale, bend, SOFTCAP, MASKED)
        dp = tl.dot(grads, tl.trans(values), input_precision=PRECISION)
        ds = p * (dp - row_delta[:, None])
        if SOFTCAP:
            ds = ds * (1 - slope)
        dq = tl.dot(ds.to(keys.dtype), keys, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def attention_dq_kernel(
    q, k, v, do, lse, delta, dq, scale, bend, factor,
    q_b, q_h, q_t, q_k, k_b, k_h, k_t, k_k, v_b, v_h, v_t, v_v, do_b, do_h, do_t, do_v,
    T, S, left, right, H, G, SHARE,
    K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, SOFTCAP: tl.constexpr, SIGN: tl.constexpr, UNIT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(T, M)
    head = tl.program_id(0) // blocks
    t0 = (blocks - 1 - tl.program_id(0) % blocks) * M
    b = (head // H).to(tl.int64)
    h = (head % H).to(tl.int64)
    k += (b * k_b + h // SHARE * k_h) * UNIT
    v += (b * v_b + h // SHARE * v_h) * UNIT
    rows = t0 + tl.arange(0, M)
    queries = load_rows(q + (b * q_b + h * q_h) * UNIT, rows, T, q_t, q_k, K, KP, UNIT, True)
    grads = load_rows(do + (b * do_b + h * do_h) * UNIT, rows, T, do_t, do_v, V, VP, UNIT, True)
    if SIGN != 1:
        queries = (queries * SIGN).to(queries.dtype)
    line = head.to(tl.int64) * T + rows
    row_lse = tl.load(lse + line, mask=rows < T, other=0.0) * LOG2E
    row_delta = tl.load(delta + line, mask=rows < T, other=0.0)
    first, full_first, full_end, others = key_blocks(t0, T, S, left, right, M, N)
    dq_sum = tl.zeros([M, KP], tl.float32)
    dq_sum = add_queries(
        dq_sum, queries, grads, row_lse, row_delta, t0, k, v, k_t, k_k, v_t, v_v, T,
        S, left, right, scale, bend, full_first, 0, 0, (full_end - full_first) // N, K, V, KP, VP,
        M, N, SOFTCAP, UNIT, False, PRECISION,
    )  # fmt: skip
    dq_sum = add_queries(
        dq_sum, queries, grads, row_lse, row_delta, t0, k, v, k_t, k_k, v_t, v_v, T,
        S, left, right, scale, bend, first, full_first, full_end - full_first, others, K, V, KP,
        VP, M, N, SOFTCAP, UNIT, True, PRECISION,
    )  # fmt: skip
    width = tl.arange(0, KP)[None, :]
    inside = (rows < T)[:, None] & (width < K)
    at = dq + line[:, None] * K + width
    tl.store(at, (dq_sum * factor).to(dq.dtype.element_ty), mask=inside)


def backward(q, k, v, o, lse, do, left, right, scale, softcap, for_q=True, for_kv=True):
    """The gradients dq [B, H, T, K], dk [B, G, S, K] and dv [B, G, S, V] for `do` [B, H, T, V].

    What is not asked for is not computed: a tensor of no elements.
    """
    dq, dk, dv = q.new_empty(0), k.new_empty(0), v.new_empty(0)
    delta = launch_delta(o, do)
    if for_kv:
        dk, dv = launch_dkdv(q, k, v, do, lse, delta, left, right, scale, softcap)
    if for_q:
        dq = launch_dq(q, k, v, do, lse, delta, left, right, scale, softcap)
    return dq, dk, dv


def launch_delta(o, do):
    """δ [B, H, T], float32."""
    B, H, T, V = o.shape
    delta = o.new_empty(B, H, T, dtype=torch.float32)
    if delta.numel() == 0:
        return delta
    tile = DELTA.find(capability(o), bits(o), padded(V))
    unit = stride_unit(do)
    with on_device(o):
        attention_delta_kernel[programs(B * H, T, tile.rows)](
            o, do, delta, *strides(do, unit), T, H, V=V, VP=padded(V), M=tile.rows, UNIT=unit,
            num_warps=tile.warps,
        )  # fmt: skip
    return delta


def launch_dkdv(q, k, v, do, lse, delta, left, right, scale, softcap):
    """The gradients of keys and values, summed over the heads that share them."""
    B, G, S, _ = k.shape
    dk, dv = k.new_empty(k.shape), v.new_empty(v.shape)
    if B * G * S == 0:
        return dk, dv
    tile, values, options = settings((DKDV, DKDV_ROUGH), q, k, v, do, left, right, scale, softcap)
    with on_device(q):
        attention_dkdv_kernel[programs(B * G, S, tile.cols)](
            q, k, v, do, lse, delta, dk, dv, *values, **options
        )
    return dk, dv


def launch_dq(q, k, v, do, lse, delta, left, right, scale, softcap):
    """The gradient of the queries."""
    B, H, T, _ = q.shape
    dq = q.new_empty(q.shape)
    if dq.numel() == 0:
        return dq
    tile, values, options = settings((DQ, DQ_ROUGH), q, k, v, do, left, right, scale, softcap)
    with on_device(q):
        attention_dq_kernel[programs(B * H, T, tile.rows)](
            q, k, v, do, lse, delta, dq, *values, **options
        )
    return dq


def settings(tables, q, k, v, do, left, right, scale, softcap):
    """The tile, the numbers that both kernels take behind their tensors, and their constants."""
    (H, T, K), (G, S, V) = q.shape[1:], v.shape[1:]
    unit = stride_unit(q, k, v, do)
    table = tables[0] if smooth(q, k, v, do) else tables[1]
    tile = table.find(capability(q), bits(q), padded(max(K, V)))
    sign, factor, bend = factors(scale, softcap)
    values = [factor, bend, float(scale)]
    for x in (q, k, v, do):
        values += strides(x, unit)
    values += [T, S, *bounds(T, S, left, right), H, G, H // G]
    options = {"K": K, "V": V, "KP": padded(K), "VP": padded(V), "M": tile.rows, "N": tile.cols}
    options |= {"SOFTCAP": bool(softcap), "SIGN": sign, "UNIT": unit}
    options |= {"PRECISION": precision(q), "num_warps": tile.warps, "num_stages": tile.stages}
    return tile, values, options
