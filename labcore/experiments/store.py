"""Recorded results as JSON files: written whole or not at all, read with suspicion.

They lie inside the package, so that a notebook finds them wherever the package is installed.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from labcore.experiments.registry import find
from labcore.shapes import require

FOLDER = Path(__file__).parent / "results"
_KEYS = {"name", "config", "points", "seeds", "machines", "rows"}


class ResultError(ValueError):
    """A recorded result that is missing, damaged, unfinished, or of other code."""


class Results(NamedTuple):
    """A recorded experiment; `rows` hold `point`, `seed`, `result`, `seconds` and `machine`."""

    name: str
    config: dict
    seeds: tuple
    machines: list
    rows: list

    def values(self, key, **point):
        """Results called `key` at the points that agree with `point`, in the order of the file.

        With all coordinates given that is one number a seed; an unknown coordinate, or a point
        that was not run, is an error.
        """
        known = {name for row in self.rows for name in row["point"]}
        extra = sorted(set(point) - known)
        require(not extra, "point", given=", ".join(extra), allowed=", ".join(sorted(known)))
        chosen = [r for r in self.rows if all(r["point"].get(k) == v for k, v in point.items())]
        require(chosen, "point", given=point, allowed="a point that was run")
        results = sorted({name for row in chosen for name in row["result"]})
        require(key in results, "key", given=repr(key), allowed=", ".join(results))
        return [row["result"][key] for row in chosen]


def path_of(name, folder=None):
    """Where the results of experiment `name` lie."""
    return Path(folder or FOLDER) / f"{name}.json"


def load(name, folder=None):
    """The `Results` of experiment `name`, complete and made by the code as it is now.

    Raises `ResultError` when there is no file, when it is damaged or unfinished, or when config,
    points or seeds differ from the code's.
    """
    experiment = find(name)
    found = read(path_of(name, folder))
    refuse_other_code(found, experiment)
    done = {key_of(row["point"], row["seed"]) for row in found["rows"]}
    missing = [key for key in plan(experiment) if key_of(*key) not in done]
    if missing:
        told = f"{len(missing)} of {len(plan(experiment))} runs are missing"
        raise ResultError(f"{name}: {told}; python -m labcore.experiments {name} resumes them")
    rows = found["rows"]
    return Results(name, found["config"], tuple(found["seeds"]), found["machines"], rows)


def plan(experiment):
    """All runs of an experiment, (point, seed) pairs in their order."""
    return [(point, seed) for point in experiment.points for seed in experiment.seeds]


def key_of(point, seed):
    """One string for a point and a seed, the same for every order of the coordinates."""
    return json.dumps([point, seed], sort_keys=True)


def read(path):
    """The dict in a result file, or a `ResultError` that names the file and what is wrong."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{path}: no recorded results; python -m labcore.experiments makes them"
        raise ResultError(message) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ResultError(f"{path}: not readable as JSON ({error})") from None
    missing = sorted(_KEYS - set(found)) if isinstance(found, dict) else sorted(_KEYS)
    if missing:
        raise ResultError(f"{path}: without {', '.join(missing)}")
    parts = {"point", "seed", "result", "seconds", "machine"}
    if not all(isinstance(row, dict) and parts <= set(row) for row in found["rows"]):
        raise ResultError(f"{path}: a row without one of {', '.join(sorted(parts))}")
    return found


def refuse_other_code(found, experiment):
    """None, or a `ResultError` when the file was made with other config, points or seeds."""
    wanted = {
        "name": experiment.name,
        "config": experiment.config,
        "points": experiment.points,
        "seeds": list(experiment.seeds),
    }
    for key, value in wanted.items():
        if found[key] != value:
            told = f"{key} differs: recorded {_short(found[key])}, code has {_short(value)}"
            hint = f"python -m labcore.experiments {experiment.name} --force runs it anew"
            raise ResultError(f"{experiment.name}: {told}; {hint}")


def write(path, found):
    """None; the file holds either what it held before or all of `found`, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in found["rows"])
    head = {key: value for key, value in found.items() if key != "rows"}
    # One row a line: a difference between two versions then shows which runs changed.
    lines = [f' "{key}": {json.dumps(value, allow_nan=False)}' for key, value in head.items()]
    text = "{\n" + ",\n".join([*lines, f' "rows": [\n  {rows}\n ]']) + "\n}\n"
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _short(value):
    text = json.dumps(value)
    return text if len(text) < 200 else text[:200] + " …"
