"""Attention inside the windows of an image: softmax(scale · QKᵀ + B + mask)V for every window.

Liu et al. 2021, eq. 4: q, k, v [windows, H, MM, K] hold the MM = M·M tokens of every window, B is
the bias of the relative positions [H, MM, MM], shared by all windows, and the mask [R, MM, MM] of
the shifted windows (section 3.2, "efficient batch computation") repeats from image to image: window
n wears mask n mod R, R being the windows of one image.

Three forms of one signature: `window_attention_naive`, the law; `window_attention_eager`, torch;
and `window_attention`, a custom operator that takes the Triton kernels of `labcore.kernels.gpu`
where it can and torch elsewhere. Half precision is summed in float32 and rounded once, at the end.

Choices where the paper is silent: a token that sees nothing (False, or -∞, over its whole row)
gets zeros and passes no gradient; the gradient of B is summed in float32 in a fixed order; the mask
has no gradient, what is learned belongs into `bias`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from labcore.kernels.dispatch import choose, register_gradient
from labcore.kernels.window_tiles import refusal
from labcore.shapes import number, require

HALF = (torch.float16, torch.bfloat16)


def window_attention(q, k, v, bias=None, mask=None, *, scale=None):
    """Outputs [windows, H, MM, K] of softmax(scale · QKᵀ + bias + mask)V in every window.

    q, k, v: [windows, H, MM, K] of any strides, views of a packed projection too; `bias`:
    [H, MM, MM]; `mask`: [R, MM, MM], bool (True = may attend) or added (0, -100, -∞), windows being
    a multiple of R and window n taking mask n mod R; `scale`: 1/√K unless given. The outputs are a
    view of [windows, MM, H, K], so that joining the heads again copies nothing. Gradients go to
    q, k, v and bias, once (not through `torch.func.grad`, which custom operators do not know).
    Under autocast q, k and v are cast to its dtype. `use` and `why` tell which backend runs.
    Raises ValueError for shapes that do not fit and TypeError for wrong dtypes.

    >>> q, k, v = torch.zeros(3, 6, 2, 49, 8).unbind(0)
    >>> mask = torch.ones(3, 49, 49, dtype=torch.bool)
    >>> list(window_attention(q, k, v, torch.zeros(2, 49, 49), mask).shape)
    [6, 2, 49, 8]
    """
    q, k, v = _as_autocast_wants(q, k, v)
    scale = check_window(q, k, v, bias, mask, scale)
    return window_attention_forward(q, k, v, bias, mask, scale).transpose(1, 2)


def window_attention_naive(q, k, v, bias=None, mask=None, *, scale=None):
    """The outputs of `window_attention`, one window, head and token at a time: the law.

    >>> v = torch.arange(4.0).reshape(1, 1, 4, 1)
    >>> window_attention_naive(torch.zeros_like(v), torch.zeros_like(v), v)[0, 0, 0].item()
    1.5
    """
    scale = check_window(q, k, v, bias, mask, scale)
    kept, windows = q.dtype, q.shape[0]
    q, k, v, bias = (x.float() if x is not None and x.dtype in HALF else x for x in (q, k, v, bias))
    outs = []
    for n in range(windows):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                scores = scale * (k[n, h] @ q[n, h, t])
                if bias is not None:
                    scores = scores + bias[h, t].to(q.dtype)
                if mask is not None:
                    scores = scores + _added(mask[n % len(mask), t], q.dtype)
                seen = scores != -math.inf
                grown = (scores[seen] - scores[seen].amax()).exp() if seen.any() else scores[seen]
                outs.append((grown / grown.sum()) @ v[n, h][seen])
    return torch.stack(outs).reshape(v.shape).to(kept) if v.numel() else _nothing(q, k, v, bias)


def window_attention_eager(q, k, v, bias=None, mask=None, *, scale=None):
    """The outputs of `window_attention` by torch's own fused attention, bias and mask in one tile.

    >>> list(window_attention_eager(*torch.zeros(3, 6, 2, 16, 8).unbind(0)).shape)
    [6, 2, 16, 8]
    """
    scale = check_window(q, k, v, bias, mask, scale)
    wide = torch.float32 if q.dtype in HALF else q.dtype
    kept, shape = q.dtype, q.shape
    q, k, v = (x.to(wide) for x in (q, k, v))
    if not q.numel():
        return _nothing(q, k, v, bias).to(kept)
    tile = _tile(q, bias, mask)
    if tile is None:
        return F.scaled_dot_product_attention(q, k, v, scale=scale).to(kept)
    tile, empty = (x.flatten(0, 1)[None] for x in _opened(tile))
    share = tile.shape[1] // shape[1]
    q, k, v = (_by_image(x, share) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=tile, scale=scale)
    return out.masked_fill(empty, 0).reshape(shape).to(kept)


def _nothing(q, k, v, bias):
    """The outputs where there are none: of v's shape, and of gradient 0 in all."""
    return v + 0 * sum(x.sum() for x in (q, k, bias) if x is not None)


