"""Rows of the attention kernel: against every backend of SDPA and compiled FlexAttention.

What is asked for are rates and ratios on one GPU, in bfloat16. On the CPU the same operator runs
its eager form in float32 on small sizes, and only the ratios mean anything.
"""

import functools
from typing import NamedTuple

import torch

from labcore.bench import sides
from labcore.bench.registry import row

# Blocks of queries and keys in which a window's visible share is counted.
BLOCK = (128, 64)
YARDSTICK = "own kernel, every key, the visible share"


class Case(NamedTuple):
    """Sizes of one row, whether it is causal or has a window, and which pass is timed."""

    B: int
    H: int
    T: int
    K: int
    causal: bool = False
    window: int | None = None
    backward: bool = False


def title(case):
    """What the row is called: its pass, its mask and its sizes."""
    words = ["backward" if case.backward else "forward"]
    words += [f"window {case.window}"] if case.window else ["causal"] * case.causal
    return ", ".join([*words, f"B{case.B} H{case.H} T{case.T} K{case.K}"])


def pairs(case):
    """Pairs of a query and a key of one head that a program must compute; causal counts as half.

    >>> pairs(Case(1, 1, 8, 16)), pairs(Case(1, 1, 8, 16, True)), pairs(Case(1, 1, 8, 16, True, 2))
    (64, 32, 15)
    """
    if case.window:
        W = min(case.window, case.T)
        return case.T * W - W * (W - 1) // 2
    return case.T**2 // (2 if case.causal else 1)


def flops(case):
    """Operations credited: 4·B·H·pairs·K forward, 2.5 times as many backward."""
    forward = 4 * case.B * case.H * pairs(case) * case.K
    return forward * 5 // 2 if case.backward else forward


def visible_share(case, block=BLOCK):
    """Share of all blocks of scores in which a causal window shows anything.

    >>> visible_share(Case(1, 1, 8, 16, True, 2), block=(2, 2))
    0.4375
    """
    rows, cols = block
    seen = 0
    for first in range(0, case.T, rows):
        last = min(first + rows, case.T) - 1
        seen += last // cols - max(0, first - case.window + 1) // cols + 1
    return seen / (-(-case.T // rows) * -(-case.T // cols))


def build(case, device):
    """(ours, other sides) of a case on a device: bfloat16 on a GPU, float32 on the CPU."""
    from labcore.kernels.attention import attention

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    draw = torch.Generator(device=device).manual_seed(0)
    size = (case.B, case.H, case.T, case.K)
    q, k, v = (torch.randn(size, generator=draw, device=device).to(dtype) for _ in range(3))
    inputs = [x.requires_grad_() for x in (q, k, v)] if case.backward else None

    def ours(**options):
        return attention(q, k, v, **options)[0]

    masked = {"causal": case.causal, "window": case.window}
    others = _sdpa(case, (q, k, v), inputs) | sides.flex(q, k, v, **masked, inputs=inputs)
    if case.window:
        every = functools.partial(sides.ready, ours, inputs)
        others[YARDSTICK] = sides.Side(every, share=visible_share(case))
    return sides.ready(functools.partial(ours, **masked), inputs), others


def _sdpa(case, qkv, inputs):
    """SDPA's backends; a window goes in as a mask of [T, T], for want of anything better."""
    if not case.window:
        return sides.sdpa(*qkv, inputs=inputs, is_causal=case.causal)
    t = torch.arange(case.T, device=qkv[0].device)
    behind = t[:, None] - t
    mask = (behind >= 0) & (behind < case.window)
    return sides.sdpa(*qkv, name="SDPA + mask", mask=lambda: mask, inputs=inputs)


def register(case, device, rate=None, ratios=None, tolerance=2e-2):
    """None; one row of the group, for one type of device."""
    options = {"rate": rate, "ratios": ratios, "devices": (device,), "tolerance": tolerance}
    options |= {"flops": flops(case), "operator": "attention"}
    against = "SDPA's backends and FlexAttention"
    name = f"{'GPU' if device == 'cuda' else 'CPU'}: {title(case)}"
    row("attention", name, against=against, **options)(functools.partial(build, case))


def _register():
    def gpu(case, rate=None, **ratios):
        asked = {name.replace("_", " "): (least, least) for name, least in ratios.items()}
        register(case, "cuda", rate, asked)

    gpu(Case(2, 16, 8192, 128), (430, 510), SDPA_flash=1.15, SDPA_cuDNN=0.75)
    gpu(Case(2, 16, 8192, 128, True), (360, 440), SDPA_flash=1.05)
    gpu(Case(2, 16, 8192, 64), (360, 420), SDPA_flash=1.1)
    gpu(Case(2, 16, 8192, 128, backward=True), (250, 330), SDPA_flash=0.8)
    gpu(Case(2, 16, 8192, 64, backward=True), (210, 280), SDPA_flash=0.75)
    # At most 1.25 times, and at best 1.1 times, the share of the full time that is visible.
    window = {YARDSTICK: (0.8, round(1 / 1.1, 3)), "FlexAttention": (1.0, 1.0)}
    register(Case(1, 16, 16384, 128, True, 1024), "cuda", None, window)
    gpu(Case(2, 16, 8192, 128, True, backward=True))
    gpu(Case(1, 16, 16384, 128, True, 1024, True))
    for causal, window in ((False, None), (True, None), (True, 64)):
        for backward in (False, True):
            small = Case(2, 4, 256, 64, causal, window, backward)
            register(small, "cpu", tolerance=1e-4)


_register()
