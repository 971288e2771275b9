"""The prepared script for a GPU: a rehearsal of every step, the clock, the tests' outcomes."""

import json
import os
import time

import pytest
import torch

from labcore.bench import gpu_check, record
from labcore.bench.gpu_check import (
    GROUPS,
    Clock,
    Report,
    _counted,
    apart,
    faults,
    main,
    run_tests,
)

SAMPLE = """
import pytest

@pytest.mark.gpu
def test_passes(): pass

@pytest.mark.gpu
@pytest.mark.parametrize("words", ["a b"])
def test_fails(words): assert 0

@pytest.mark.gpu
@pytest.mark.skip(reason="needs a device " * 30)
def test_skips(): pass

def test_of_the_cpu(): assert 0
"""


@pytest.fixture
def sample(tmp_path):
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / "test_sample.py").write_text(SAMPLE)
    return folder


def test_outcomes_of_the_marked_tests_are_counted(sample, tmp_path):
    found = run_tests(sample, tmp_path / "log.txt", 120)
    assert (found["passed"], found["failed"], found["skipped"], found["exit"]) == (1, 1, 1, 1)
    assert [one.rpartition("::")[2] for one in found["failures"]] == ["test_fails[a b]"]
    assert "assert 0" in found["last words"]


def test_tests_that_take_too_long_are_cut_off(sample, tmp_path):
    begun = time.monotonic()
    found = run_tests(sample, tmp_path / "log.txt", 0.2)
    assert time.monotonic() - begun < 30
    assert found["exit"] is None and "the time of this step" in found["cut off"]


def test_what_ran_before_the_cut_is_counted():
    log = """\
x/test_a.py::test_one[B1 T5] PASSED                  [ 20%]
x/test_a.py::test_two FAILED                         [ 40%]
x/test_a.py::test_three SKIPPED (needs PASSED words) [ 60%]
x/test_a.py::test_four ERROR                         [ 80%]
x/test_a.py::test_five """
    found = _counted(log, None, 9.0)
    counts = {key: found[key] for key in ("passed", "failed", "skipped", "error")}
    assert set(counts.values()) == {1}
    assert found["failures"] == ["x/test_a.py::test_two", "x/test_a.py::test_four"]
    # The same words in the summary at the end are no second outcome.
    again = log + "PASSED [100%]\n=== short summary ===\nFAILED x/test_a.py::test_two - [100%]\n"
    assert _counted(again, 1, 9.0)["failed"] == 1


def test_outcomes_of_several_processes_are_counted(sample, tmp_path, monkeypatch):
    pytest.importorskip("xdist")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    found = run_tests(sample, tmp_path / "log.txt", 120)
    assert "[gw" in (tmp_path / "log.txt").read_text()
    assert (found["passed"], found["failed"], found["skipped"], found["exit"]) == (1, 1, 1, 1)
    assert [one.rpartition("::")[2] for one in found["failures"]] == ["test_fails[a b]"]


def test_without_tests_or_time_it_says_so(tmp_path):
    told = run_tests(tmp_path / "nowhere", tmp_path / "log.txt", 10)
    assert "run it from a checkout" in told["not run"]
    assert run_tests(tmp_path, tmp_path / "log.txt", 0)["not run"] == "the time was over"


def test_a_rehearsal_goes_through_every_step(sample, tmp_path, capsys):
    (sample / "test_sample.py").write_text("def test_of_the_cpu(): pass\n")
    out = tmp_path / "out"
    code = main(["--rehearse", "--out", str(out), "--tests", str(sample)])
    found = json.loads((out / "gpu_check.json").read_text())
    assert list(found) == ["machine", "tests", *GROUPS, "sweep", "seconds"]
    # No test is marked gpu there, which pytest tells by its exit code: the one fault.
    assert code == 1 and faults(found) == ["tests: pytest ended with 5"], faults(found)
    assert found["machine"]["rehearsal"] and found["machine"]["measured ceilings"]["flops"] > 0
    (kept,) = [path for path in out.glob("*.json") if path.stem != "gpu_check"]
    rows = json.loads(kept.read_text())["rows"]
    assert {row["group"] for row in rows} == set(GROUPS)
    for group in GROUPS:
        assert len(found[group]["rows"]) == sum(row["group"] == group for row in rows) > 3
        assert all(row["ran"].startswith("eager") for row in found[group]["rows"])
    assert {one["group"] for one in found["sweep"]} == set(GROUPS)
    assert all(one["faster"] >= 1.0 and one["tiles"] for one in found["sweep"])
    assert "1 faults" in capsys.readouterr().out
    assert {row["group"] for row in record._read(kept)["rows"]} == set(GROUPS)


