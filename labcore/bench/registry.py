"""The rows that are measured: what against what, on which work, and which ratio is asked for."""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from labcore.shapes import require

# Every other module of this package registers rows, and is imported when one is asked for.
_FRAMEWORK = ("registry", "harness", "record", "__main__")
_ROWS = []


class Row(NamedTuple):
    """One comparison. `build(device)` gives the pair (ours, theirs) of functions without arguments,
    which must return the same tensors to within `tolerance` (None: they are not compared).

    `floor` and `goal` are the least and the wished-for ratio of their time to ours; without them
    the row is there for information. `devices` are the device types it makes sense on.
    """

    group: str
    title: str
    against: str
    build: Callable
    floor: float | None
    goal: float | None
    tolerance: float | None
    devices: tuple


def row(
    group,
    title,
    *,
    against,
    floor=None,
    goal=None,
    tolerance=1e-4,
    devices=("cpu", "cuda"),
):
    """A decorator that registers `build(device)` as a `Row`; it returns `build`."""

    def register(build):
        taken = any((r.group, r.title) == (group, title) for r in _ROWS)
        require(not taken, "title", given=repr(title), allowed=f"a title not yet in {group!r}")
        ordered = floor is None or (goal is not None and 0 < floor <= goal)
        require(ordered, "floor", given=floor, allowed=f"None, or a number up to goal {goal}")
        _ROWS.append(Row(group, title, against, build, floor, goal, tolerance, tuple(devices)))
        return build

    return register


def rows(group=None):
    """All registered rows in their order, or those of one group; unknown groups are an error."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name not in _FRAMEWORK:
            importlib.import_module(f"labcore.bench.{module.name}")
    known = list(dict.fromkeys(r.group for r in _ROWS))
    require(group is None or group in known, "group", repr(group), ", ".join(known))
    return [r for r in _ROWS if group in (None, r.group)]


def groups():
    """Names of the groups, in their order.

    >>> "attend" in groups()
    True
    """
    return list(dict.fromkeys(r.group for r in rows()))
