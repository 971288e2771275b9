"""Implementations timed in turn inside one process: A B, B A, A B, …

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

PAUSE = 200_000  # clock cycles of a GPU


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


class Field(NamedTuple):
    """Times of one call of ours and of every other side, and the ratios theirs / ours by name."""

    ours: Spread
    theirs: dict
    ratios: dict
    rounds: int
    calls: int


def compare(ours, theirs, **options):
    """The `Comparison` of two functions without arguments, timed in turn.

    The options, and how a sample is taken, are those of `compare_all`.

    >>> comparison = compare(lambda: sum(range(99)), lambda: sum(range(99)), rounds=4, block=1e-3)
    >>> comparison.rounds, comparison.ratio.low > 0
    (4, True)
    """
    found = compare_all(ours, {"theirs": theirs}, **options)
    time, ratio = found.theirs["theirs"], found.ratios["theirs"]
    return Comparison(found.ours, time, ratio, found.rounds, found.calls)


def compare_all(ours, theirs, *, rounds=15, block=0.02, warmup=0.2, device="cpu", clock=None):
    """The `Field` of a function and of others by name (none is fine), all timed in each round.

    A sample is a run of calls that lasts about `block` seconds, the same number for all, so that
    the clock and the loop do not count; on one thread it is measured in processor time. On a GPU it
    is one call between two events, after the L2 cache was overwritten. Before that each side runs
    for `warmup` seconds. `clock(function, calls)`, in seconds per call, replaces the clock.

    >>> field = compare_all(lambda: 1, {"a": lambda: 2, "b": lambda: 3}, rounds=3, block=1e-4)
    >>> list(field.ratios), field.ratios["b"].low > 0
    (['a', 'b'], True)
    """
    whole("rounds", rounds, 3), number("block", block, above=0), number("warmup", warmup, least=0)
    for name, function in (("ours", ours), *theirs.items()):
        require(callable(function), name, given=function, allowed="a function without arguments")
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    clock = clock or (_gpu_clock(device) if on_gpu else _cpu_clock)
    sides = [ours, *theirs.values()]
    shortest = min(_warm(function, warmup, clock) for function in sides)
    calls = 1 if on_gpu else max(1, round(block / max(shortest, 1e-9)))
    times = _take_turns(sides, rounds, calls, clock)
    ratios = [[b / a for a, b in zip(times[0], other, strict=True)] for other in times[1:]]
    return Field(
        spread(times[0]),
        dict(zip(theirs, map(spread, times[1:]), strict=True)),
        dict(zip(theirs, map(spread, ratios), strict=True)),
        rounds,
        calls,
    )


def _take_turns(sides, rounds, calls, clock):
    """One list of seconds per call for each side."""
    times = [[] for _ in sides]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            # Another side goes first in each round: what the one before leaves in the caches
            # evens out.
            for place in range(len(sides)):
                which = (turn + place) % len(sides)
                times[which].append(clock(sides[which], calls))
            gc.collect(1)  # what the round left; a full collection takes longer than the round
    finally:
        if collecting:
            gc.enable()
    return times


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


def relative_difference(a, b):
    """Largest ‖a - b‖ / ‖b‖ over tensors, or over the tensors of two tuples of the same length.

    Where b is zero it is ‖a‖. Half-precision tensors are compared in float32 on a GPU, to hold less
    memory, and everything in float64 on the CPU.

    >>> relative_difference(torch.full((4,), 1.5), torch.ones(4))
    0.5
    """
    a, b = (list(x) if isinstance(x, (tuple, list)) else [x] for x in (a, b))
    require(len(a) == len(b), "b", given=f"{len(b)} tensors", allowed=f"{len(a)}, as in a")
    found = 0.0
    for x, y in zip(a, b, strict=True):
        fits = x.shape == y.shape
        require(fits, "b", given=f"shape {list(y.shape)}", allowed=f"shape {list(x.shape)}")
        dtype = torch.float32 if x.is_cuda and x.element_size() < 4 else torch.float64
        x, y = x.detach().to(dtype), y.detach().to(dtype)
        size = y.norm().item()
        apart = (x - y).norm().item() / (size or 1.0)
        # A NaN is larger than every number, which max() would not say.
        found = max(found, apart if apart == apart else float("inf"))
    return found


def backward_only(function, inputs):
    """A function that runs the backward pass alone and returns the gradients of `inputs`.

    The forward pass runs once, here, and its graph is kept; the gradient of the output is fixed and
    drawn once.

    >>> x = torch.ones(2, requires_grad=True)
    >>> [g.shape for g in backward_only(lambda: x * 3, [x])()]
    [torch.Size([2])]
    """
    out = function()
    grad = _cotangent(out)

    def run():
        return torch.autograd.grad(out, inputs, grad, retain_graph=True)

    return run


def with_backward(function, inputs):
    """A function that runs `function()` forward and backward and returns the gradients of `inputs`.

    The gradient of the output is fixed and drawn once: `out.sum()` would hand an expanded tensor to
    the backward pass, which no training step does.

    >>> x = torch.ones(2, requires_grad=True)
    >>> [g.shape for g in with_backward(lambda: x * 3, [x])()]
    [torch.Size([2])]
    """
    grad = _cotangent(function())

    def run():
        return torch.autograd.grad(function(), inputs, grad)

    return run


def _cotangent(out):
    draw = torch.Generator(device=out.device).manual_seed(0)
    return torch.randn(out.shape, generator=draw, device=out.device, dtype=out.dtype)


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
    """Seconds of one call between two events; the L2 cache is overwritten before each.

    The GPU pauses first for about a tenth of a millisecond, in which the call is queued: otherwise
    short work would be charged with the time that Python takes to launch it.
    """
    size = 2 * max(torch.cuda.get_device_properties(device).L2_cache_size, 2**20)
    scratch = torch.empty(size, dtype=torch.int8, device=device)

    def clock(function, calls):
        total = 0.0
        with torch.cuda.device(device):
            for _ in range(calls):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(PAUSE)
                scratch.zero_()
                begin.record()
                function()
                end.record()
                end.synchronize()
                total += begin.elapsed_time(end) / 1000
        return total / calls

    return clock
