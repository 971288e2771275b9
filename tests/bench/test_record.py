"""Rows, verdicts, records and the command line, on a row of our own and on the real ones."""

import json

import pytest
import torch

from labcore.bench import groups, measure, record, registry, rows
from labcore.bench.__main__ import main

QUICK = {"rounds": 3, "block": 1e-4, "warmup": 0}


@pytest.fixture
def toy(monkeypatch):
    """Two small rows in a group of their own; the registry is as before afterwards."""
    rows()
    monkeypatch.setattr(registry, "_ROWS", list(registry._ROWS))

    def build(offset, device):
        x = torch.ones(3, 5, device=device)
        return (lambda: x + 1), (lambda: x + 1 + offset)

    for title, offset in (("same", 0.0), ("other", 0.5)):
        options = {"against": "+", "floor": 0.5, "goal": 1.0}
        registry.row("toy", title, **options)(lambda device, offset=offset: build(offset, device))
    return rows("toy")


def test_a_row_becomes_a_dict_of_plain_numbers(toy):
    found = measure(toy[0], **QUICK)
    assert json.loads(json.dumps(found)) == found
    assert (found["title"], found["floor"], found["rounds"]) == ("same", 0.5, 3)
    assert 0 < found["ratio"]["low"] <= found["ratio"]["median"] <= found["ratio"]["high"]
    assert found["verdict"] in ("goal", "floor", "floor within noise", "below floor")


def test_sides_that_compute_something_else_are_refused(toy):
    with pytest.raises(ValueError, match="row: got sides of 'toy', 'other' that differ by 0.5"):
        measure(toy[1], **QUICK)
    assert measure(toy[1]._replace(tolerance=None), **QUICK)["title"] == "other"


@pytest.mark.parametrize("row", rows("attend"), ids=lambda row: row.title)
def test_attention_rows_compare_equal_work(row):
    ours, theirs = row.build(torch.device("cpu"))
    assert record.largest_difference(ours(), theirs()) < row.tolerance
    assert len(row.title) < 100


def test_verdicts():
    said = [record.verdict(r, 1.0, 1.1) for r in (1.1, 1.0999, 1.0, 0.9201, 0.9199)]
    assert said == ["goal", "floor", "floor", "floor within noise", "below floor"]
    assert record.verdict(0.1, None, None) == "information"


def test_slugs_are_file_names():
    machine = {"processor": "Intel(R) Xeon(R) CPU @ 2.20GHz", "threads": 2}
    assert record.slug(machine) == "intel-xeon-cpu-2-20ghz-2-threads"
    assert record.slug({**machine, "gpu": "NVIDIA H200"}) == "nvidia-h200"


def test_a_record_keeps_other_groups_of_the_same_machine(tmp_path):
    path = tmp_path / "machine.json"
    same = {"machine": {"processor": "p"}, "versions": {}, "device": "cpu"}

    def new(group, title, date, **changed):
        return {**same, "date": date, "rows": [{"group": group, "title": title}], **changed}

    record.keep(new("attend", "a", "2026-01-01"), path)
    record.keep(new("moe", "b", "2026-01-02"), path)
    record.keep(new("attend", "c", "2026-01-03"), path)
    found = json.loads(path.read_text())
    told = [(row["group"], row["title"], row["date"]) for row in found["rows"]]
    assert told == [("attend", "c", "2026-01-03"), ("moe", "b", "2026-01-02")]
    record.keep(new("moe", "d", "2026-01-04", versions={"torch": "3"}), path)
    assert [row["title"] for row in json.loads(path.read_text())["rows"]] == ["d"]
    path.write_text("{damaged")
    record.keep(new("moe", "e", "2026-01-05"), path)
    assert [row["title"] for row in json.loads(path.read_text())["rows"]] == ["e"]
    assert [p.name for p in tmp_path.iterdir()] == ["machine.json"]


def test_packed_records_are_whole():
    for found in record.recorded():
        assert {"machine", "versions", "date", "rows", "note"} <= set(found)
        titles = [(row["group"], row["title"]) for row in found["rows"]]
        assert len(titles) == len(set(titles)) and titles
        known = {(row.group, row.title) for row in rows()}
        assert set(titles) <= known  # a renamed row must be measured again


def test_registration_and_lookup_refuse(toy):
    for call, words in (
        (lambda: rows("tyo"), "group: got 'tyo'; allowed: attend, .*toy"),
        (lambda: registry.row("toy", "same", against="x")(None), "title: got 'same'"),
        (lambda: registry.row("toy", "n", against="x", floor=2.0, goal=1.0)(None), "floor: got 2"),
        (lambda: registry.row("toy", "n", against="x", floor=1.0)(None), "floor: got 1.0"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert groups()[0] == "attend" and groups()[-1] == "toy"


def test_command_line(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_ROWS", [r for r in registry._ROWS if r.title == "same"])
    assert main(["list"]) == 0 and "toy: same, against +" in capsys.readouterr().out
    assert main(["toy", "--quick", "--rounds", "3"]) == 0
    told = capsys.readouterr()
    assert told.out == "" and "only ratios compare" in told.err
    assert told.err.startswith("toy: same, against +: ratio ")
    path = tmp_path / "deep" / "r.json"
    assert main(["toy", "--quick", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["machine"]["threads"] == 1 and found["rows"][0]["rounds"] == 5
    monkeypatch.setattr("labcore.bench.record.verdict", lambda *_: "below floor")
    assert main(["toy", "--quick"]) == 0 and main(["toy", "--quick", "--strict"]) == 1
    assert "below its floor: same" in capsys.readouterr().err
    for bad in (["tyo"], ["toy", "--rounds", "2"], ["toy", "--threads", "0"], ["toy", "--x"]):
        with pytest.raises(SystemExit) as stopped:
            main(bad)
        assert stopped.value.code == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_events_time_a_gpu(toy):
    found = measure(toy[0], "cuda", **QUICK)
    assert found["calls"] == 1 and found["ours_ms"]["median"] > 0
