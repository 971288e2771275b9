"""What an experiment is, and how the code of one gets its name.

An experiment is a function `run(config, seed, **point)` that returns a dict of numbers, together
with the points and seeds it is run at. Everything that its result depends on stands in code; the
recorded JSON repeats it, and is refused when the two part.
"""

import importlib
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from labcore.shapes import require

# Every other module of this package registers experiments, and is imported when one is asked for.
_FRAMEWORK = ("registry", "runner", "store", "__main__")
_FOUND = {}


class Experiment(NamedTuple):
    """A registered comparison: `run(config, seed, **point)` at every point, for every seed.

    `tolerance` says, by name of a result, how far a run on another machine may lie from the
    recorded one; results without a tolerance are not compared. `replay` is the one point that
    `check` runs again.
    """

    name: str
    run: Callable
    config: dict
    points: list
    seeds: tuple
    tolerance: dict
    replay: dict
    about: str


def experiment(name, *, config, points, seeds=(0, 1, 2), tolerance=None, replay=None):
    """A decorator that registers `run(config, seed, **point)` under `name`; it returns `run`.

    `config`, `points` (a list of dicts, all different) and `seeds` must survive JSON unchanged: no
    tuples, no NaN. `replay` defaults to the first point.
    """

    def register(run):
        require(name not in _FOUND, "name", given=repr(name), allowed="a name not yet taken")
        points_, seeds_ = list(points), tuple(seeds)
        require(points_ and seeds_, "points", "no points or no seeds", "at least one of each")
        for key, value in (("config", config), ("points", points_), ("seeds", list(seeds_))):
            require(_plain(value), key, given=value, allowed="what JSON keeps as it is")
        distinct = len({json.dumps(p, sort_keys=True) for p in points_}) == len(points_)
        require(distinct, "points", given="the same point twice", allowed="different points")
        distinct = len(set(seeds_)) == len(seeds_)
        require(distinct, "seeds", given=list(seeds_), allowed="different seeds")
        again = points_[0] if replay is None else replay
        require(again in points_, "replay", given=again, allowed="one of the points")
        about = (run.__doc__ or "").partition("\n")[0]
        _FOUND[name] = Experiment(
            name, run, dict(config), points_, seeds_, dict(tolerance or {}), again, about
        )
        return run

    return register


def names():
    """The names of all experiments, sorted.

    >>> "digits_data_size" in names()
    True
    """
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name not in _FRAMEWORK:
            importlib.import_module(f"labcore.experiments.{module.name}")
    return sorted(_FOUND)


def find(name):
    """The `Experiment` called `name`, or a ValueError that lists the names."""
    known = names()
    require(name in known, "name", given=repr(name), allowed=", ".join(known))
    return _FOUND[name]


def _plain(value):
    try:
        return json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError):
        return False
