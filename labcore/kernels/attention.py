"""Attention with its logsumexp: the law as loops, the eager form, and the door that picks a kernel.

All three take q [B, H, T, K], k [B, G, S, K], v [B, G, S, V] with G dividing H (query head h reads
key/value head h·G//H) and return o [B, H, T, V] in q's dtype and lse [B, H, T], the logarithm of
the sum of exponentials of the visible scores, in float32 (float64 for float64 inputs):

    x = scale·q·k,  or  softcap·tanh(scale·q·k / softcap);   o = Σ exp(x - lse)·v

With `causal` the query t sees the keys s ≤ t + S - T: the last query sees the last key (aligned to
the bottom right). `window` narrows it: with `causal` a whole number W, the last W visible keys,
self included; without, a pair (left, right), the keys from t + S - T - left to t + S - T + right.
A query that sees nothing gives o = 0, lse = -∞ and zero gradients. Products are summed in float32
(float64 for float64); half precision is rounded once, at the end.
"""

import itertools
import math

import torch

from labcore.kernels import attention_ops
from labcore.shapes import check, flag, number, require, whole

HALF = (torch.float16, torch.bfloat16)


def attention(q, k, v, *, causal=False, window=None, scale=None, softcap=None):
    """The pair o [B, H, T, V], lse [B, H, T] of softmax(scale·QKᵀ)V (Dao 2023, algorithm 1).

    What runs is chosen by `labcore.kernels.use` and told by `labcore.kernels.why("attention")`:
    the Triton kernel on a GPU that has tensor cores for it, `attention_eager` elsewhere. Gradients
    of q, k and v go through kernels of their own; `lse` is not differentiable. Under autocast the
    inputs are cast to its dtype. `torch.func` transforms do not see through: use autograd.
    Raises ValueError for shapes and options that do not fit, TypeError for wrong dtypes.

    >>> q, k, v = torch.zeros(3, 4, 5, 6), torch.zeros(3, 2, 7, 6), torch.ones(3, 2, 7, 8)
    >>> o, lse = attention(q, k, v, causal=True, window=2)
    >>> list(o.shape), round(lse[0, 0, 0].item(), 4)
    ([3, 4, 5, 8], 0.6931)
    """
    device = q.device.type if isinstance(q, torch.Tensor) else "cpu"
    if attention_ops.autocasting(device):
        q, k, v = (_autocast(x, device) for x in (q, k, v))
    left, right, scale, cap = check_attention(q, k, v, causal, window, scale, softcap)
    return attention_ops.attention_forward(q, k, v, left, right, scale, cap)


def attention_naive(q, k, v, *, causal=False, window=None, scale=None, softcap=None):
    """The pair of `attention`, one query at a time: the law that every faster form is held to.

    >>> o, lse = attention_naive(*[torch.zeros(1, 1, 3, 2)] * 3, causal=True)
    >>> [round(x, 4) for x in lse[0, 0].tolist()]
    [0.0, 0.6931, 1.0986]
    """
    left, right, scale, cap = check_attention(q, k, v, causal, window, scale, softcap)
    (B, H, T, _), (G, S, V) = q.shape, v.shape[1:]
    kept = q.dtype
    q, k, v = (x.float() if x.dtype in HALF else x for x in (q, k, v))
    outs, logs = [], []
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        at, g = t + S - T, h * G // H
        first = max(0, at - left) if left >= 0 else 0
        end = min(S, at + right + 1) if right >= 0 else S
        scores = [scale * (q[b, h, t] * k[b, g, s]).sum() for s in range(first, end)]
        scores = [cap * torch.tanh(x / cap) if cap else x for x in scores]
        out, log = q.new_zeros(V), q.new_tensor(-math.inf)
        if scores:
            top = max(x.detach() for x in scores)
            grown = [(x - top).exp() for x in scores]
            total = sum(grown)
            log = top + total.log()
            out = sum(w / total * v[b, g, s] for w, s in zip(grown, range(first, end), strict=True))
        outs.append(out)
        logs.append(log)
    out = torch.stack(outs).reshape(B, H, T, V) if outs else q.new_zeros(B, H, T, V)
    return out.to(kept), torch.stack(logs).reshape(B, H, T) if logs else q.new_zeros(B, H, T)


def attention_eager(q, k, v, *, causal=False, window=None, scale=None, softcap=None):
    """The pair of `attention` in torch's own operations, a block of queries at a time.

    >>> o, lse = attention_eager(*[torch.zeros(1, 1, 3, 2)] * 3, window=(0, 1))
    >>> [round(x, 4) for x in lse[0, 0].tolist()]
    [0.6931, 0.6931, 0.0]
    """
    left, right, scale, cap = check_attention(q, k, v, causal, window, scale, softcap)
    return attention_ops.eager_forward(q, k, v, left, right, scale, cap)


def check_attention(q, k, v, causal, window, scale, softcap):
    """left and right (-1: no bound), scale and softcap (0: none) of a call that fits."""
    if not _plainly_fits(q, k, v):
        _check_closely(q, k, v)
    left, right = -1, (0 if flag("causal", causal) else -1)
    if window is not None and causal:
        left = whole("window", window) - 1
    elif window is not None:
        pair = isinstance(window, (tuple, list)) and len(window) == 2
        allowed = "a pair (left, right), or a whole number together with causal=True"
        if not pair:
            require(False, "window", repr(window), allowed)
        left, right = (whole("window", x, 0) for x in window)
    cap = 0.0 if softcap is None else number("softcap", softcap, above=0)
    factor = q.shape[-1] ** -0.5 if scale is None else number("scale", scale)
    return left, right, factor, cap


def _plainly_fits(q, k, v):
    """True in the usual case: nothing to say, and under torch.compile no size is put into words."""
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor)):
        return False
    if not isinstance(v, torch.Tensor):
        return False
    return (
        q.ndim == k.ndim == v.ndim == 4
        and q.is_floating_point()
        and q.dtype == k.dtype == v.dtype
        and q.device == k.device == v.device
        and q.shape[0] == k.shape[0] == v.shape[0]
        and k.shape[1:3] == v.shape[1:3]
        and q.shape[3] == k.shape[3] >= 1
        and _divides(k.shape[1], q.shape[1])
    )


def _divides(G, H):
    """Whether G key/value heads can serve H query heads."""
    return G == H or (G > 0 and H % G == 0)


def _check_closely(q, k, v):
    """None, or the error that says what does not fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        given = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        real = isinstance(x, torch.Tensor) and x.is_floating_point()
        require(real, name, given, "a floating-point tensor", TypeError)
        require(x.dtype == q.dtype, name, x.dtype, f"{q.dtype}, as q", TypeError)
        require(x.device == q.device, name, f"device {x.device}", f"{q.device}, as q")
    sizes = check(q, "B H T K", name="q")
    require(sizes["K"] >= 1, "q", f"shape {list(q.shape)}", "a width K of at least 1")
    keyed = check(k, "B G S K", name="k", B=sizes["B"], K=sizes["K"])
    check(v, "B G S V", name="v", B=sizes["B"], G=keyed["G"], S=keyed["S"])
    G, H = keyed["G"], sizes["H"]
    require(_divides(G, H), "k", f"{G} heads", f"a number of heads that divides the {H} of q")


def _autocast(x, device):
    """`x` in autocast's dtype, as torch casts the inputs of its own attention: float64 stays."""
    fits = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype(device)) if fits else x
