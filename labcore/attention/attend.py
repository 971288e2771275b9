"""The attention formula softmax(QKᵀ/√d_k)V: once as loops, the law, and once as torch runs it.

Both take q [..., T, K], k [..., S, K] and v [..., S, V] with equal leading axes: nothing is
repeated silently. The one exception is named: q [B, H, T, K] with k and v of G heads, G dividing
H, lets the query heads h·G//H share one key/value head (Ainslie et al. 2023, section 2.2).

Choices where the papers are silent: a query that sees no key gets zeros and zero gradients; with
S ≠ T `causal` is aligned to the bottom right; no keys at all (S = 0) also gives zeros.
NaN and infinity that a query sees pass through. Do not rely on hiding to stop them: the loops leave
a hidden key or value out, the form with weights leaves only hidden keys out (0 · NaN is NaN), and
torch's fused form may let both in. Overwrite padding with zeros before attention, not after.
Half precision is multiplied and summed in float32 and rounded once, at the end.
On a GPU for which `labcore.kernels` picks its own kernel, `attend` without a mask runs that one.
"""

import itertools

import torch
import torch.nn.functional as F

from labcore.attention.masks import causal_mask, check_mask
from labcore.attention.scores import check_alike, check_float, checked_scale, softmax
from labcore.kernels.attention import attention
from labcore.kernels.attention_ops import refusal, takes_width
from labcore.kernels.dispatch import choose
from labcore.shapes import flag, require

HALF = (torch.float16, torch.bfloat16)


def attend(q, k, v, mask=None, *, causal=False, scale=None, need_weights=False):
    """Outputs [..., T, V] of softmax(scale · QKᵀ)V (Vaswani et al. 2017, eq. 1); with
    `need_weights` the pair of outputs and weights [..., T, S], one map for every query head.

    `mask` is bool, True = may attend, of shape [T, S] or of the scores' rank with sizes or 1.
    `scale` is 1/√K unless given. Without weights this *is* `F.scaled_dot_product_attention` (or, on
    a GPU, the kernel of `labcore.kernels`), fused forms that never write the scores to memory;
    weights asked for cost that advantage.
    Raises ValueError for shapes that do not fit and TypeError for wrong dtypes.

    >>> q, k, v = torch.zeros(3, 4, 5, 6), torch.zeros(3, 2, 7, 6), torch.ones(3, 2, 7, 8)
    >>> out, weights = attend(q, k, v, causal=True, need_weights=True)
    >>> list(out.shape), list(weights.shape)
    ([3, 4, 5, 8], [3, 4, 5, 7])
    """
    grouped = check_attend(q, k, v, mask, scale, causal)
    if flag("need_weights", need_weights):
        return _explicit(q, k, v, _visible(q, k, mask, causal), scale, grouped)
    T, S = q.shape[-2], k.shape[-2]
    if mask is None and _kernel_chosen(q, k, v):
        return _by_kernel(q, k, v, causal, scale)
    if mask is None and (not causal or T == S or T == 1):
        # torch aligns is_causal to the top left, which is the same thing only when T = S; and one
        # query alone is the last one: it sees every key.
        square = causal and T == S
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=square, scale=scale, enable_gqa=grouped
        )
    mask = _visible(q, k, mask, causal)
    if q.device.type == "cpu":
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped
        )
    return _attend_opened(q, k, v, mask, scale, grouped)


def attend_naive(q, k, v, mask=None, *, causal=False, scale=None):
    """The pair outputs [..., T, V], weights [..., T, S] of `attend`, one query and key at a time.

    The law that every faster form is held to: for each query, score the keys it sees, divide the
    exponentials by their sum, add up the values with these weights.

    >>> out, weights = attend_naive(torch.zeros(5, 6), torch.zeros(7, 6), torch.ones(7, 8))
    >>> list(out.shape), round(weights[0, 0].item(), 4)
    ([5, 8], 0.1429)
    """
    grouped = check_attend(q, k, v, mask, scale, causal)
    kept = q.dtype
    q, k, v = (x.float() if x.dtype in HALF else x for x in (q, k, v))
    scale = checked_scale(scale, q.shape[-1])
    lead, T, S = q.shape[:-2], q.shape[-2], k.shape[-2]
    seen = _visible(q, k, mask, causal)
    seen = seen.expand(*lead, T, S) if seen is not None else q.new_ones(*lead, T, S).bool()
    share = q.shape[-3] // max(k.shape[-3], 1) if grouped else 1
    outs, rows = [], []
    for place in itertools.product(*map(range, lead)):
        keyed = (*place[:-1], place[-1] // share) if grouped else place
        for t in range(T):
            visible = [s for s in range(S) if seen[(*place, t, s)]]
            out, row = _one_query(q[place][t], k[keyed], v[keyed], visible, scale)
            outs.append(out)
            rows.append(row)
    outs = torch.stack(outs) if outs else q.new_zeros(0)
    rows = torch.stack(rows) if rows else q.new_zeros(0)
    return outs.reshape(*lead, T, v.shape[-1]).to(kept), rows.reshape(*lead, T, S).to(kept)


def _one_query(q, k, v, visible, scale):
    """The output [V] and the weights [S] of one query [K] that sees the keys in `visible`."""
    scores = {s: scale * (q * k[s]).sum() for s in visible}
    top = max((x.detach() for x in scores.values()), default=0)
    grown = {s: (x - top).exp() for s, x in scores.items()}
    weights = {s: x / sum(grown.values()) for s, x in grown.items()}
    nothing = q[:0].sum() + v[:0].sum()  # zero, and known to autograd even where no key is seen
    out = sum((weight * v[s] for s, weight in weights.items()), nothing.expand(v.shape[-1]))
    row = [weights.get(s, q.new_zeros(())) for s in range(len(k))]
    return out, torch.stack(row) if row else q.new_zeros(0)


def check_attend(q, k, v, mask=None, scale=None, causal=False):
    """True when key/value heads are shared, False when every head has its own; else an error."""
    flag("causal", causal)
    grouped = False if _plainly_fits(q, k, v) else _check_closely(q, k, v)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.shape[-2]), q.device)
    if scale is not None:
        checked_scale(scale, q.shape[-1])
    return grouped


