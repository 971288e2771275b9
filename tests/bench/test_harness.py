"""The harness on functions whose times are known, because the clock is ours."""

import contextlib
import gc
import itertools
import types

import pytest
import torch

from labcore.bench import compare, spread, with_backward
from labcore.bench.harness import _cpu_clock, _gpu_clock, largest_difference


def known_clock(times, log=None):
    """A clock that does not wait: each function has its own list of times, used in turn."""
    turns = {function: itertools.cycle(values) for function, values in times.items()}

    def clock(function, calls):
        if log is not None:
            log.append((function, calls))
        return next(turns[function])

    return clock


def ours():
    return "ours"


def theirs():
    return "theirs"


def test_ratio_is_their_time_over_ours():
    found = compare(ours, theirs, rounds=5, clock=known_clock({ours: [2.0], theirs: [3.0]}))
    assert found.ratio == (1.5, 1.5, 1.5)
    assert (found.ours.median, found.theirs.median, found.rounds) == (2.0, 3.0, 5)


def test_drift_that_hits_both_sides_leaves_the_ratio():
    slower = [1.0, 1.0, 1.0, 4.0, 4.0, 9.0, 9.0, 9.0]
    times = {ours: slower, theirs: [1.25 * t for t in slower]}
    found = compare(ours, theirs, rounds=6, clock=known_clock(times))
    assert found.ratio == pytest.approx((1.25, 1.25, 1.25))
    assert found.ours.low < found.ours.high


def test_one_spoilt_round_does_not_move_the_median():
    times = {ours: [1.0, 1.0, 1.0, 1.0, 50.0, 1.0, 1.0], theirs: [2.0]}
    found = compare(ours, theirs, rounds=5, clock=known_clock(times))
    assert found.ratio.median == 2.0


def test_sides_take_turns_and_each_goes_first_every_other_round():
    log = []
    compare(ours, theirs, rounds=4, clock=known_clock({ours: [1.0], theirs: [1.0]}, log))
    rounds = [function.__name__[0] for function, _ in log[-8:]]
    assert "".join(rounds) == "ot" + "to" + "ot" + "to"
    warm = [function.__name__[0] for function, _ in log[:-8]]
    assert warm.count("o") >= 2 and warm.count("t") >= 2


def test_short_work_is_repeated_equally_for_both_sides():
    log = []
    clock = known_clock({ours: [1e-4], theirs: [1e-3]}, log)
    found = compare(ours, theirs, rounds=3, block=0.02, clock=clock)
    assert found.calls == 200
    assert {calls for _, calls in log[-6:]} == {200}
    long = compare(ours, theirs, rounds=3, clock=known_clock({ours: [2.0], theirs: [2.0]}))
    assert long.calls == 1


def test_the_real_clock_sees_twice_the_work():
    work = torch.ones(200, 200)
    found = compare(lambda: work @ work, lambda: work @ work @ work, rounds=9, block=2e-3)
    assert found.ratio.median > 1.2
    assert found.ours.low > 0 and _cpu_clock(lambda: None, 3) >= 0


def test_the_clock_of_a_gpu_times_the_call_alone(monkeypatch):
    """Without a GPU: in which order the clock queues its pause, the cache's filling, the call."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 2.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append("pause"))
    facts = types.SimpleNamespace(L2_cache_size=3000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    clock = _gpu_clock(torch.device("cpu"))
    assert clock(lambda: log.append("call"), 2) == 0.002
    assert log == ["pause", "event", "call", "event", "wait"] * 2


def test_garbage_collection_is_left_as_it_was():
    assert gc.isenabled()
    compare(ours, theirs, rounds=3, clock=known_clock({ours: [1.0], theirs: [1.0]}))
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        compare(ours, lambda: 1 / 0, rounds=3, block=1e-4, warmup=0)
    assert gc.isenabled()


def test_spread_is_median_and_quartiles():
    assert spread(range(1, 10)) == (5, 3, 7)
    assert spread([4.0]) == (4.0, 4.0, 4.0)


def test_largest_difference_of_tensors_and_tuples():
    a, b = torch.zeros(3, 5), torch.zeros(3, 5)
    b[1, 2] = -0.5
    assert largest_difference(a, b) == 0.5
    assert largest_difference((a, a), [a, b]) == 0.5
    assert largest_difference(torch.zeros(0), torch.zeros(0)) == 0.0


def test_with_backward_gives_gradients_of_a_fixed_cotangent():
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    (linear,) = with_backward(lambda: 2 * x, [x])()
    (square,) = with_backward(lambda: x * x, [x])()
    # The same output gradient on both sides: that is what makes two sides comparable.
    assert (square - linear * x).abs().max() < 1e-12
    assert len(set(linear.flatten().tolist())) == 15


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compare(ours, theirs, rounds=2), "rounds: got 2; allowed: a whole number of at"),
        (lambda: compare(ours, theirs, rounds=True), "rounds: got True"),
        (lambda: compare(ours, "theirs"), "theirs: got theirs"),
        (lambda: spread([]), "values: got none"),
        (lambda: largest_difference(torch.zeros(3), torch.zeros(5)), "b: got shape"),
        (lambda: largest_difference(torch.zeros(3), []), "b: got 0 tensors"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
