"""The grouped matrix product of a mixture of experts: y_n = x_n · W_{e(n)}, rows sorted by expert.

With the rows of each expert side by side, a layer of E experts is E products of different heights:
no capacity, no padding, no dropped token (MegaBlocks, Gale et al. 2023; ScatterMoE, Tan et al.
2024). `offsets` [E] says where each expert's rows end: expert e owns the rows from offsets[e - 1]
to offsets[e], and rows past the last offset belong to nobody and give zero.

With dy the gradient of y, over the rows n of expert e,
    dx_n = dy_n · W_eᵀ           the same product, with the weights' axes swapped;
    dW_e = Σ_n x_nᵀ dy_n         one product per expert; no rows, exactly zero.

Offsets stay on the device: nothing here waits for a GPU to tell the host a number.
"""

import torch

from labcore.kernels import experts_eager
from labcore.kernels.config import capability
from labcore.kernels.dispatch import choose, register_gradient
from labcore.shapes import require

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Each program holds one number per expert, and counts rows in 32 bits.
MOST_EXPERTS, MOST_ROWS = 1024, 2**31 - 1024


def expert_gemm(x, w, offsets):
    """y [N, F] of x [N, D], sorted by expert, and w [E, D, F]: row n times the weights of its
    expert, y_n = x_n · W_{e(n)} (Gale et al. 2023; Tan et al. 2024).

    `offsets` [E], int32 or int64 on the device of x, are the ends of the experts' rows, as
    `offsets_of(counts)` makes them; rows past the last one give exactly zero. Any strides of x and
    w are read as they are: `w.transpose(1, 2)` is not copied. y is of x's dtype, summed in float32
    (float64 for float64). Gradients for x and w, twice if asked; under autocast both are cast.

    Offsets that decrease or pass N raise ValueError on a CPU. A GPU is not asked: there they are
    held within 0 … N, and one that decreases counts as its predecessor. Raises ValueError for
    shapes that do not fit and TypeError for dtypes. Not for `torch.func`: use autograd.

    >>> x, w = torch.ones(5, 3), torch.stack([torch.full((3, 2), e) for e in (1.0, 2.0)])
    >>> expert_gemm(x, w, offsets_of(torch.tensor([1, 3])))[:, 0].tolist()
    [3.0, 6.0, 6.0, 6.0, 0.0]
    """
    x, w = _under_autocast(x, w)
    check_gemm(x, w, offsets)
    return torch.ops.labcore.expert_gemm(x, w, offsets)


def expert_gemm_eager(x, w, offsets):
    """`expert_gemm` in plain torch, whichever backend is asked for; gradients for x and w.

    >>> expert_gemm_eager(torch.ones(2, 3), torch.ones(1, 3, 4), torch.tensor([1])).sum(1).tolist()
    [12.0, 0.0]
    """
    check_gemm(x, w, offsets)
    return _Eager.apply(x, w, offsets)


def expert_gemm_naive(x, w, offsets):
    """`expert_gemm` row by row, the law that the faster forms are held to.

    >>> expert_gemm_naive(torch.ones(2, 3), torch.ones(1, 3, 4), torch.tensor([1])).sum(1).tolist()
    [12.0, 0.0]
    """
    check_gemm(x, w, offsets)
    kept = x.dtype
    x, w = (m.float() if m.dtype in experts_eager.HALF else m for m in (x, w))
    nothing = x[:0].sum() + w[:0].sum()  # zero, and known to autograd where no expert has a row
    y = [nothing.expand(w.shape[2]) for _ in x]
    for expert, (first, end) in enumerate(experts_eager.bounds(offsets, len(x))):
        for n in range(first, end):
            y[n] = sum((x[n, d] * w[expert, d] for d in range(len(x[n]))), y[n])
    return (torch.stack(y) if y else nothing.expand(0, w.shape[2])).to(kept)


def offsets_of(counts):
    """offsets [E], int32, of the numbers of rows `counts` [E], on their device.

    >>> offsets_of(torch.tensor([2, 0, 3])).tolist()
    [2, 2, 5]
    """
    require(_is_list(counts), "counts", _told(counts), "a tensor [E] of int32 or int64", TypeError)
    return torch.cumsum(counts, 0, dtype=torch.int32)