def _by_image(x, share):
    """[windows / R, R·H, MM, K]: the windows of one image side by side, for one tile of all."""
    return x.unflatten(0, (-1, share)).flatten(1, 2)


def _tile(q, bias, mask):
    """What is added to the scores, [R or 1, H, MM, MM] in q's dtype, or None."""
    if bias is None and mask is None:
        return None
    tile = q.new_zeros(1, q.shape[1], q.shape[2], q.shape[2]) if bias is None else bias.to(q)[None]
    return tile if mask is None else tile + _added(mask, q.dtype)[:, None]


def _opened(tile):
    """The tile, and which of its rows [R or 1, H, MM, 1] see nothing: torch's kernels disagree
    about them, so they are shown everything, and what comes of it is overwritten with zeros."""
    empty = tile.amax(-1, keepdim=True) == -math.inf
    return tile.masked_fill(empty, 0), empty


def _added(mask, dtype):
    """A mask as something to add: 0 where it allows and -∞ where it forbids, or as it came."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)
    return mask.to(dtype)


def _eager_backward(grad, q, k, v, bias, mask, scale, need_bias):
    """The gradients of q, k, v and bias, the weights made once more; nothing was kept for this."""
    wide = torch.float32 if q.dtype in HALF else q.dtype
    grad, q, k, v = (x.to(wide) for x in (grad, q, k, v))
    p = (q * scale) @ k.mT
    tile = _tile(q, bias, mask)
    if tile is not None and p.numel():
        tile, empty = _opened(tile)
        p.unflatten(0, (-1, len(tile))).add_(tile)  # in place: fresh memory costs more than sums
        grad = grad.unflatten(0, (-1, len(tile))).masked_fill(empty, 0).flatten(0, 1)
    p = p.softmax(-1)
    ds = torch.ops.aten._softmax_backward_data(grad @ v.mT, p, -1, wide)  # P ∘ (dP - δ), at once
    dbias = ds.sum(0) if need_bias else None
    return (ds @ k).mul_(scale), (ds.mT @ q).mul_(scale), p.mT @ grad, dbias


@torch.library.custom_op("labcore::window_attention_forward", mutates_args=())
def window_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float
) -> Tensor:
    """The outputs [windows, MM, H, K], contiguous."""
    with torch.autocast(q.device.type, enabled=False):
        if choose("window_attention", q, refusal(q)):
            from labcore.kernels.gpu.window_forward import forward

            return forward(q, k, v, bias, mask, scale)
        out = window_attention_eager(q, k, v, bias, mask, scale=scale)
    return _token_major(out)


@window_attention_forward.register_fake
def _(q, k, v, bias, mask, scale):
    windows, H, MM, K = q.shape
    return q.new_empty(windows, MM, H, K)


@torch.library.custom_op("labcore::window_attention_backward", mutates_args=())
def window_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    scale: float,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v [windows, MM, H, K], in their dtype, and of bias, in float32 or wider
    ([0] unless `need_bias`); `grad` is [windows, MM, H, K] of any strides."""
    grad = grad.transpose(1, 2)
    with torch.autocast(q.device.type, enabled=False):
        if choose("window_attention", q, refusal(q)):
            from labcore.kernels.gpu.window_backward import backward

            return backward(grad, q, k, v, bias, mask, scale, need_bias)
        *found, dbias = _eager_backward(grad, q, k, v, bias, mask, scale, need_bias)
    dbias = _no_bias(q) if dbias is None else dbias
    return *(_token_major(x.to(q.dtype)) for x in found), dbias


@window_attention_backward.register_fake
def _(grad, q, k, v, bias, mask, scale, need_bias):
    windows, H, MM, K = q.shape
    found = [q.new_empty(windows, MM, H, K) for _ in range(3)]
    dbias = _no_bias(q)
    return *found, dbias.new_empty(H, MM, MM) if need_bias else dbias


def _no_bias(q):
    return q.new_empty(0, dtype=torch.float32 if q.dtype in HALF else q.dtype)