def test_steps_without_time_are_told(tmp_path, capsys):
    found = gpu_check.check(tmp_path, 1e-6, rehearse=True)
    told = faults(found)
    assert told == ["tests: not run: the time was over"] + [
        f"{step}: the time was over" for step in (*GROUPS, "sweep")
    ]
    assert json.loads((tmp_path / "gpu_check.json").read_text()) == found


def test_a_step_that_fails_leaves_the_others(tmp_path, monkeypatch):
    def half(group, device, report, clock, options):
        report.keep(group, {"rows": []})
        if group == "window":
            raise RuntimeError("device lost")

    monkeypatch.setattr(gpu_check, "measure_group", half)
    monkeypatch.setattr(gpu_check.sweep, "sweep", lambda *given, **options: [])
    monkeypatch.setattr(gpu_check, "run_tests", lambda *given: {"exit": 0})
    found = gpu_check.check(tmp_path, rehearse=True)
    assert found["window"] == {"error": "RuntimeError: device lost", "before": {"rows": []}}
    assert found["moe"] == {"rows": []} and faults(found) == ["window: RuntimeError: device lost"]


def test_a_process_of_its_own_is_ended_and_its_end_told():
    assert apart(os._exit, 3, seconds=60) == "the process ended with 3"
    assert apart(time.sleep, 300, seconds=1) == "cut off after 1 s"


def test_a_group_measured_in_another_process_comes_back(tmp_path):
    clock = Clock(5)
    report = Report(tmp_path, clock)
    report.keep("attention", {"rows": []})
    given = ("moe", "cpu", report, clock, gpu_check.REHEARSAL)
    assert apart(gpu_check.measure_group, *given, seconds=200) is None
    report.load()
    assert list(report.found) == ["attention", "moe"] and len(report.found["moe"]["rows"]) > 3


def test_faults_are_all_told():
    rows = [{"title": "slow", "verdict": "below floor"}, {"title": "good", "verdict": "goal"}]
    swept = {"table": "t", "key": [90, 16, 64], "tile": {"rows": 64}, "not measured": "no time"}
    found = {
        "tests": {"exit": 1, "failures": ["a::b"]},
        "attention": {"rows": rows, "left out": ["attention: late"]},
        "window": {"rows": [], "failed": [{"title": "bad", "error": "E: x"}]},
        "moe": {"error": "cut off after 9 s", "rows": []},
        "sweep": [swept],
    }
    assert faults(found) == [
        "tests: a::b",
        "not reached: attention: late",
        "attention: slow: below floor",
        "window: bad: failed: E: x",
        "moe: cut off after 9 s",
        "sweep: t (90, 16, 64), 64: no time",
    ]


@pytest.mark.parametrize("code", [1, 2, 5, -11])
def test_an_end_of_pytest_without_a_failed_test_is_a_fault(code):
    found = {"tests": {"exit": code, "failures": []}, **{g: {} for g in GROUPS}, "sweep": []}
    assert faults(found) == [f"tests: pytest ended with {code}"]


def test_command_line_refuses(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for given, words in (
        ([], "needs a CUDA device; --rehearse"),
        (["--rehearse", "--minutes", "0"], "minutes: got 0.0; allowed: a finite number above 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(given)
        assert stopped.value.code == 2 and words in capsys.readouterr().err
