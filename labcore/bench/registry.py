"""The rows that are measured: what against what, on which work, and which ratio is asked for."""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from labcore.shapes import require

# Every other module of this package registers rows, and is imported when one is asked for.
_FRAMEWORK = ("registry", "harness", "record", "__main__", "ceilings", "sides", "field")
_FRAMEWORK += ("gpu_check", "sweep")
_ROWS = []


class Row(NamedTuple):
    """One comparison. `build(device)` gives the pair (ours, theirs) of functions without arguments,
    which must return the same tensors to within `tolerance` (None: they are not compared).

    `floor` and `goal` are the least and the wished-for ratio of their time to ours; without them
    the row is there for information. `devices` are the device types it makes sense on.

    `theirs` may also be a dict of `sides.Side` by name, all timed in turn with ours; `tolerance` is
    then relative. Such a row may name its work, `flops` or `bytes` of one call, with `rate`, floor
    and goal in TFLOP/s or TB/s on the device of `ceilings.ASKED_ON`; and `ratios`, floor and goal
    of the ratio to the fastest side whose name begins with the key. `operator` is asked of
    `labcore.kernels.why`.
    """

    group: str
    title: str
    against: str
    build: Callable
    floor: float | None
    goal: float | None
    tolerance: float | None
    devices: tuple
    flops: float | None = None
    bytes: float | None = None
    rate: tuple | None = None
    ratios: dict | None = None
    operator: str | None = None


def row(
    group,
    title,
    *,
    against,
    floor=None,
    goal=None,
    tolerance=1e-4,
    devices=("cpu", "cuda"),
    **asked,
):
    """A decorator that registers `build(device)` as a `Row`; it returns `build`.

    `asked` are the last fields of `Row`: flops or bytes, rate, ratios, operator.
    """

    def register(build):
        taken = any((r.group, r.title) == (group, title) for r in _ROWS)
        require(not taken, "title", given=repr(title), allowed=f"a title not yet in {group!r}")
        for name, pair in _pairs(floor, goal, asked):
            low, high = pair
            ordered = low is None or (high is not None and 0 < low <= high)
            require(ordered, name, given=low, allowed=f"None, or a number up to goal {high}")
        both = asked.get("flops") is not None and asked.get("bytes") is not None
        require(not both, "bytes", given="both bytes and flops", allowed="what limits the row")
        counted = asked.get("flops") is not None or asked.get("bytes") is not None
        rated = asked.get("rate") is None or counted
        require(rated, "rate", given=asked.get("rate"), allowed="None without flops or bytes")
        fixed = (floor, goal, tolerance, tuple(devices))
        _ROWS.append(Row(group, title, against, build, *fixed, **asked))
        return build

    return register


def _pairs(floor, goal, asked):
    """(name, (floor, goal)) of everything that is asked of a row."""
    yield "floor", (floor, goal)
    if asked.get("rate") is not None:
        yield "rate", asked["rate"]
    yield from (asked.get("ratios") or {}).items()


def rows(group=None):
    """All registered rows, or those of one group; unknown groups are an error.

    Groups come in the order of their modules' names, whichever was imported first.
    """
    modules = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])]
    for name in modules:
        if name not in _FRAMEWORK:
            importlib.import_module(f"labcore.bench.{name}")
    place = {name: index for index, name in enumerate(modules)}
    found = sorted(_ROWS, key=lambda r: place.get(r.group, len(place)))  # stable within a group
    known = list(dict.fromkeys(r.group for r in found))
    require(group is None or group in known, "group", repr(group), ", ".join(known))
    return [r for r in found if group in (None, r.group)]


def groups():
    """Names of the groups, in their order.

    >>> "attend" in groups()
    True
    """
    return list(dict.fromkeys(r.group for r in rows()))
