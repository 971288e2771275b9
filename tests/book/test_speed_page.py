"""The page of measured speed: every row asked for is listed, and nothing is dropped."""

import json
import sys
from pathlib import Path

import pytest
from checks import chapters
from docutils import nodes

if str(chapters.ROOT / "book" / "ext") not in sys.path:
    sys.path.insert(0, str(chapters.ROOT / "book" / "ext"))
speed = pytest.importorskip("labbook.speed")

TITLE = "GPU: forward, B2 H16 T8192 K128"
NAME = "attention: forward, B2 H16 T8192 K128"
WHY = "torch has no such backend"


def spread(value):
    return {"median": value, "low": 0.9 * value, "high": 1.1 * value}


def gpu_row():
    asked = [
        ("TFLOP/s", 395.0, 430, 510, "below floor"),
        ("ratio to SDPA flash", 1.2, 1.15, 1.15, "goal"),
    ]
    asked.append(("ratio to SDPA cuDNN", None, 0.75, 0.75, "not there"))
    keys = ("what", "value", "floor", "goal", "verdict")
    sides = {
        "SDPA flash": {"ratio": spread(1.2), "ms": spread(3.0)},
        "SDPA cuDNN": {"not there": WHY},
    }
    return {
        "group": "attention",
        "title": TITLE,
        "against": "SDPA flash",
        "ratio": spread(1.2),
        "sides": sides,
        "rate": {"unit": "TFLOP/s", **spread(395.0)},
        "ceiling": {"value": 790.0, "from": "stated"},
        "share": 0.5,
        "asked": [dict(zip(keys, one, strict=True)) for one in asked],
        "verdict": "below floor",
    }


def record(date, *rows, **changed):
    machine = {"gpu": "NVIDIA H200", "driver": "575.1"}
    fixed = {"machine": machine, "versions": {"python": "3.12.1", "torch": "2.11.0"}}
    return {**fixed, "date": date, "rows": list(rows), **changed}


def cells(part):
    """Texts of a section's first table, row by row."""
    first = next(iter(part.findall(nodes.table)))
    return [[c.astext() for c in row.findall(nodes.entry)] for row in first.findall(nodes.row)][1:]


def html(part):
    return "".join(node.astext() for node in part.findall(nodes.raw))


def test_without_a_record_every_asked_row_says_so():
    asked, last = speed.page({})
    rows = cells(asked)
    assert len(rows) == 12 + 16  # rates, and ratios
    assert all(row[3:] == ["not measured", "–"] for row in rows)
    assert [f"{NAME}: TFLOP/s", "430", "510"] in [row[:3] for row in rows]
    assert html(asked).count("not measured") == 12 and "On this GPU" in asked.astext()
    assert last.astext() == "Not measured on any machine yet."


def test_what_was_measured_stands_beside_what_is_asked():
    asked, machine = speed.page({"h200": record("2026-12-01", gpu_row())})
    found = {row[0].removeprefix(f"{NAME}: "): row[3:] for row in cells(asked)}
    assert found["TFLOP/s"] == ["395", "below floor"]
    assert found["ratio to SDPA flash"] == ["1.2", "goal"]
    assert found["ratio to SDPA cuDNN"] == ["–", "not there"]
    assert sum(row[3] == "not measured" for row in cells(asked)) == 28 - 3
    assert "driver 575.1" in machine.astext() and machine.astext().startswith("NVIDIA H200")


def test_a_machine_shows_rate_sides_and_what_was_not_there():
    _, machine = speed.page({"h200": record("2026-12-01", gpu_row())})
    rate, flash = cells(machine)
    work = TITLE + ": against SDPA flash"
    assert rate == [TITLE + ": rate", "395 TFLOP/s", "50% of 790", "430 / 510", "below floor"]
    assert flash == [work, "1.20", "1.08–1.32", "1.15 / 1.15", "goal"]
    assert "Ceilings: 790 TFLOP/s (stated)." in machine.astext()
    assert f"Not there: SDPA cuDNN ({WHY})." in machine.astext()
    drawn = html(machine)
    assert (
        drawn.count("speed-dot") == 1 and "SDPA flash</span>" in drawn and ">1.20</span>" in drawn
    )
    # 1.2 on the axis from 1/2 to 2: a little right of the middle.
    assert 'speed-dot" style="left:63.15%"' in drawn and 'speed-one" style="left:50.00%"' in drawn


def test_the_newest_record_of_a_machine_is_shown():
    old, new = record("2026-11-01", gpu_row()), record("2026-12-01", gpu_row())
    other = record("2026-10-01", machine={"processor": "P <&>", "threads": 1})
    found = speed.newest_by_machine({"a": old, "b": new, "c": other})
    assert found == {"NVIDIA H200": new, "P <&>, 1 thread": other}


def test_failures_are_told():
    failed = [{"group": "moe", "title": "dW", "error": "E: x"}]
    _, machine = speed.page(
        {"h": record("2026-12-01", failed=failed, **{"left out": ["moe: late"]})}
    )
    assert "Failed or not reached: dW (E: x); moe: late" in machine.astext()


def test_records_of_the_book_become_a_page():
    folder = chapters.ROOT / "labcore" / "bench" / "results"
    found = {path.stem: json.loads(Path(path).read_text()) for path in folder.glob("*.json")}
    asked, *machines = speed.page(found)
    assert len(machines) == len(speed.newest_by_machine(found))
    for part, record in zip(machines, speed.newest_by_machine(found).values(), strict=True):
        sides = [row.get("sides") or {"one": row} for row in record["rows"]]
        ratios = [side["ratio"] for row in sides for side in row.values() if side.get("ratio")]
        assert html(part).count("speed-dot") == len(ratios) > 0
        assert all(len(row) == len(speed.COLUMNS) for row in cells(part))


def test_plots_hold_any_number():
    points = [("w <b>", "s", {"median": 300.0, "low": 0.001, "high": 4000.0}, None)]
    drawn = speed.ratio_plot(points).astext()
    assert "w &lt;b&gt;" in drawn and "nan" not in drawn
    full = speed.rate_plot([("w", "TB/s", 4.3, 2.6, 3.2, 9.9)]).astext()
    assert 'speed-bar" style="left:0.00%;width:100.00%"' in full
    assert speed.ratio_plot([]).astext() == ""
