"""Running experiments: every point and seed, resumable, and single runs for a page or a check."""

import math
import sys
import time
from datetime import UTC, datetime

from labcore import runtime
from labcore.experiments.registry import find
from labcore.experiments.store import (
    ResultError,
    key_of,
    load,
    path_of,
    plan,
    read,
    refuse_other_code,
    write,
)
from labcore.shapes import require


def run(name, *, seed=None, force=False, folder=None, progress=None):
    """The path of the JSON with all runs of experiment `name`, after doing those it lacks.

    The file is written after each run, so that a run that is stopped goes on where it was. `seed`
    does the runs of one seed only. `force` starts anew; without it, a file of other code and a
    damaged file are refused, never overwritten. `progress` takes one line of text after each run
    and defaults to stderr.
    """
    experiment = find(name)
    if seed is not None:
        allowed = ", ".join(map(str, experiment.seeds))
        require(seed in experiment.seeds, "seed", given=repr(seed), allowed=allowed)
    path = path_of(name, folder)
    found = _fresh(experiment)
    if path.exists() and not force:
        found = read(path)
        refuse_other_code(found, experiment)
    done = {key_of(row["point"], row["seed"]) for row in found["rows"]}
    todo = [key for key in plan(experiment) if key_of(*key) not in done]
    todo = [key for key in todo if seed is None or key[1] == seed]
    tell, begun = progress or _to_stderr, time.perf_counter()
    for count, (point, one_seed) in enumerate(todo, 1):
        row = _one(experiment, one_seed, point)
        row["machine"] = _machine_number(found["machines"])
        found["rows"].append(row)
        order = [key_of(*key) for key in plan(experiment)]
        found["rows"].sort(key=lambda row: order.index(key_of(row["point"], row["seed"])))
        write(path, found)
        left = (time.perf_counter() - begun) / count * (len(todo) - count)
        tell(_line(name, count, len(todo), row, left))
    return path


def replay(name, seed=None, **point):
    """The result of one run, computed now by the code that made the recording.

    `point` must be one of the experiment's points; left out, it is the experiment's own choice.
    """
    experiment = find(name)
    point = point or experiment.replay
    require(point in experiment.points, "point", given=point, allowed=_told(experiment))
    return _one(experiment, experiment.seeds[0] if seed is None else seed, point)["result"]


def check(name, seed=None, folder=None):
    """List of (result, recorded, now) after running the replay point once more with one seed.

    Raises `ResultError` when one lies farther from the recorded value than the experiment's
    tolerance allows.
    """
    experiment = find(name)
    seed = experiment.seeds[0] if seed is None else seed
    allowed = ", ".join(map(str, experiment.seeds))
    require(seed in experiment.seeds, "seed", given=repr(seed), allowed=allowed)
    rows = load(name, folder).rows
    recorded = next(r for r in rows if r["point"] == experiment.replay and r["seed"] == seed)
    now = _one(experiment, seed, experiment.replay)["result"]
    compared = [(key, recorded["result"][key], now[key]) for key in experiment.tolerance]
    for key, then, value in compared:
        if not abs(then - value) <= experiment.tolerance[key]:
            told = f"{key} was {then}, is {value}; allowed difference {experiment.tolerance[key]}"
            raise ResultError(f"{name}, seed {seed}, {experiment.replay}: {told}")
    return compared


def _fresh(experiment):
    return {
        "name": experiment.name,
        "config": experiment.config,
        "points": experiment.points,
        "seeds": list(experiment.seeds),
        "machines": [],
        "rows": [],
    }


def _one(experiment, seed, point):
    import torch

    begun, threads = time.perf_counter(), torch.get_num_threads()
    # One thread: sums split over threads add up in another order, and results would not repeat.
    torch.set_num_threads(1)
    try:
        result = experiment.run(experiment.config, seed, **point)
    finally:
        torch.set_num_threads(threads)
    bad = [k for k, v in result.items() if not (isinstance(v, (int, float)) and math.isfinite(v))]
    require(not bad, "result", given=", ".join(bad), allowed="finite numbers under every name")
    seconds = round(time.perf_counter() - begun, 2)
    return {"point": point, "seed": seed, "result": result, "seconds": seconds}


def _machine_number(machines):
    """Index of this machine with its versions among `machines`, added when it is new."""
    facts = {**runtime.machine(), "threads": 1, "versions": runtime.versions()}
    for number, known in enumerate(machines):
        if {k: v for k, v in known.items() if k != "date"} == facts:
            return number
    machines.append({**facts, "date": datetime.now(UTC).date().isoformat()})
    return len(machines) - 1


def _line(name, count, total, row, left):
    point = " ".join(f"{k}={v}" for k, v in row["point"].items())
    result = "  ".join(f"{k} {v:.4g}" for k, v in row["result"].items())
    return (
        f"{name} {count}/{total}  {point} seed={row['seed']}  {result}  (about {left:.0f} s left)"
    )


def _told(experiment):
    names = sorted({name for point in experiment.points for name in point})
    values = {name: sorted({p[name] for p in experiment.points}, key=str) for name in names}
    return "a point of " + "; ".join(f"{k}: {', '.join(map(str, v))}" for k, v in values.items())


def _to_stderr(line):
    print(line, file=sys.stderr, flush=True)
