"""Rows of the expert matrix product: against torch's grouped product and a loop over the experts.

The rows of x are sorted by expert already: what is timed is the product alone. With one token per
expert the weights are read once for it, and bytes count instead of operations.
"""

import functools
from typing import NamedTuple

import torch

from labcore.bench import sides
from labcore.bench.registry import row


class Case(NamedTuple):
    """Experts, inner and outer width, tokens of each expert, and what is timed.

    `what` is forward, dX or dW; `uneven` gives half the experts three times what the others get.
    """

    E: int
    D: int
    F: int
    each: int
    what: str = "forward"
    uneven: bool = False


def counts(case):
    """Tokens of every expert.

    >>> counts(Case(4, 8, 8, 10)), counts(Case(4, 8, 8, 10, uneven=True))
    ([10, 10, 10, 10], [15, 5, 15, 5])
    """
    if not case.uneven:
        return [case.each] * case.E
    more = case.each + case.each // 2
    return [2 * case.each - more if expert % 2 else more for expert in range(case.E)]


def work(case, size):
    """{"flops": …} or, for one token per expert, {"bytes": …} of one call."""
    N = case.E * case.each
    if case.each == 1:
        return {"bytes": size * (N * case.D + case.E * case.D * case.F + N * case.F)}
    return {"flops": 2 * N * case.D * case.F}


def build(case, device):
    """(ours, other sides) of a case on a device: bfloat16 on a GPU, float32 on the CPU."""
    from labcore.kernels.experts import expert_gemm

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    draw = torch.Generator(device=device).manual_seed(0)
    rows = counts(case)
    x = torch.randn(sum(rows), case.D, generator=draw, device=device, dtype=dtype)
    w = torch.empty(case.E, case.D, case.F, device=device, dtype=dtype)
    w.normal_(0, case.D**-0.5, generator=draw)
    offsets = torch.tensor(rows, device=device).cumsum(0).int()
    inputs = {"forward": None, "dX": [x], "dW": [w]}[case.what]
    for tensor in inputs or ():
        tensor.requires_grad_()
    others = sides.grouped(x, w, offsets, inputs) | sides.loop(x, w, rows, inputs)
    call = functools.partial(expert_gemm, x, w, offsets)
    return sides.ready(call, inputs), others


def register(case, device, rate=None, ratio=None):
    """None; one row of the group, for one type of device."""
    on_gpu = device == "cuda"
    tokens = "1 token each" if case.each == 1 else f"{case.each} tokens each"
    tokens += " on average, uneven" if case.uneven else ""
    name = f"{'GPU' if on_gpu else 'CPU'}: {case.what}, E{case.E} D{case.D} F{case.F}, {tokens}"
    operator = "expert_gemm_dw" if case.what == "dW" else "expert_gemm"
    options = {"rate": rate, "devices": (device,), "operator": operator}
    options |= {"ratios": {"F.grouped_mm": (ratio, ratio)} if ratio else None}
    options |= {**work(case, 2 if on_gpu else 4), "tolerance": 2e-2 if on_gpu else 1e-4}
    against = "F.grouped_mm and a loop over experts"
    row("moe", name, against=against, **options)(functools.partial(build, case))


def _register():
    large = Case(64, 4096, 1024, 2048)
    register(large, "cuda", (430, 560), 0.75)
    register(large._replace(what="dX"), "cuda", (430, 560), 0.9)
    register(large._replace(what="dW"), "cuda", (360, 490), 0.7)
    register(Case(128, 4096, 1024, 512), "cuda", (300, 400), 0.9)
    register(Case(64, 4096, 1024, 1), "cuda", (2.4, 3.2), 2.0)
    register(large._replace(uneven=True), "cuda")
    small = Case(8, 256, 512, 64)
    for what in ("forward", "dX", "dW"):
        register(small._replace(what=what), "cpu")
    register(Case(64, 256, 128, 16), "cpu")
    register(Case(16, 256, 512, 1), "cpu")
    register(small._replace(uneven=True), "cpu")


_register()
