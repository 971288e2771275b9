"""Calls of the window kernels in the strict interpreter, held against float64."""

import torch

from labcore.kernels import use, why
from labcore.kernels.verify.strict import strict
from labcore.kernels.window import window_attention, window_attention_eager
from tests.kernels.window_cases import draw, gradients, leaves, packed, relative_error

# Relative Frobenius error against float64.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
NAMES = ("o", "dq", "dk", "dv", "dbias")


def in_triton(inputs, mask, upstream, seed=0, scale=None):
    """(o, gradients …) of the kernels, interpreted strictly, programs in the order of `seed`."""
    with use("triton"), strict(seed=seed):
        out = window_attention(*inputs, mask, scale=scale)
        found = gradients(out, upstream, *inputs)
    assert why("window_attention").startswith("triton")
    return [out.detach(), *found]


def in_float64(inputs, mask, upstream, scale=None):
    """The same of the eager form, in float64."""
    wide = leaves(*(None if x is None else x.detach().double() for x in inputs))
    out = window_attention_eager(*wide, mask, scale=scale)
    return [out.detach(), *gradients(out, upstream.double(), *wide)]


def check(inputs, mask, upstream, seed=0, scale=None):
    """(o, gradients …), after each was found within its tolerance of float64."""
    found = in_triton(inputs, mask, upstream, seed, scale)
    wanted = in_float64(inputs, mask, upstream, scale)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        tolerance = TOLERANCE[inputs[0].dtype]
        error = relative_error(one, other)
        assert error <= tolerance, f"{name}: {error}"
    return found


def case(windows, heads, tokens, width, dtype, bias=torch.float32, seed=0):
    """Packed q, k, v and bias as leaves, and a gradient for the outputs."""
    q, k, v = packed(windows, heads, tokens, width, dtype, seed)
    bias = None if bias is None else draw(seed + 2, heads, tokens, tokens, dtype=bias)
    return leaves(q, k, v, bias), draw(seed + 3, windows, heads, tokens, width, dtype=dtype)
