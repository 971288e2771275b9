"""Rows of the window-attention kernel: against Swin's plain operations and SDPA with a mask.

Windows are small, so the time goes into moving q, k, v and the result: what is counted is the bytes
that must be read and written, and the mask and the bias, which stay in the cache, are not.
"""

import functools
from typing import NamedTuple

import torch

from labcore.bench import sides
from labcore.bench.registry import row


class Case(NamedTuple):
    """Images, windows per image, heads, window side, head width, and which pass is timed."""

    images: int
    R: int
    H: int
    M: int
    K: int
    backward: bool = False


# The first stage of Swin-T at 224 pixels: 56 x 56 patches in windows of 7 x 7, three heads of 32.
STAGE = Case(256, 64, 3, 7, 32)


def moved(case, size):
    """Bytes of one call with elements of `size` bytes: q, k, v and the result; backward q, k, v,
    the result's gradient and three gradients.

    >>> moved(STAGE, 2) / 1e9 > 0.6
    True
    """
    tensors = 7 if case.backward else 4
    return tensors * size * case.images * case.R * case.H * case.M**2 * case.K


def shift_mask(case, device, dtype):
    """Additive mask [R, MM, MM] of a shifted grid: -100 between tokens of different regions."""
    side = round(case.R**0.5)
    cells = torch.arange(side * case.M)
    region = (cells >= case.M * (side - 1)).long() + (cells >= case.M * side - case.M // 2).long()
    region = (3 * region[:, None] + region).view(side, case.M, side, case.M)
    region = region.transpose(1, 2).reshape(case.R, case.M**2)
    apart = region[:, :, None] != region[:, None]
    return torch.zeros(apart.shape).masked_fill(apart, -100.0).to(device, dtype)


def build(case, device):
    """(ours, other sides) of a case on a device: bfloat16 on a GPU, float32 on the CPU."""
    from labcore.kernels.window import window_attention

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    draw = torch.Generator(device=device).manual_seed(0)
    MM = case.M**2
    size = (case.images * case.R, case.H, MM, case.K)
    q, k, v = (torch.randn(size, generator=draw, device=device).to(dtype) for _ in range(3))
    bias = torch.randn(case.H, MM, MM, generator=draw, device=device).to(dtype)
    mask = shift_mask(case, device, dtype)
    inputs = [x.requires_grad_() for x in (q, k, v, bias)] if case.backward else None
    others = sides.swin(q, k, v, bias, mask, inputs)
    others |= sides.sdpa_mask(q, k, v, bias, mask, inputs)
    call = functools.partial(window_attention, q, k, v, bias, mask)
    return sides.ready(call, inputs), others


def register(case, device, rate=None, ratios=None):
    """None; one row of the group, for one type of device."""
    on_gpu = device == "cuda"
    work = "backward with dBias" if case.backward else "forward"
    sizes = f"{case.images * case.R} windows of {case.M**2}, H{case.H} K{case.K}"
    options = {"rate": rate, "ratios": ratios, "devices": (device,)}
    options |= {"bytes": moved(case, 2 if on_gpu else 4), "operator": "window_attention"}
    # Sums over all windows, such as dBias, are taken in another precision and order elsewhere.
    options |= {"tolerance": 3e-2 if on_gpu else 1e-4}
    name = f"{'GPU' if on_gpu else 'CPU'}: {work}, {sizes}"
    against = "eager Swin and SDPA with a mask"
    row("window", name, against=against, **options)(functools.partial(build, case))


def _register():
    asked = {"eager Swin": (3.0, 3.0), "SDPA + mask": (1.5, 1.5)}
    register(STAGE, "cuda", (2.6, 3.2), asked)
    register(STAGE._replace(backward=True), "cuda", (2.1, 2.8), {"eager Swin": (3.0, 3.0)})
    for M in (7, 12):
        for backward in (False, True):
            register(Case(2, 16, 3, M, 32, backward), "cpu")


_register()
