"""Attention as two operators that torch knows: forward and backward, each eager or in Triton.

A custom operator is opaque to torch.compile, export and autograd, which see only what is declared
here: the results' shapes (`register_fake`) and the gradient (`register_autograd`). One body serves
CPU and CUDA; `choose` decides in it. Bounds are -1 and the softcap is 0 where there is none.
"""

import functools
import math

import torch

from labcore.kernels.config import capability
from labcore.kernels.dispatch import choose, register_gradient
from labcore.shapes import MOST

WIDTHS = (16, 128)
# Sums of two positions stay within 32 bits.
LONGEST = 2**30 - 1
# Scores held at one time by the eager form, as a number: 128 MiB of float32.
HELD = 2**25


def takes_width(width):
    """Whether Triton takes heads of this width."""
    return width % 8 == 0 and WIDTHS[0] <= width <= WIDTHS[1]


def refusal(q, k, v):
    """Why this call cannot run in Triton, in words, or None."""
    for name, width in (("K", q.shape[-1]), ("V", v.shape[-1])):
        if not takes_width(width):
            return f"head width {name}={width}; Triton takes multiples of 8 from 16 to 128"
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"{q.dtype}; Triton takes float16, bfloat16 and float32"
    if q.dtype == torch.bfloat16 and capability(q) < 80:
        return "bfloat16, which GPUs before compute capability 8.0 do not have; take float16"
    B, H, T = q.shape[:3]
    if max(T, k.shape[2]) > LONGEST or B * H * (max(T, k.shape[2]) // 16 + 1) > MOST:
        return f"{B}·{H} heads of {max(T, k.shape[2])} positions are more than one launch numbers"
    return None


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, left: int, right: int, scale: float,
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The pair o, lse."""
    if choose("attention", q, refusal(q, k, v)):
        from labcore.kernels.gpu.attention_forward import forward

        return forward(q, k, v, left, right, scale, softcap)
    with torch.no_grad():
        return eager_forward(q, k, v, left, right, scale, softcap)


def _backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    do: torch.Tensor, left: int, right: int, scale: float, softcap: float, for_q: bool,
    for_kv: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """dq, dk, dv; what is not asked for is a tensor of no elements."""
    if choose("attention", q, refusal(q, k, v)):
        from labcore.kernels.gpu.attention_backward import backward
    else:
        backward = eager_backward
    return backward(q, k, v, o, lse, do, left, right, scale, softcap, for_q, for_kv)


def _forward_fake(q, k, v, left, right, scale, softcap):
    lse = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(*q.shape[:3], v.shape[-1]), q.new_empty(q.shape[:3], dtype=lse)


def _backward_fake(q, k, v, o, lse, do, left, right, scale, softcap, for_q, for_kv):
    return (
        q.new_empty(q.shape if for_q else 0),
        k.new_empty(k.shape if for_kv else 0),
        v.new_empty(v.shape if for_kv else 0),
    )


attention_forward = torch.library.custom_op(
    "labcore::attention_forward", _forward, mutates_args=(), device_types=("cpu", "cuda")
)
attention_backward = torch.library.custom_op(
    "labcore::attention_backward", _backward, mutates_args=(), device_types=("cpu", "cuda")
)
attention_forward.register_fake(_forward_fake)
attention_backward.register_fake(_backward_fake)


def _save(ctx, inputs, output):
    q, k, v, *ctx.options = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, o, lse)


def _gradients(ctx, do, _):
    need_q, need_k, need_v = ctx.needs_input_grad[:3]
    if do is None:
        return (None,) * 7
    found = attention_backward(
        *ctx.saved_tensors, do, *ctx.options, for_q=need_q, for_kv=need_k or need_v
    )
    needed = zip(found, (need_q, need_k, need_v), strict=True)
    return *(x if need else None for x, need in needed), None, None, None, None


register_gradient(attention_forward, _gradients, setup_context=_save)


def autocasting(device):
    """Whether autocast is on for this type of device; some types do not have it."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _without_autocast(function):
    """`function` with autocast off: its products are float32 on purpose."""

    @functools.wraps(function)
    def run(q, *rest):
        if not autocasting(q.device.type):
            return function(q, *rest)
        with torch.autocast(q.device.type, enabled=False):
            return function(q, *rest)

    return run


@_without_autocast
def eager_forward(q, k, v, left, right, scale, softcap):
    """o, lse in torch's operations; torch differentiates it too, lse included."""
    outs, logs = [], []
    for t0, t1, seen in _blocks(q, k, left, right):
        scores, _ = _scores(q[:, :, t0:t1], k, seen, scale, softcap)
        top = scores.detach().amax(-1, keepdim=True)
        grown = (scores - top.masked_fill(top == -math.inf, 0)).exp()
        total = grown.sum(-1, keepdim=True)
        empty = total == 0
        weights = grown / total.masked_fill(empty, 1)
        outs.append(_shared(weights, _wide(v)).to(q.dtype))
        log = top + total.masked_fill(empty, 1).log()
        logs.append(log.masked_fill(empty, -math.inf).squeeze(-1))
    if outs:
        return torch.cat(outs, 2), torch.cat(logs, 2)
    # No query, or no key: zeros that autograd still ties to the inputs.
    nothing = q[..., :0].sum(-1, keepdim=True) + v[..., :0].sum() + k[..., :0].sum()
    lse = _wide(q).new_full(q.shape[:3], -math.inf)
    return nothing.expand(*q.shape[:3], v.shape[-1]).clone(), lse


@_without_autocast
def eager_backward(q, k, v, o, lse, do, left, right, scale, softcap, for_q, for_kv):
    """dq, dk, dv from o and lse, by the formulas of `gpu.attention_backward`."""
    wide = _wide(q).dtype
    dq = q.new_zeros(q.shape if for_q else 0, dtype=wide)
    dk, dv = (x.new_zeros(x.shape if for_kv else 0, dtype=wide) for x in (k, v))
    for t0, t1, seen in _blocks(q, k, left, right):
        rows = slice(t0, t1)
        grads = do[:, :, rows].to(wide)
        scores, slope = _scores(q[:, :, rows], k, seen, scale, softcap)
        log = lse[:, :, rows, None]
        weights = (scores - log.masked_fill(log == -math.inf, 0)).exp()
        delta = (o[:, :, rows].to(wide) * grads).sum(-1, keepdim=True)
        ds = weights * (_shared(grads, _wide(v).mT) - delta) * slope * scale
        if for_q:
            dq[:, :, rows] = _shared(ds, _wide(k))
        if for_kv:
            dk += _summed(ds, q[:, :, rows].to(wide), k.shape[1])
            dv += _summed(weights, grads, k.shape[1])
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def _blocks(q, k, left, right):
    """(t0, t1, mask [t1 - t0, S] or None) over blocks of queries; none without queries or keys."""
    (B, H, T, _), S = q.shape, k.shape[2]
    if B * H * T * S == 0:
        return
    step = max(1, HELD // (B * H * S))
    for t0 in range(0, T, step):
        t1 = min(t0 + step, T)
        at = torch.arange(t0 + S - T, t1 + S - T, device=q.device)[:, None]
        keys = torch.arange(S, device=q.device)
        seen = keys <= at + right if right >= 0 else None
        if left >= 0:
            near = keys >= at - left
            seen = near if seen is None else seen & near
        yield t0, t1, seen


def _scores(q, k, seen, scale, softcap):
    """Scores [B, H, t, S], -∞ where hidden, and their slope by the raw score: 1 - tanh², or 1."""
    scores, slope = _shared(_wide(q), _wide(k).mT) * scale, 1.0
    if softcap:
        bent = torch.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent * bent
    return (scores if seen is None else scores.masked_fill(~seen, -math.inf)), slope


def _shared(x, y):
    """x [B, H, t, a] times y [B, G, a, b]: the heads that share y are rows of one product."""
    B, H, t, _ = x.shape
    G = y.shape[1]
    return (x.reshape(B, G, H // G * t, y.shape[-2]) @ y).reshape(B, H, t, y.shape[-1])


def _summed(x, y, G):
    """xᵀy [B, G, a, b] of x [B, H, t, a] and y [B, H, t, b], summed over heads that share."""
    B, H, t, _ = x.shape
    x, y = (z.reshape(B, G, H // G * t, z.shape[-1]) for z in (x, y))
    return x.mT @ y


def _wide(x):
    """`x` in the precision that sums are taken in."""
    return x if x.dtype == torch.float64 else x.float()
