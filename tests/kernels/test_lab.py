"""Functions of a page, run in a process of their own, and what is shown where Triton is missing."""

import importlib.util
import json

import pytest
import torch

from labcore.kernels.verify import lab
from labcore.kernels.verify.lab import tl

THERE = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not THERE, reason="needs Triton")


def add_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def in_the_interpreter(n):
    x, out = torch.arange(n) * 1.0, torch.zeros(n)
    add_one[(1,)](x, out, n, BLOCK=16)
    print("sum", out.sum().item())
    return out.tolist()


def the_mode():
    import os

    return os.environ.get("TRITON_INTERPRET")


def fails():
    raise KeyError("planted")


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "RECORDS", tmp_path / "recorded.json")
    lab._records.cache_clear()
    yield tmp_path / "recorded.json"
    lab._records.cache_clear()


@needs_triton
def test_a_kernel_of_the_page_runs_in_the_interpreter(capsys, records):
    assert lab.interpret(in_the_interpreter, 3, using=[add_one]) == [1.0, 2.0, 3.0]
    assert capsys.readouterr().out == "sum 6.0\n"
    assert not records.exists()


@needs_triton
def test_each_mode_has_its_process(records):
    assert lab.interpret(the_mode) == "1"
    assert lab.compiled(the_mode) is None


@needs_triton
def test_an_error_there_is_an_error_here(records):
    with pytest.raises(RuntimeError, match="KeyError: 'planted'"):
        lab.interpret(fails)


@needs_triton
def test_results_are_kept_compared_and_shown_without_triton(monkeypatch, capsys, records):
    monkeypatch.setenv(lab.RECORD, "write")
    lab.interpret(in_the_interpreter, 2, using=[add_one])
    lab.interpret(in_the_interpreter, 3, using=[add_one])
    lab.interpret(in_the_interpreter, 3, using=[add_one])
    names = [key.split(" ", 1)[1] for key in json.loads(records.read_text())]
    assert names == ["in_the_interpreter [2]", "in_the_interpreter [3]"]
    monkeypatch.setenv(lab.RECORD, "check")
    lab.interpret(in_the_interpreter, 3, using=[add_one])
    with pytest.raises(ValueError, match="what is recorded"):
        lab.interpret(in_the_interpreter, 4, using=[add_one])
    capsys.readouterr()
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert lab.interpret(in_the_interpreter, 3, using=[add_one]) == [1.0, 2.0, 3.0]
    assert capsys.readouterr().out == "(recorded: Triton is not installed here)\nsum 6.0\n"
    with pytest.raises(RuntimeError, match="no result of this code"):
        lab.interpret(in_the_interpreter, 5, using=[add_one])


def test_what_is_not_a_function_is_refused(records):
    with pytest.raises(ValueError, match="function: got 'x'"):
        lab.interpret("x")