def check_gemm(x, w, offsets):
    """None when the three fit together; else the error that says what does not."""
    tensors = isinstance(x, torch.Tensor) and isinstance(w, torch.Tensor)
    # Words are put together only for a refusal: sizes may be symbols of a compiler.
    if not tensors or x.dtype not in FLOATS or w.dtype != x.dtype:
        given, allowed = f"{_told(x)} and {_told(w)}", "tensors of one dtype, float16 to float64"
        require(False, "x and w", given, allowed, TypeError)
    if x.ndim != 2 or w.ndim != 3 or x.shape[1] != w.shape[1]:
        given = f"shapes {list(x.shape)} and {list(w.shape)}"
        require(False, "x and w", given, "[N, D] and [E, D, F]")
    if not _is_list(offsets):
        require(False, "offsets", _told(offsets), "a tensor [E] of int32 or int64", TypeError)
    if offsets.shape[0] != w.shape[0]:
        allowed = f"[{w.shape[0]}], one end for each expert of w"
        require(False, "offsets", f"shape {list(offsets.shape)}", allowed)
    if not x.device == w.device == offsets.device:
        given = f"devices {x.device}, {w.device} and {offsets.device}"
        require(False, "x, w and offsets", given, "one device")


def _is_list(m):
    return isinstance(m, torch.Tensor) and m.ndim == 1 and m.dtype in (torch.int32, torch.int64)


def _told(m):
    return f"{m.dtype} {list(m.shape)}" if isinstance(m, torch.Tensor) else repr(m)


def _under_autocast(x, w):
    """x and w, cast as autocast casts the arguments of a matrix product."""
    if not (isinstance(x, torch.Tensor) and isinstance(w, torch.Tensor)):
        return x, w
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x, w
    dtype = torch.get_autocast_dtype(kind)
    cast = (torch.float16, torch.bfloat16, torch.float32)
    return tuple(m.to(dtype) if m.dtype in cast else m for m in (x, w))


def refusal(x, offsets):
    """Why Triton's kernels do not take these tensors, or None."""
    if x.dtype == torch.float64:
        return "float64: the kernel sums in float32"
    if x.dtype == torch.bfloat16 and capability(x) < 80:
        return "bfloat16 needs compute capability 8.0"
    if len(offsets) > MOST_EXPERTS:
        return f"{len(offsets)} experts, the kernel takes at most {MOST_EXPERTS}"
    if x.shape[0] > MOST_ROWS:
        return f"{x.shape[0]} rows, the kernel takes at most {MOST_ROWS}"
    return None


@torch.library.custom_op("labcore::expert_gemm", mutates_args=())
def _gemm(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if choose("expert_gemm", x, refusal(x, offsets)):
        from labcore.kernels.gpu.experts import forward

        return forward(x, w, offsets)
    return experts_eager.forward(x, w, offsets)


@torch.library.custom_op("labcore::expert_gemm_dw", mutates_args=())
def _gemm_dw(x: torch.Tensor, dy: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if choose("expert_gemm_dw", x, refusal(x, offsets)):
        from labcore.kernels.gpu.experts_dw import weight_gradient

        return weight_gradient(x, dy, offsets)
    return experts_eager.weight_gradient(x, dy, offsets)


@_gemm.register_fake
def _(x, w, offsets):
    return x.new_empty(x.shape[0], w.shape[2])


@_gemm_dw.register_fake
def _(x, dy, offsets):
    return x.new_empty(offsets.shape[0], x.shape[1], dy.shape[1])


def _keep(ctx, inputs, output):
    """What the gradients read: the first factor for the second's, and the other way round."""
    first, second, offsets = inputs
    needs = ctx.needs_input_grad
    ctx.save_for_backward(first if needs[1] else None, second if needs[0] else None, offsets)


def _gemm_backward(ctx, dy):
    x, w, offsets = ctx.saved_tensors
    ops, needs = torch.ops.labcore, ctx.needs_input_grad
    dx = ops.expert_gemm(dy, w.transpose(1, 2), offsets) if needs[0] else None
    return dx, ops.expert_gemm_dw(x, dy, offsets) if needs[1] else None, None


def _gemm_dw_backward(ctx, g):
    """For the second derivative: dW_e = x_eᵀ dy_e is linear in both."""
    x, dy, offsets = ctx.saved_tensors
    ops, needs = torch.ops.labcore, ctx.needs_input_grad
    dx = ops.expert_gemm(dy, g.transpose(1, 2), offsets) if needs[0] else None
    return dx, ops.expert_gemm(x, g, offsets) if needs[1] else None, None


register_gradient(_gemm, _gemm_backward, setup_context=_keep)
register_gradient(_gemm_dw, _gemm_dw_backward, setup_context=_keep)


class _Eager(torch.autograd.Function):
    """The eager form with the same two gradients, without the dispatcher."""

    @staticmethod
    def forward(ctx, x, w, offsets):
        ctx.save_for_backward(x, w, offsets)
        return experts_eager.forward(x, w, offsets)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w, offsets = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dx = experts_eager.forward(dy, w.transpose(1, 2), offsets) if needs[0] else None
        return dx, experts_eager.weight_gradient(x, dy, offsets) if needs[1] else None, None
