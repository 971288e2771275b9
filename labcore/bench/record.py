"""Measuring rows, judging them, and the JSON in which they are kept."""

import json
import os
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch

from labcore import runtime
from labcore.bench.harness import compare, largest_difference
from labcore.bench.registry import rows
from labcore.shapes import require

FOLDER = Path(__file__).parent / "results"
# On shared machines two equal programs differ by this much from one measurement to the next.
NOISE = 0.08
NOTE = "ratio = their time / ours, in turn in one process; only ratios compare between machines"


def measure(row, device="cpu", **options):
    """One row as a dict: its work, both times in ms, the ratio with quartiles, and the verdict.

    Raises ValueError when the two sides do not compute the same: their times would mean nothing.
    """
    ours, theirs = row.build(torch.device(device))
    apart = None
    if row.tolerance is not None:
        apart = largest_difference(ours(), theirs())
        told = f"sides of {row.group!r}, {row.title!r} that differ by {apart:.2g}"
        require(apart <= row.tolerance, "row", given=told, allowed=f"up to {row.tolerance:.2g}")
    found = compare(ours, theirs, device=device, **options)
    return {
        "group": row.group,
        "title": row.title,
        "against": row.against,
        "floor": row.floor,
        "goal": row.goal,
        "ratio": _rounded(found.ratio, 1),
        "ours_ms": _rounded(found.ours, 1e3),
        "theirs_ms": _rounded(found.theirs, 1e3),
        "rounds": found.rounds,
        "calls": found.calls,
        "verdict": verdict(found.ratio.median, row.floor, row.goal),
    }


def verdict(ratio, floor, goal):
    """What a ratio says about its floor and goal, with `NOISE` of doubt below the floor.

    >>> [verdict(ratio, 1.0, 1.1) for ratio in (1.2, 1.05, 0.95, 0.9)]
    ['goal', 'floor', 'floor within noise', 'below floor']
    >>> verdict(0.3, None, None)
    'information'
    """
    if floor is None:
        return "information"
    if ratio >= goal:
        return "goal"
    if ratio >= floor:
        return "floor"
    return "floor within noise" if ratio >= floor * (1 - NOISE) else "below floor"


def run(group=None, *, device="cpu", progress=None, **options):
    """A record, a dict of machine, versions, date, options and the measured rows of `group`.

    `progress` takes one line of text after each row and defaults to stderr.
    """
    tell, found = progress or _to_stderr, []
    for row in rows(group):
        if torch.device(device).type in row.devices:
            found.append(measure(row, device, **options))
            tell(line(found[-1]))
    return {
        "note": NOTE,
        "machine": runtime.machine(),
        "versions": runtime.versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "device": str(device),
        "options": options,
        "rows": found,
    }


def line(found):
    """One line of text about a measured row."""
    ratio, ours, theirs = (found[key] for key in ("ratio", "ours_ms", "theirs_ms"))
    text = f"{found['group']}: {found['title']}, against {found['against']}: "
    text += f"ratio {ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
    text += f"  ours {ours['median']:.3g} ms, theirs {theirs['median']:.3g} ms"
    asked = "" if found["floor"] is None else f" (floor {found['floor']}, goal {found['goal']})"
    return f"{text}  {found['verdict']}{asked}"


def slug(machine):
    """A file name for a machine: its GPU, else its processor, with its threads.

    >>> slug({"processor": "AMD EPYC 7B13 64-Core Processor", "threads": 1})
    'amd-epyc-7b13-64-core-processor-1-thread'
    """
    name = machine.get("gpu") or machine["processor"]
    name = re.sub(r"\((r|tm)\)", "", name.lower())
    words = re.findall(r"[a-z0-9]+", name)
    if "gpu" not in machine:
        words += [str(machine["threads"]), "thread" if machine["threads"] == 1 else "threads"]
    return "-".join(words)


def keep(record, path):
    """None; writes the record, keeping the rows of other groups that the file already had.

    Those rows carry the date at which they were measured. A file of another machine, of other
    versions, or one that cannot be read is replaced whole.
    """
    path = Path(path)
    measured = {row["group"] for row in record["rows"]}
    rows = [{**row, "date": record["date"]} for row in record["rows"]]
    old = _read(path)
    if old and all(old.get(key) == record[key] for key in ("machine", "versions", "device")):
        rows += [row for row in old["rows"] if row["group"] not in measured]
    rows.sort(key=lambda row: row["group"])  # stable: rows of a group stay in their order
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({**record, "rows": rows}, file, indent=1, ensure_ascii=False)
        file.write("\n")
    Path(draft).chmod(0o644)
    os.replace(draft, path)


def recorded():
    """The records that travel with the package, one a machine, newest first."""
    found = [_read(path) for path in sorted(FOLDER.glob("*.json"))]
    return sorted(filter(None, found), key=lambda record: record["date"], reverse=True)


def _read(path):
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("rows"), list) else None


def _rounded(spread, factor):
    return {key: float(f"{value * factor:.4g}") for key, value in spread._asdict().items()}


def _to_stderr(text):
    print(text, file=sys.stderr, flush=True)
