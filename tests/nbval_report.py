"""Pytest plugin of the notebook gate: what each notebook took, and which claims a failure concerns.

Load it with `-p tests.nbval_report`. `--status FILE` writes seconds and peak memory of every
notebook for the book's status page, so that one execution serves the gate and that page.
"""

import ast
import json
import re
import threading
import time
from pathlib import Path

import psutil
import pytest

MIB = 2**20
PROPERTY = "notebook"


def pytest_addoption(parser):
    parser.addoption("--status", default=None, help="JSON file for seconds and memory by notebook")


def pytest_configure(config):
    config.pluginmanager.register(Report(config), "notebook-report")


def claims_in(source):
    """Ids that a cell's `claim(...)` calls name, in order.

    >>> claims_in('claim("A02-01", weights=w)')
    ['A02-01']
    """
    text = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args]
    named = [n for n in calls if getattr(n.func, "attr", getattr(n.func, "id", "")) == "claim"]
    return [n.args[0].value for n in named if isinstance(n.args[0], ast.Constant)]


def high_water(pid):
    """Bytes of memory that a process held at most, as Linux keeps them; 0 elsewhere."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


class Meter:
    """Largest memory of a process and its children together while the `with` block runs."""

    def __init__(self, pid, pause=0.2):
        self.root = psutil.Process(pid)
        self.pause = pause
        self.peak = 0
        self.cpu = 0.0
        self._seen = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._sample()
        self.peak = max(self.peak, high_water(self.root.pid))
        self.cpu = sum(self._seen.values())

    def _watch(self):
        while not self._stop.wait(self.pause):
            self._sample()

    def _sample(self):
        total = 0
        try:
            processes = [self.root, *self.root.children(recursive=True)]
        except psutil.Error:
            return
        for process in processes:
            try:
                total += process.memory_info().rss
                times = process.cpu_times()
                self._seen[process.pid] = sum(times[:4])  # its own and of children that ended
            except psutil.Error:  # it ended between the two lines
                continue
        self.peak = max(self.peak, total)


class Report:
    """Collects one row for each cell, on the worker that ran it, and adds them up at the end."""

    def __init__(self, config):
        self.config = config
        self.worker = hasattr(config, "workerinput")
        self.rows = {}
        self.failed = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        kernel = getattr(getattr(item, "parent", None), "kernel", None)
        if kernel is None:
            yield
            return
        with Meter(kernel.km.provisioner.process.pid) as meter:
            yield
        item.stash[METER] = (meter.peak, meter.cpu)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        cell = getattr(item, "cell", None)
        if cell is None:
            return
        report = outcome.get_result()
        peak, cpu = item.stash.get(METER, (0, 0.0))
        ids = claims_in(cell.source)
        report.user_properties.append(
            (
                PROPERTY,
                {
                    "phase": call.when,
                    "seconds": report.duration,
                    "peak": peak,
                    "cpu": cpu,
                    "number": item.cell_num + 1,
                    "claims": ids,
                },
            )
        )
        if report.failed:
            told = f"{Path(item.path).name}, cell [{item.cell_num + 1}]"
            told += f", claim {', '.join(ids)}" if ids else ", no claim in it"
            report.longrepr = f"{told}\n{report.longreprtext}"

    def pytest_runtest_logreport(self, report):
        rows = [value for name, value in report.user_properties if name == PROPERTY]
        if self.worker or not rows:
            return
        name = report.nodeid.partition("::")[0]
        self.rows.setdefault(name, []).append(rows[-1])
        if report.failed:
            self.failed.append((name, rows[-1]))

    def pytest_terminal_summary(self, terminalreporter):
        if self.worker or not self.failed:
            return
        terminalreporter.section("notebook, cell, claims")
        for name, row in self.failed:
            told = ", ".join(row["claims"]) or "none"
            terminalreporter.line(f"{name}  cell [{row['number']}]  claims: {told}")

    def pytest_sessionfinish(self):
        target = self.config.getoption("--status")
        if self.worker or not target or not self.rows:
            return
        path = Path(target)
        before = json.loads(path.read_text()).get("notebooks", {}) if path.exists() else {}
        root = Path(self.config.rootpath) / "notebooks"
        known = {k: v for k, v in before.items() if (root / f"{k}.ipynb").exists()}
        for name, rows in self.rows.items():
            known[short(name)] = summed(rows, sum(name == n for n, _ in self.failed))
        status = {"versions": versions(), "date": time.strftime("%Y-%m-%d")}
        status["notebooks"] = dict(sorted(known.items()))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(status, indent=1, ensure_ascii=False) + "\n")


METER = pytest.StashKey()


def short(nodeid):
    """Folder and name of a notebook without its ending.

    >>> short("notebooks/a_transformer/a01_self_attention.ipynb")
    'a_transformer/a01_self_attention'
    """
    return nodeid.removeprefix("notebooks/").removesuffix(".ipynb")


def summed(rows, failures):
    """One notebook's figures from the rows of its cells (set-up, call and tear-down of each)."""
    calls = [row for row in rows if row["phase"] == "call"]
    return {
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "cpu_seconds": round(max((row["cpu"] for row in calls), default=0.0), 1),
        "peak_mib": round(max((row["peak"] for row in calls), default=0) / MIB),
        "cells": len(calls),
        "claims": sum(len(row["claims"]) for row in calls),
        "failures": failures,
    }


def versions():
    from labcore import runtime

    return {name: version for name, version in runtime.versions().items() if version}