def _plainly_fits(q, k, v):
    """True in the usual case, found in 2 µs: a small call must not spend its time on checks."""
    if not type(q) is type(k) is type(v) is torch.Tensor:
        return False
    queries, keys, values = q.shape, k.shape, v.shape
    return (
        q.dtype == k.dtype == v.dtype
        and q.device == k.device == v.device
        and q.is_floating_point()
        and len(queries) >= 2
        and queries[:-2] == keys[:-2]
        and queries[-1] == keys[-1] >= 1
        and keys[:-1] == values[:-1]
    )


def _check_closely(q, k, v):
    """Whether heads are shared, as `check_attend` says, with every refusal spelt out."""
    check_float(q, "q")
    check_alike(k, "k", q)
    check_alike(v, "v", q)
    require(q.ndim >= 2, "q", f"shape {list(q.shape)}", "at least two axes, [..., T, K]")
    require(q.shape[-1] >= 1, "q", f"shape {list(q.shape)}", "a width K of at least 1")
    grouped = False
    lead, width = list(q.shape[:-2]), q.shape[-1]
    if k.ndim != q.ndim or list(k.shape[:-2]) != lead or k.shape[-1] != width:
        grouped = k.ndim == q.ndim == 4 and k.shape[0] == lead[0] and k.shape[-1] == width
        allowed = f"[{', '.join([*map(str, lead), 'S', str(width)])}]"
        allowed += f", or [{lead[0]}, G, S, {width}]" if q.ndim == 4 else ""
        require(grouped, "k", f"shape {list(k.shape)}", allowed)
        G, H = k.shape[1], lead[1]
        divides = G > 0 and H % G == 0
        require(divides, "k", f"{G} heads", f"a number of heads that divides the {H} of q")
    fits = v.ndim == k.ndim and v.shape[:-1] == k.shape[:-1]
    allowed = f"[{', '.join([*map(str, k.shape[:-1]), 'V'])}]"
    require(fits, "v", f"shape {list(v.shape)}", allowed)
    return grouped


def _kernel_chosen(q, k, v):
    """Whether `labcore.kernels` would run its own kernel for these tensors."""
    if q.device.type != "cuda":
        return False
    if not torch.compiler.is_compiling():
        return choose("attention", q, refusal(q, k, v))
    fits = takes_width(q.shape[-1]) and takes_width(v.shape[-1])
    return _chosen_once(q.device.type, q.device.index, q.dtype, 16 if fits else 1)


@torch.compiler.assume_constant_result
def _chosen_once(kind, index, dtype, width):
    """The same for a graph that is being traced: decided once, and kept in the graph."""
    x = torch.empty(1, 1, 1, width, dtype=dtype, device=torch.device(kind, index))
    return choose("attention", x, refusal(x, x, x))


def _by_kernel(q, k, v, causal, scale):
    """The outputs, from the kernel's door, which takes [B, H, T, K] only."""
    lead = q.shape[:-2]
    if q.ndim != 4:
        q, k, v = (x.reshape(1, lead.numel(), *x.shape[-2:]) for x in (q, k, v))
    out, _ = attention(q, k, v, causal=causal, scale=scale)
    return out.reshape(*lead, *out.shape[-2:])


def _visible(q, k, mask, causal):
    """The mask that says it all: the given one, the causal one, both, or None."""
    if not causal:
        return mask
    lower = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return lower if mask is None else mask & lower


def _explicit(q, k, v, mask, scale, grouped):
    """Outputs and weights, with the weights in memory; shared key/value heads are not copied."""
    if q.dtype in HALF:  # as the fused form: scores of half precision overflow beyond 65504
        found = _explicit(q.float(), k.float(), v.float(), mask, scale, grouped)
        return tuple(x.to(q.dtype) for x in found)
    T, S, K = q.shape[-2], k.shape[-2], q.shape[-1]
    scaled = q * checked_scale(scale, K)
    if not grouped:
        weights = softmax(scaled @ k.transpose(-1, -2), mask)
        return weights @ v, weights
    B, H, G = q.shape[0], q.shape[1], k.shape[1]
    # The H/G queries that share a key/value head become more rows of one matrix product.
    scores = scaled.reshape(B, G, H // G * T, K) @ k.transpose(-1, -2)
    weights = softmax(scores.reshape(B, H, T, S), mask)
    out = weights.reshape(B, G, H // G * T, S) @ v
    return out.reshape(B, H, T, v.shape[-1]), weights


def _attend_opened(q, k, v, mask, scale, grouped):
    """SDPA with a mask where its kernels disagree about rows that see nothing.

    Such a row is shown everything and then overwritten with zeros: no kernel ever meets it, so
    neither its output nor its gradient depends on which kernel torch picks.
    """
    empty = ~mask.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask | empty, scale=scale, enable_gqa=grouped
    )
    return out.masked_fill(empty, 0)
