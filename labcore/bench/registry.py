"""The rows that are measured: what against what, on which work, and which ratio is asked for."""

import importlib
from collections.abc import Callable
from typing import NamedTuple

from labcore.shapes import require

# The modules that register rows; each is imported when a group is first asked for.
_MODULES = ("attend",)
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
    for module in _MODULES:
        importlib.import_module(f"labcore.bench.{module}")
    known = list(dict.fromkeys(r.group for r in _ROWS))
    require(group is None or group in known, "group", repr(group), ", ".join(known))
    return [r for r in _ROWS if group in (None, r.group)]


def groups():
    """Names of the groups, in their order.

    >>> groups()
    ['attend']
    """
    return list(dict.fromkeys(r.group for r in rows()))
