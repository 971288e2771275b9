"""python -m labcore.bench.gpu_check [--out FOLDER] [--minutes 10] [--rehearse]

Everything that needs a GPU, prepared for the few minutes for which one is lent: the kernels' own
tests, the three groups of the benchmark, and a sweep over tiles. What is measured is written at
once, so that a run that is cut off still counts; a step that the time does not reach is told as
such. A rehearsal walks through every step on a CPU, with the eager forms and few short rounds: its
numbers mean nothing.
"""

import argparse
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch

import labcore
from labcore import runtime
from labcore.bench import sweep
from labcore.bench.ceilings import measured_ceilings
from labcore.bench.field import release
from labcore.bench.record import keep, run, slug
from labcore.shapes import number

__all__ = ["check", "faults", "main"]

GROUPS = ("attention", "window", "moe")
# By which share of the time each step must be over; what one leaves goes to the next.
UNTIL = {"tests": 0.4, "attention": 0.6, "window": 0.68, "moe": 0.78, "sweep": 0.97}
ROOT = Path(labcore.__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "kernels" / "gpu"
# A row that has begun when the time of its step ends may still be finished, in seconds.
GRACE = 30
REHEARSAL = {"rounds": 3, "block": 1e-4, "warmup": 0.0}
WORDS = "(PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)"
# How pytest tells an outcome, alone and from several processes.
OUTCOMES = (
    (re.compile(rf"^(?P<name>\S+::.*?) {WORDS}\b.*\[ *\d+%\]$", re.M), 2),
    (re.compile(rf"^\[gw\d+\] \[ *\d+%\] {WORDS} (?P<name>\S+::.*?) *$", re.M), 1),
)


class Clock:
    """Seconds since the start, and how many are left for a step."""

    def __init__(self, minutes):
        self.seconds, self.begun = 60 * minutes, time.monotonic()

    def spent(self):
        return time.monotonic() - self.begun

    def left(self, step):
        """Seconds until the step must be over."""
        return UNTIL[step] * self.seconds - self.spent()


class Report:
    """What was found so far, in `gpu_check.json`: written anew after every step."""

    def __init__(self, folder, clock):
        self.folder, self.clock, self.found = Path(folder), clock, {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def tell(self, text):
        print(f"[{self.clock.spent():5.0f} s] {text}", flush=True)

    def keep(self, step, found):
        self.found[step] = found
        draft = self.folder / ".gpu_check.tmp"
        text = json.dumps(self.found, indent=1, ensure_ascii=False, default=str)
        draft.write_text(text + "\n", encoding="utf-8")
        os.replace(draft, self.folder / "gpu_check.json")

    def load(self):
        """What another process kept."""
        self.found = json.loads((self.folder / "gpu_check.json").read_text(encoding="utf-8"))


def run_tests(tests, log, seconds):
    """Outcomes of the tests marked gpu in a folder, counted from the log: a dict.

    The log is written while they run, so that it tells how far they came if the time ends first.
    """
    if seconds <= 0:
        return {"not run": "the time was over"}
    if not Path(tests).is_dir():
        return {"not run": "there are no tests here; run it from a checkout"}
    command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider"]
    # Most of the time goes into compiling, which several processes do at once.
    workers = min(6, (os.cpu_count() or 1) // 2)
    command += ["-n", str(workers)] * (workers > 1 and find_spec("xdist") is not None)
    # Long reasons of skipped tests would push the outcome out of the line.
    environment = {**os.environ, "COLUMNS": "240", "PY_COLORS": "0"}
    begun = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [*command, str(tests)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its workers too, whatever they wait for
            process.wait()
            code = None
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    return _counted(text, code, time.monotonic() - begun)


def _counted(text, code, seconds):
    told = [(m[word], m["name"]) for form, word in OUTCOMES for m in form.finditer(text)]
    words = [word for word, _ in told]
    found = {word.lower(): words.count(word) for word in sorted(set(words))}
    failed = [name for word, name in told if word in ("FAILED", "ERROR")]
    found |= {"exit": code, "seconds": round(seconds, 1), "failures": failed}
    if code is None:
        found["cut off"] = f"after {seconds:.0f} s, the time of this step"
    if code not in (0, None):
        found["last words"] = text[-2000:]
    return found


def measure_group(group, device, report, clock, options):
    """None; the group's rows go into the report and the machine's record as they come."""
    path = report.folder / f"{slug(runtime.machine())}.json"

    def each(record):
        if record["rows"]:
            keep(record, path)
        report.keep(group, _told(record))

    def over():
        return clock.left(group) <= 0

    record = run(group, device=device, progress=report.tell, each=each, stop=over, **options)
    report.keep(group, _told(record))


def apart(step, *given, seconds):
    """None, or why `step(*given)` did not end well in a process of its own.

    A kernel that hangs is ended with its process after `seconds`, and one that reads outside its
    memory spoils every later call, but only there.
    """
    process = multiprocessing.get_context("spawn").Process(target=step, args=given)
    process.start()
    process.join(max(1.0, seconds))
    if process.is_alive():
        process.kill()
        process.join()
        return f"cut off after {seconds:.0f} s"
    return None if process.exitcode == 0 else f"the process ended with {process.exitcode}"


def _group(group, device, report, clock, options):
    """What the report says of a group; on a GPU it is measured in a process of its own."""
    given = (group, device, report, clock, options)
    if device == "cpu":
        ended = measure_group(*given)
    else:
        ended = apart(measure_group, *given, seconds=clock.left(group) + GRACE)
        report.load()
    return report.found.get(group, {}) | ({"error": ended} if ended else {})


def _told(record):
    rows = [
        {key: row.get(key) for key in ("title", "rate", "share", "asked", "ran", "verdict")}
        for row in record["rows"]
    ]
    return {"rows": rows} | {k: record[k] for k in ("failed", "left out") if k in record}


def sweep_tiles(device, report, clock, rehearse, options):
    """The swept entries, kept as they come."""

    def left():
        return clock.left("sweep")

    return sweep.sweep(
        device,
        GROUPS,
        rehearse=rehearse,
        progress=report.tell,
        each=lambda found: report.keep("sweep", found),
        left=left,
        # Many tiles, each of which has run before.
        **{"warmup": 0.05, **options},
    )


def check(folder, minutes=10.0, *, rehearse=False, tests=TESTS):
    """The report as a dict, after all steps: see the module."""
    clock = Clock(minutes)
    report = Report(folder, clock)
    device, options = ("cpu", REHEARSAL) if rehearse else ("cuda", {})
    report.keep("machine", _machine(device, rehearse))
    report.tell(f"{slug(runtime.machine())}, {minutes:g} minutes, into {folder}")
    report.keep("tests", run_tests(tests, report.folder / "tests.txt", clock.left("tests")))
    report.tell(f"tests: {report.found['tests']}")
    steps = {g: lambda g=g: _group(g, device, report, clock, options) for g in GROUPS}
    steps["sweep"] = lambda: sweep_tiles(device, report, clock, rehearse, options)
    for name, step in steps.items():
        if clock.left(name) <= 0:
            report.keep(name, {"not run": "the time was over"})
            report.tell(f"{name}: the time is over")
            continue
        try:
            report.keep(name, step())
        except Exception as error:  # the steps after it still count
            told = {"error": f"{type(error).__name__}: {error}"}
            report.keep(name, told | {"before": report.found.get(name)})
            report.tell(f"{name}: {told['error']}")
    report.keep("seconds", round(clock.spent(), 1))
    return report.found


def _machine(device, rehearse):
    found = {"rehearsal": rehearse, "machine": runtime.machine(), "versions": runtime.versions()}
    found["measured ceilings"] = measured_ceilings(device)
    release()
    return found


def faults(found):
    """Lines about all that failed, was not reached, or lies below its floor."""
    tests = found["tests"]
    lines = [f"tests: {one}" for one in tests.get("failures", ())]
    lines += [f"tests: {key}: {tests[key]}" for key in ("not run", "cut off") if key in tests]
    # Code 1 is told by its failures; 5: no test was collected; others: pytest itself stopped.
    code = tests.get("exit", 0)
    if code not in (0, None) and not (code == 1 and tests.get("failures")):
        lines.append(f"tests: pytest ended with {code}")
    for group in GROUPS:
        told = found[group]
        lines += [f"{group}: {told[key]}" for key in ("not run", "error") if key in told]
        for one in told.get("failed", ()):
            lines.append(f"{group}: {one['title']}: failed: {one['error']}")
        lines += [f"not reached: {title}" for title in told.get("left out", ())]
        for row in told.get("rows", ()):
            if row["verdict"] == "below floor":
                lines.append(f"{group}: {row['title']}: below floor")
    swept = found["sweep"]
    if isinstance(swept, dict):
        return [*lines, f"sweep: {swept.get('error', swept.get('not run'))}"]
    return lines + [f"sweep: {sweep.line(one)}" for one in swept if "not measured" in one]


def main(arguments=None):
    """0 when everything ran and passed; 1 with faults, which are printed; 2 without a GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m labcore.bench.gpu_check",
        description="Tests, measures and tunes the kernels on a GPU within a given time.",
    )
    parser.add_argument("--out", default="gpu-check", help="folder of the report (gpu-check)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all steps together (10)")
    parser.add_argument("--rehearse", action="store_true", help="every step on the CPU, in short")
    parser.add_argument("--tests", default=TESTS, help="folder of the tests marked gpu")
    given = parser.parse_args(arguments)
    if not given.rehearse and not torch.cuda.is_available():
        parser.error("it needs a CUDA device; --rehearse walks through the steps on a CPU")
    try:
        minutes = number("minutes", given.minutes, above=0)
    except ValueError as error:
        parser.error(str(error))
    found = check(given.out, minutes, rehearse=given.rehearse, tests=given.tests)
    told = faults(found)
    print(f"{found['seconds']:.0f} s; {len(told)} faults", *told, sep="\n")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
