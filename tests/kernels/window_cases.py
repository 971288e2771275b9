"""Inputs for the tests of window attention, and its formula in other words than the package's."""

import math

import torch

# Axis sizes that differ: windows 6 = images 2 · R 3, heads 2, tokens 9, width 5.
WINDOWS, R, H, MM, K = 6, 3, 2, 9, 5


def draw(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(windows=WINDOWS, heads=H, tokens=MM, width=K, dtype=torch.float64, seed=0):
    """q, k, v [windows, H, MM, K]: views of one projection's output [windows, MM, 3, H, K]."""
    whole = draw(seed, windows, tokens, 3, heads, width, dtype=dtype)
    return list(whole.permute(2, 0, 3, 1, 4).unbind(0))


def some_mask(kind, tokens=MM, images=R, seed=1, empty=True):
    """None, or a mask [R, MM, MM] of one kind; `empty`: token 1 of window 0 sees nothing."""
    if kind is None:
        return None
    seen = torch.rand(images, tokens, tokens, generator=torch.Generator().manual_seed(seed)) < 0.6
    seen[:, range(tokens), range(tokens)] = True
    if empty and kind != -100.0:
        seen[0, 1] = False
    return seen if kind is bool else torch.where(seen, 0.0, kind)


def by_loop(q, k, v, bias, mask, scale):
    """The formula, window by window, by torch's own softmax; rows that see nothing are cut out."""
    outs = []
    for n in range(len(q)):
        scores = torch.einsum("htk,hsk->hts", q[n], k[n]) * scale
        scores = scores if bias is None else scores + bias
        if mask is not None:
            worn = mask[n % len(mask)]
            if worn.dtype == torch.bool:
                worn = torch.where(worn, 0.0, -math.inf)
            scores = scores + worn
        none = (scores == -math.inf).all(-1, keepdim=True)
        weights = scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)
        outs.append(weights @ v[n])
    return torch.stack(outs)


def leaves(*tensors):
    """Copies with the same strides that ask for a gradient; None stays None."""
    return [None if x is None else x.detach().requires_grad_() for x in tensors]


def gradients(out, upstream, *inputs):
    return torch.autograd.grad(out, [x for x in inputs if x is not None], upstream)


def relative_error(found, wanted):
    """Frobenius norm of the difference over that of the truth, with a floor where that is ~0."""
    wanted = wanted.double()
    floor = 1e-3 * math.sqrt(max(wanted.numel(), 1))
    return ((found.double() - wanted).norm() / wanted.norm().clamp(min=floor)).item()


def close(found, wanted, tolerance=1e-9):
    """Asserts equal shapes and dtypes, and numbers within `tolerance` of each other."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert bool(((found - wanted).abs() <= tolerance).all()), (found - wanted).abs().max()
