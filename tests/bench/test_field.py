"""Rows with many sides: times, rates, shares and judgements, on sides whose times are ours."""

import itertools
import json
import math

import pytest
import torch

from labcore.bench import ceilings, field, record, registry, rows
from labcore.bench.field import judge, measure_all, rate_of
from labcore.bench.harness import Spread, backward_only, compare_all, relative_difference
from labcore.bench.sides import NotThere, Side

X = torch.arange(1.0, 16.0).reshape(3, 5)
QUICK = {"rounds": 3, "block": 1e-4, "warmup": 0.0}


def ours():
    return X * 2


def slow():
    return X + X


def fast():
    return 2 * X


def clock(times):
    turns = {function: itertools.cycle([value]) for function, value in times.items()}
    return lambda function, calls: next(turns[function])


def row(**asked):
    fixed = ("toy", "work", "others", None, None, None, 1e-6, ("cpu",))
    return registry.Row(*fixed)._replace(**asked)


def missing():
    raise NotThere("it came later")


def sides():
    return {
        "SDPA slow": Side(lambda: slow),
        "SDPA fast": Side(lambda: fast),
        "other": Side(lambda: lambda: X * 3),
        "none": Side(missing),
        "half of slow": Side(lambda: slow, share=0.5),
    }


@pytest.fixture
def found(monkeypatch):
    top = {"flops": 4e12, "bytes": 2e12, "from": "measured"}
    monkeypatch.setattr(field, "ceilings", lambda device: top)
    times = clock({ours: 0.5, slow: 2.0, fast: 1.0})
    asked = {"flops": 1e12, "rate": (1.5, 3.0), "ratios": {"SDPA": (2.5, 2.5), "none": (1.0, 1.0)}}
    asked["ratios"]["half of slow"] = (1.9, 2.0)
    return measure_all(row(**asked), ours, sides(), clock=times, **QUICK)


def test_the_ratio_is_to_the_fastest_side(found):
    assert found["against"] == "SDPA fast"
    assert found["ratio"]["median"] == 2.0 and found["theirs_ms"]["median"] == 1000.0
    assert found["sides"]["SDPA slow"] == {
        "ratio": {"median": 4.0, "low": 4.0, "high": 4.0},
        "ms": {"median": 2000.0, "low": 2000.0, "high": 2000.0},
    }


def test_no_side_is_dropped(found):
    assert list(found["sides"]) == list(sides())
    assert found["sides"]["none"] == {"not there": "it came later"}
    assert found["sides"]["other"]["not there"].startswith("differs from ours by 0.5, relative")


def test_a_share_of_a_side_is_a_yardstick(found):
    assert found["sides"]["half of slow"]["ratio"]["median"] == 2.0
    # Half of the slow side takes as long as the fast one, but it competes with nobody.
    assert found["against"] == "SDPA fast"


def test_rate_and_share_of_the_ceiling(found):
    assert found["rate"] == {"unit": "TFLOP/s", "median": 2.0, "low": 2.0, "high": 2.0}
    assert found["share"] == 0.5 and found["ceiling"] == {"value": 4.0, "from": "measured"}
    assert found["work"] == {"flops": 1e12}


def test_everything_asked_is_judged(found):
    said = {one["what"]: (one["value"], one["verdict"]) for one in found["asked"]}
    assert said == {
        "TFLOP/s": (2.0, "information"),  # a rate is asked for on one GPU only
        "ratio to SDPA": (2.0, "below floor"),
        "ratio to none": (None, "not there"),
        "ratio to half of slow": (2.0, "goal"),
    }
    assert found["verdict"] == "below floor"
    assert json.loads(json.dumps(found)) == found


def test_rates_are_judged_on_the_gpu_they_are_asked_for():
    asked = row(flops=1e12, rate=(1.5, 3.0))
    rate = {"rate": {"unit": "TFLOP/s", "median": 2.0}}
    assert [one["verdict"] for one in judge(asked, {}, rate, True)] == ["floor"]
    assert [one["verdict"] for one in judge(asked, {}, rate, False)] == ["information"]


def test_a_slower_time_is_the_lower_end_of_the_rate():
    told = rate_of(row(bytes=1e12), Spread(0.5, 0.25, 1.0), "cpu")["rate"]
    assert told == {"unit": "TB/s", "median": 2.0, "low": 1.0, "high": 4.0}
    assert rate_of(row(), Spread(0.5, 0.25, 1.0), "cpu") == {}


def test_when_no_side_agrees_ours_is_in_doubt():
    with pytest.raises(ValueError, match="row: got sides of 'toy', 'work'.*differs from ours by"):
        measure_all(row(), ours, {"other": Side(lambda: lambda: X * 3)}, **QUICK)


def test_a_nan_is_no_agreement():
    spoilt = {"nan": Side(lambda: lambda: X * math.nan), "fast": Side(lambda: fast)}
    found = measure_all(row(), ours, spoilt, **QUICK)
    assert "inf" in found["sides"]["nan"]["not there"] and found["against"] == "fast"


