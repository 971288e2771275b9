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
from labcore.bench.field import measure_all, release, rounded, verdict
from labcore.bench.harness import compare, largest_difference
from labcore.bench.registry import rows
from labcore.shapes import require

FOLDER = Path(__file__).parent / "results"
NOTE = "ratio = their time / ours, in turn in one process; only ratios compare between machines"


def measure(row, device="cpu", **options):
    """One row as a dict: its work, both times in ms, the ratio with quartiles, and the verdict.

    Raises ValueError when the two sides do not compute the same: their times would mean nothing.
    """
    ours, theirs = row.build(torch.device(device))
    if isinstance(theirs, dict):
        return measure_all(row, ours, theirs, device, **options)
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
        "ratio": rounded(found.ratio),
        "ours_ms": rounded(found.ours, 1e3),
        "theirs_ms": rounded(found.theirs, 1e3),
        "rounds": found.rounds,
        "calls": found.calls,
        "verdict": verdict(found.ratio.median, row.floor, row.goal),
    }


def run(group=None, *, device="cpu", progress=None, each=None, stop=None, **options):
    """A record, a dict of machine, versions, date, options and the measured rows of `group`.

    `progress` takes one line of text after each row and defaults to stderr. With `each`, which gets
    the record so far after every row, the run goes on past a row that fails and tells it under
    "failed"; rows left when `stop()` is true are told under "left out".
    """
    tell = progress or _to_stderr
    record = empty(device, options)
    for row in rows(group):
        if torch.device(device).type not in row.devices:
            continue
        if stop is not None and stop():
            record.setdefault("left out", []).append(f"{row.group}: {row.title}")
            continue
        try:
            record["rows"].append(measure(row, device, **options))
            tell(line(record["rows"][-1]))
        except Exception as error:  # a GPU is lent for minutes: the other rows still count
            if each is None:
                raise
            told = {"group": row.group, "title": row.title, "error": _first_line(error)}
            record.setdefault("failed", []).append(told)
            tell(f"{row.group}: {row.title}: failed: {told['error']}")
        release()
        if each is not None:
            each(record)
    return record


def empty(device, options):
    """A record without rows: what measures, and when."""
    return {
        "note": NOTE,
        "machine": runtime.machine(),
        "versions": runtime.versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "device": str(device),
        "options": options,
        "rows": [],
    }


def line(found):
    """One line of text about a measured row, and one more for each of many sides."""
    ratio, ours, theirs = (found[key] for key in ("ratio", "ours_ms", "theirs_ms"))
    text = f"{found['group']}: {found['title']}, against {found['against']}: "
    if ratio is None:
        text += f"no other side here  ours {ours['median']:.3g} ms"
    else:
        text += f"ratio {ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
        text += f"  ours {ours['median']:.3g} ms, theirs {theirs['median']:.3g} ms"
    if "rate" in found:
        rate, share = found["rate"], found["share"]
        text += f"  {rate['median']:.3g} {rate['unit']}, {share:.0%} of the ceiling"
    asked = "" if found["floor"] is None else f" (floor {found['floor']}, goal {found['goal']})"
    text = f"{text}  {found['verdict']}{asked}"
    return "\n".join([text, *_more(found)])


def _more(found):
    """Lines for the backend that ran, what was asked, and every side."""
    if found.get("ran"):
        yield f"    ran {found['ran']}"
    for one in found.get("asked", ()):
        value = "–" if one["value"] is None else f"{one['value']:.3g}"
        yield (
            f"    {one['what']}: {value} (floor {one['floor']}, goal {one['goal']}): "
            + (one["verdict"])
        )
    for name, side in found.get("sides", {}).items():
        if "not there" in side:
            yield f"    {name}: not there: {side['not there']}"
        else:
            yield f"    {name}: ratio {side['ratio']['median']:.2f}, {side['ms']['median']:.3g} ms"


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


def _first_line(error):
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}"


def _to_stderr(text):
    print(text, file=sys.stderr, flush=True)
