"""Measuring a row with many other sides: each side's time, the rate of work, and the judgement."""

import gc

import torch

from labcore.bench.ceilings import UNITS, asked_here, ceilings
from labcore.bench.harness import compare_all, relative_difference
from labcore.bench.sides import tried
from labcore.shapes import require

# On shared machines two equal programs differ by this much from one measurement to the next.
NOISE = 0.08
# From worst to best; what nothing is asked of is only information.
VERDICTS = ("below floor", "floor within noise", "floor", "goal")


def verdict(value, floor, goal):
    """What a number says about its floor and goal, with `NOISE` of doubt below the floor.

    >>> [verdict(ratio, 1.0, 1.1) for ratio in (1.2, 1.05, 0.95, 0.9)]
    ['goal', 'floor', 'floor within noise', 'below floor']
    >>> verdict(0.3, None, None)
    'information'
    """
    if floor is None:
        return "information"
    if value >= goal:
        return "goal"
    if value >= floor:
        return "floor"
    return "floor within noise" if value >= floor * (1 - NOISE) else "below floor"


def measure_all(row, ours, sides, device="cpu", **options):
    """One row as a dict: time, rate and share of the ceiling of ours, every side, the verdicts.

    A side that does not run here stays in the row with its reason, and so does one whose result is
    another than ours; when no side agrees, it is ours that is in doubt, and a ValueError says so.
    """
    functions, absent = _fitting(row, ours, sides)
    found = compare_all(ours, functions, device=device, **options)
    shares = {name: side.share for name, side in sides.items()}
    times = {name: scaled(time, shares[name]) for name, time in found.theirs.items()}
    ratios = {name: scaled(ratio, shares[name]) for name, ratio in found.ratios.items()}
    rivals = [name for name in functions if shares[name] is None]
    best = min(rivals, key=lambda name: ratios[name].median, default=None)
    rate = rate_of(row, found.ours, device)
    asked = judge(row, ratios, rate, asked_here(device))
    return {
        "group": row.group,
        "title": row.title,
        "against": best or row.against,
        "floor": row.floor,
        "goal": row.goal,
        "ratio": rounded(ratios[best]) if best else None,
        "ours_ms": rounded(found.ours, 1e3),
        "theirs_ms": rounded(times[best], 1e3) if best else None,
        "rounds": found.rounds,
        "calls": found.calls,
        **rate,
        "sides": {
            name: {"not there": absent[name]}
            if name in absent
            else {"ratio": rounded(ratios[name]), "ms": rounded(times[name], 1e3)}
            for name in sides
        },
        "asked": asked,
        "ran": ran(row.operator),
        "verdict": min((one["verdict"] for one in asked), key=_rank, default="information"),
    }


def _rank(word):
    return VERDICTS.index(word) if word in VERDICTS else len(VERDICTS)


def _fitting(row, ours, sides):
    """(functions, reasons) by name: the sides that compute here what ours does, and the others."""
    wanted, functions, absent, compared = ours(), {}, {}, 0
    for name, side in sides.items():
        function, result, why = tried(side)
        if function is None:
            absent[name] = why
            release()
            continue
        apart = 0.0
        if side.share is None and row.tolerance is not None:
            apart, compared = relative_difference(result, wanted), compared + 1
        if row.tolerance is None or apart <= row.tolerance:
            functions[name] = function
        else:
            absent[name] = f"differs from ours by {apart:.2g}, relative"
        del result
    rivals = [name for name in functions if sides[name].share is None]
    told = f"sides of {row.group!r}, {row.title!r}: {absent}"
    require(rivals or not compared, "row", told, f"a side within {row.tolerance:.2g} of ours")
    return functions, absent


def rate_of(row, time, device):
    """The rate of a row's work in TFLOP/s or TB/s, the ceiling, and its share; {} without work."""
    kind = "flops" if row.flops is not None else "bytes"
    work = getattr(row, kind)
    if work is None:
        return {}
    top = ceilings(device)
    rate = {"median": time.median, "low": time.high, "high": time.low}
    rate = {key: float(f"{work / seconds / 1e12:.4g}") for key, seconds in rate.items()}
    return {
        "work": {kind: work},
        "rate": {"unit": UNITS[kind], **rate},
        "ceiling": {"value": float(f"{top[kind] / 1e12:.4g}"), "from": top["from"]},
        "share": round(work / time.median / top[kind], 3),
    }


def judge(row, ratios, rate, rate_counts):
    """One dict for everything asked of a row: what, its value, floor, goal and verdict."""
    found = []
    if row.rate is not None:
        value, (floor, goal) = rate["rate"]["median"], row.rate
        said = verdict(value, floor, goal) if rate_counts else "information"
        found.append(_asked(rate["rate"]["unit"], value, floor, goal, said))
    for prefix, (floor, goal) in (row.ratios or {}).items():
        there = [ratio.median for name, ratio in ratios.items() if name.startswith(prefix)]
        value = float(f"{min(there):.4g}") if there else None
        said = verdict(value, floor, goal) if there else "not there"
        found.append(_asked(f"ratio to {prefix}", value, floor, goal, said))
    return found


def _asked(what, value, floor, goal, said):
    return {"what": what, "value": value, "floor": floor, "goal": goal, "verdict": said}


def ran(operator):
    """Which backend of `labcore.kernels` the last call of `operator` took, and why."""
    if operator is None:
        return None
    from labcore.kernels import why

    return why(operator)


def release():
    """None; memory that nothing holds goes back to the GPU before the next side or row."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def scaled(spread, share):
    """The spread of `share` of each value; of the whole value where the share is None."""
    return spread if share is None else type(spread)(*(value * share for value in spread))


def rounded(spread, factor=1):
    return {key: float(f"{value * factor:.4g}") for key, value in spread._asdict().items()}