def test_without_any_side_the_time_remains():
    found = measure_all(row(), ours, {"none": Side(missing)}, **QUICK)
    assert found["ratio"] is None and found["ours_ms"]["median"] > 0
    assert found["verdict"] == "information"
    assert record.line(found).splitlines() == [
        record.line(found).splitlines()[0],
        "    none: not there: it came later",
    ]
    assert "no other side here" in record.line(found)


def test_lines_tell_everything(found):
    told = record.line(found)
    for words in ("against SDPA fast", "2 TFLOP/s, 50% of the ceiling", "below floor"):
        assert words in told.splitlines()[0]
    assert "    ratio to SDPA: 2 (floor 2.5, goal 2.5): below floor" in told
    assert "    none: not there: it came later" in told and "    SDPA slow: ratio 4.00" in told


def test_a_row_with_a_dict_of_sides_is_measured_with_all(monkeypatch):
    asked = row(build=lambda device: (ours, {"fast": Side(lambda: fast)}))
    assert record.measure(asked, **QUICK)["against"] == "fast"


def test_each_side_goes_first_in_turn():
    log = []

    def note(function, calls):
        log.append(function.__name__[0])
        return 1.0

    compare_all(ours, {"slow": slow, "fast": fast}, rounds=4, clock=note)
    assert "".join(log[-12:]) == "osf" + "sfo" + "fos" + "osf"
    alone = compare_all(ours, {}, rounds=3, clock=note)
    assert alone.ours.median == 1.0 and alone.theirs == {}


def test_relative_difference():
    assert relative_difference((X * 1.25, X), [X, X]) == 0.25
    assert relative_difference(torch.full((4,), 3.0), torch.zeros(4)) == 6.0
    assert relative_difference(torch.zeros(0), torch.zeros(0)) == 0.0
    assert relative_difference(X * math.nan, X) == math.inf
    with pytest.raises(ValueError, match=r"b: got shape \[5\]"):
        relative_difference(torch.zeros(3), torch.zeros(5))


def test_the_backward_pass_alone_runs_again_and_again():
    x, runs = X.double().requires_grad_(), []

    def square():
        runs.append(1)
        return x * x

    run = backward_only(square, [x])
    (first,), (second,) = run(), run()
    assert torch.equal(first, second) and len(runs) == 1
    # The output's gradient is the one that `with_backward` draws, too.
    draw = torch.Generator().manual_seed(0)
    assert torch.equal(first, 2 * x * torch.randn(3, 5, generator=draw, dtype=torch.float64))


def test_ceilings_are_stated_for_known_devices_and_measured_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert ceilings.ceilings("cuda") == {"flops": 790e12, "bytes": 4.3e12, "from": "stated"}
    assert ceilings.asked_here("cuda") and not ceilings.asked_here("cpu")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-40GB")
    assert not ceilings.asked_here("cuda")
    here = ceilings.ceilings("cpu")
    assert here["from"] == "measured" and here is ceilings.ceilings("cpu")
    # A matrix product in a Python loop would be a thousand times below.
    assert here["flops"] > 1e9 and here["bytes"] > 1e8


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rate": (1.0, 2.0)}, "rate: got .*; allowed: None without flops or bytes"),
        ({"flops": 1.0, "rate": (3.0, 2.0)}, "rate: got 3.0; allowed: None, or a number up to"),
        ({"flops": 1.0, "bytes": 1.0}, "bytes: got both bytes and flops"),
        ({"ratios": {"SDPA": (3.0, 2.0)}}, "SDPA: got 3.0; allowed: None, or a number up to"),
    ],
)
def test_registration_refuses(asked, words, monkeypatch):
    rows()
    monkeypatch.setattr(registry, "_ROWS", list(registry._ROWS))
    with pytest.raises(ValueError, match=words):
        registry.row("toy", "new", against="x", **asked)(None)


def test_a_run_goes_on_past_a_row_that_fails(monkeypatch):
    rows()
    monkeypatch.setattr(registry, "_ROWS", list(registry._ROWS))
    for name in ("good", "bad", "late"):
        build = {"good": lambda device: (ours, fast), "bad": lambda device: 1 / 0}.get(name)
        registry.row("toy", name, against="x", devices=("cpu",))(build)
    kept, told = [], []
    options = {"progress": told.append, "each": lambda r: kept.append(len(r["rows"])), **QUICK}
    found = record.run("toy", stop=lambda: len(kept) == 2, **options)
    assert [one["title"] for one in found["rows"]] == ["good"] and kept == [1, 1]
    assert found["failed"][0]["error"] == "ZeroDivisionError: division by zero"
    assert found["left out"] == ["toy: late"] and "toy: bad: failed: Zero" in told[1]
    with pytest.raises(ZeroDivisionError):
        record.run("toy", progress=told.append, **QUICK)
