"""Two implementations timed in turn inside one process: A B, B A, A B, …

Machines are noisy and slow down as they warm up. What survives that is the ratio of two times taken
side by side, so each round gives one ratio, and the median over the rounds with its quartiles is
the result. The times themselves are only there to show the size of the work.
"""

import gc
import statistics
import time
from typing import NamedTuple

import torch

from labcore.shapes import number, require, whole


class Spread(NamedTuple):
    """Median and quartiles of a list of numbers."""

    median: float
    low: float
    high: float


class Comparison(NamedTuple):
    """Times of one call in seconds, and ratio = their time / ours: above 1, ours is faster."""

    ours: Spread
    theirs: Spread
    ratio: Spread
    rounds: int
    calls: int


def spread(values):
    """The `Spread` of `values`, quartiles by linear interpolation.

    >>> spread([4.0, 1.0, 2.0, 3.0, 5.0])
    Spread(median=3.0, low=2.0, high=4.0)
    """
    values = list(values)
    require(values, "values", given="none", allowed="at least one number")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high)


def compare(ours, theirs, *, rounds=15, block=0.02, warmup=0.2, device="cpu", clock=None):
    """The `Comparison` of two functions without arguments, timed in turn.

    A sample is a run of calls that lasts about `block` seconds, the same number for both, so that
    the clock and the loop do not count; on one thread it is measured in processor time. On a GPU it
    is one call between two events, after the L2 cache was overwritten. Before that each side runs
    for `warmup` seconds. `clock(function, calls)`, in seconds per call, replaces the clock.

    >>> comparison = compare(lambda: sum(range(99)), lambda: sum(range(99)), rounds=4, block=1e-3)
    >>> comparison.rounds, comparison.ratio.low > 0
    (4, True)
    """
    whole("rounds", rounds, 3), number("block", block, above=0), number("warmup", warmup, least=0)
    for name, function in (("ours", ours), ("theirs", theirs)):
        require(callable(function), name, given=function, allowed="a function without arguments")
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    clock = clock or (_gpu_clock(device) if on_gpu else _cpu_clock)
    shortest = min(_warm(function, warmup, clock) for function in (ours, theirs))
    calls = 1 if on_gpu else max(1, round(block / max(shortest, 1e-9)))
    times = {0: [], 1: []}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            # Each goes first in every other round: what the first leaves in the caches evens out.
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                times[which].append(clock((ours, theirs)[which], calls))
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    ratios = [b / a for a, b in zip(times[0], times[1], strict=True)]
    return Comparison(spread(times[0]), spread(times[1]), spread(ratios), rounds, calls)


def largest_difference(a, b):
    """Largest |a - b| over tensors, or over the tensors of two tuples of the same length.

    >>> largest_difference(torch.zeros(3), (torch.ones(3),))
    1.0
    """
    a, b = (list(x) if isinstance(x, (tuple, list)) else [x] for x in (a, b))
    require(len(a) == len(b), "b", given=f"{len(b)} tensors", allowed=f"{len(a)}, as in a")
    found = 0.0
    for x, y in zip(a, b, strict=True):
        fits = x.shape == y.shape
        require(fits, "b", given=f"shape {list(y.shape)}", allowed=f"shape {list(x.shape)}")
        if x.numel():
            found = max(found, (x.detach().double() - y.detach().double()).abs().max().item())
    return found


def with_backward(function, inputs):
    """A function that runs `function()` forward and backward and returns the gradients of `inputs`.

    The gradient of the output is fixed and drawn once: `out.sum()` would hand an expanded tensor to
    the backward pass, which no training step does.

    >>> x = torch.ones(2, requires_grad=True)
    >>> [g.shape for g in with_backward(lambda: x * 3, [x])()]
    [torch.Size([2])]
    """
    out = function()
    draw = torch.Generator(device=out.device).manual_seed(0)
    grad = torch.randn(out.shape, generator=draw, device=out.device, dtype=out.dtype)

    def run():
        return torch.autograd.grad(function(), inputs, grad)

    return run


def _warm(function, seconds, clock):
    """Runs `function` for about `seconds`, at least twice; the shortest time of one call."""
    best, spent, ran = float("inf"), 0.0, 0
    while ran < 2 or (spent < seconds and ran < 1000):
        begun = time.perf_counter()
        best = min(best, clock(function, 1))
        spent += time.perf_counter() - begun
        ran += 1
    return best


def _cpu_clock(function, calls):
    # With one thread the processor's time is the work's own: what else runs on the machine takes
    # turns with us, but is not counted. With several, waiting for one another belongs to the work.
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begun = now()
    for _ in range(calls):
        function()
    return (now() - begun) / calls


def _gpu_clock(device):
    """Seconds of one call between two events; the L2 cache is overwritten before each."""
    size = 2 * max(torch.cuda.get_device_properties(device).L2_cache_size, 2**20)
    scratch = torch.empty(size, dtype=torch.int8, device=device)

    def clock(function, calls):
        total = 0.0
        with torch.cuda.device(device):
            for _ in range(calls):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                scratch.zero_()
                begin.record()
                function()
                end.record()
                end.synchronize()
                total += begin.elapsed_time(end) / 1000
        return total / calls

    return clock