def _token_major(x):
    """[windows, H, MM, K] as a new contiguous [windows, MM, H, K]."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format)


def _keep(ctx, inputs, output):
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx, grad):
    if grad is None:
        return (None,) * 6
    q, k, v, bias, mask = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    *found, dbias = window_attention_backward(
        grad, q, k, v, bias, mask, ctx.scale, bias is not None and wanted[3]
    )
    found = [x.transpose(1, 2) if want else None for x, want in zip(found, wanted, strict=False)]
    return *found, dbias.to(bias.dtype) if wanted[3] else None, None, None


register_gradient(window_attention_forward, _differentiate, setup_context=_keep)


def _as_autocast_wants(q, k, v):
    """q, k, v in autocast's dtype where it is on, else as they came."""
    kind = q.device.type if isinstance(q, Tensor) else "meta"
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return q, k, v
    wanted = torch.get_autocast_dtype(kind)
    # float64 stays, as in every operator of torch that autocast knows.
    castable = (*HALF, torch.float32)
    return tuple(
        x.to(wanted) if isinstance(x, Tensor) and x.dtype in castable else x for x in (q, k, v)
    )


def check_window(q, k, v, bias=None, mask=None, scale=None):
    """The factor on the scores, after every argument was found to fit; else an error."""
    if not _fits(q, k, v, bias, mask):
        _refuse(q, k, v, bias, mask)
    return 1 / math.sqrt(q.shape[-1]) if scale is None else number("scale", scale)


def _fits(q, k, v, bias, mask):
    """Whether all fits, found without a word: words about sizes would tie a compiled graph to
    them."""
    there = [x for x in (q, k, v, bias, mask) if x is not None]
    if not all(isinstance(x, Tensor) and x.device == q.device for x in there):
        return False
    if not (q.is_floating_point() and q.dtype == k.dtype == v.dtype and q.ndim == 4):
        return False
    windows, H, MM, K = q.shape
    fits = K >= 1 and q.shape == k.shape == v.shape
    if bias is not None:
        fits = fits and bias.is_floating_point() and bias.shape == (H, MM, MM)
    if mask is not None and fits:
        fits = (mask.dtype == torch.bool or mask.is_floating_point()) and mask.ndim == 3
        fits = fits and mask.shape[0] >= 1 and mask.shape[1:] == (MM, MM)
        fits = fits and windows % mask.shape[0] == 0 and not mask.requires_grad
    return fits


def _refuse(q, k, v, bias, mask):
    """The error that names the first argument that does not fit."""
    _check_float(q, "q", q)
    shape = list(q.shape)
    require(q.ndim == 4, "q", f"shape {shape}", "four axes, [windows, H, MM, K]")
    windows, H, MM, K = shape
    require(K >= 1, "q", f"shape {shape}", "a width K of at least 1")
    for x, name in ((k, "k"), (v, "v")):
        _check_float(x, name, q)
        require(list(x.shape) == shape, name, f"shape {list(x.shape)}", f"{shape}, as q")
        require(x.dtype == q.dtype, name, x.dtype, f"{q.dtype}, as q", TypeError)
    if bias is not None:
        _check_float(bias, "bias", q)
        fits = list(bias.shape) == [H, MM, MM]
        require(fits, "bias", f"shape {list(bias.shape)}", f"[H={H}, MM={MM}, MM={MM}]")
    if mask is not None:
        _check_float(mask, "mask", q, or_bool=True)
        sizes = list(mask.shape)
        fits = mask.ndim == 3 and sizes[1:] == [MM, MM] and sizes[0] >= 1
        require(fits, "mask", f"shape {sizes}", f"[R, MM={MM}, MM={MM}] with R of at least 1")
        whole, told = windows % sizes[0] == 0, f"R={sizes[0]} for {windows} windows"
        require(whole, "mask", told, "an R that divides the windows")
        fixed, allowed = not mask.requires_grad, "one that does not: what is learned is `bias`"
        require(fixed, "mask", "a tensor that requires grad", allowed)


def _check_float(x, name, q, or_bool=False):
    given = x.dtype if isinstance(x, Tensor) else type(x).__name__
    ok = isinstance(x, Tensor) and (x.is_floating_point() or (or_bool and x.dtype == torch.bool))
    kinds = f"a {'bool or ' if or_bool else ''}floating-point tensor"
    require(ok, name, given, kinds, TypeError)
    require(x.device == q.device, name, f"device {x.device}", f"{q.device}, as q")
