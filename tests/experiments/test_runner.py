"""Recorded runs: resumed where they stopped, refused when damaged or of other code, replayed."""

import json

import pytest
import torch

from labcore.experiments import (
    ResultError,
    check,
    experiment,
    find,
    load,
    names,
    registry,
    replay,
    run,
    store,
)
from labcore.experiments.__main__ import main

POINTS = [{"power": power, "sign": sign} for power in (1, 2) for sign in (-1, 1)]
SEEDS = (3, 1, 8)


@pytest.fixture
def toy(monkeypatch):
    """An experiment that counts its runs; the registry is as before afterwards."""
    names()
    monkeypatch.setattr(registry, "_FOUND", dict(registry._FOUND))
    return register()


def register(config=None, points=POINTS, **options):
    registry._FOUND.pop("toy", None)
    ran = []

    @experiment(
        "toy",
        config=config or {"base": 0.5},
        points=points,
        seeds=SEEDS,
        tolerance={"value": 1e-6},
        **options,
    )
    def toy(config, seed, power, sign):
        """A power of a number."""
        ran.append((power, sign, seed))
        return {"value": sign * config["base"] ** power + seed, "threads": torch.get_num_threads()}

    return ran


def stored(folder):
    return json.loads((folder / "toy.json").read_text())


def test_a_full_run_holds_every_point_and_seed_in_order(toy, tmp_path):
    lines = []
    path = run("toy", folder=tmp_path, progress=lines.append)
    assert path == tmp_path / "toy.json"
    assert [(r["point"], r["seed"]) for r in stored(tmp_path)["rows"]] == store.plan(find("toy"))
    assert len(lines) == len(toy) == 12 and lines[0].startswith("toy 1/12  power=1 sign=-1 seed=3")
    results = load("toy", tmp_path)
    assert results.values("value", power=2, sign=-1) == [2.75, 0.75, 7.75]
    assert results.values("threads") == [1] * 12
    assert results.config == {"base": 0.5} and results.seeds == SEEDS
    machine = results.machines[0]
    assert (
        machine["versions"]["torch"] == torch.__version__.partition("+")[0] or machine["versions"]
    )
    assert machine["processor"] and machine["date"]
    assert [p.name for p in tmp_path.iterdir()] == ["toy.json"]


def test_a_second_run_does_nothing_and_force_does_it_all_again(toy, tmp_path):
    run("toy", folder=tmp_path, progress=str)
    before = (tmp_path / "toy.json").read_bytes()
    run("toy", folder=tmp_path, progress=str)
    assert len(toy) == 12 and (tmp_path / "toy.json").read_bytes() == before
    run("toy", folder=tmp_path, progress=str, force=True)
    assert len(toy) == 24


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_stopped_run_goes_on_where_it_was(toy, tmp_path, stop):
    def interrupt(line):
        if line.startswith(f"toy {stop}/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("toy", folder=tmp_path, progress=interrupt)
    assert len(stored(tmp_path)["rows"]) == stop
    with pytest.raises(ResultError, match=f"{12 - stop} of 12 runs are missing"):
        load("toy", tmp_path)
    run("toy", folder=tmp_path, progress=str)
    assert len(toy) == len(set(toy)) == 12
    assert len(load("toy", tmp_path).rows) == 12


def test_one_seed_then_the_others_gives_the_same_order(toy, tmp_path):
    run("toy", seed=8, folder=tmp_path, progress=str)
    assert {seed for *_, seed in toy} == {8} and len(toy) == 4
    run("toy", folder=tmp_path, progress=str)
    assert [(r["point"], r["seed"]) for r in stored(tmp_path)["rows"]] == store.plan(find("toy"))


def test_a_failing_run_keeps_what_was_done(tmp_path, toy):
    broken = find("toy")._replace(run=lambda config, seed, **point: 1 / (seed - 1) and {"value": 1})
    registry._FOUND["toy"] = broken
    with pytest.raises(ZeroDivisionError):
        run("toy", folder=tmp_path, progress=str)
    assert [r["seed"] for r in stored(tmp_path)["rows"]] == [3]


def test_a_write_that_fails_leaves_the_old_file(toy, tmp_path, monkeypatch):
    run("toy", seed=3, folder=tmp_path, progress=str)
    before = (tmp_path / "toy.json").read_bytes()
    monkeypatch.setattr(store.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("toy", folder=tmp_path, progress=str)
    assert (tmp_path / "toy.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["toy.json"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"config": {"base": 0.25}}, "config"),
        ({"points": POINTS[:-1]}, "points"),
        ({"points": POINTS[::-1]}, "points"),
    ],
)
def test_results_of_other_code_are_refused_and_kept(toy, tmp_path, change, word):
    run("toy", folder=tmp_path, progress=str)
    before = (tmp_path / "toy.json").read_bytes()
    register(**change)
    for action in (load, lambda name, folder: run(name, folder=folder, progress=str)):
        with pytest.raises(ResultError, match=f"{word} differs"):
            action("toy", tmp_path)
    assert (tmp_path / "toy.json").read_bytes() == before
    run("toy", folder=tmp_path, progress=str, force=True)
    load("toy", tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not readable as JSON"),
        ('{"name": "toy", "ro', "not readable as JSON"),
        (b"\xff\xfe\x00", "not readable as JSON"),
        ("[]", "without config"),
        ('{"name": "toy"}', "without config, machines"),
    ],
)
def test_damaged_files_are_refused_and_kept(toy, tmp_path, text, words):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "toy.json").write_bytes(data)
    for action in (load, lambda name, folder: run(name, folder=folder, progress=str)):
        with pytest.raises(ResultError, match=words):
            action("toy", tmp_path)
    assert (tmp_path / "toy.json").read_bytes() == data and not toy


def test_a_row_without_its_parts_is_refused(toy, tmp_path):
    run("toy", folder=tmp_path, progress=str)
    found = stored(tmp_path)
    del found["rows"][4]["seed"]
    (tmp_path / "toy.json").write_text(json.dumps(found))
    with pytest.raises(ResultError, match="a row without one of"):
        load("toy", tmp_path)


def test_missing_results_say_how_to_make_them(toy, tmp_path):
    with pytest.raises(ResultError, match="no recorded results; python -m labcore.experiments"):
        load("toy", tmp_path)


def test_replay_runs_the_recorded_code(toy, tmp_path):
    run("toy", folder=tmp_path, progress=str)
    recorded = load("toy", tmp_path)
    assert replay("toy")["value"] == recorded.values("value", power=1, sign=-1)[0]
    live = replay("toy", seed=8, power=2, sign=1)
    assert live["value"] == recorded.values("value", power=2, sign=1)[2]
    torch.set_num_threads(2)
    try:
        assert replay("toy")["threads"] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    with pytest.raises(ValueError, match="point: got {'power': 3, 'sign': 1}; allowed: a point of"):
        replay("toy", power=3, sign=1)


def test_check_compares_within_tolerance(toy, tmp_path):
    run("toy", folder=tmp_path, progress=str)
    assert check("toy", folder=tmp_path) == [("value", 2.5, 2.5)]
    found = stored(tmp_path)
    found["rows"][0]["result"]["value"] += 1e-3
    (tmp_path / "toy.json").write_text(json.dumps(found))
    with pytest.raises(ResultError, match="value was 2.501, is 2.5; allowed difference 1e-06"):
        check("toy", folder=tmp_path)
    assert check("toy", seed=1, folder=tmp_path)  # the row of another seed is untouched


def test_values_refuse_unknown_names(toy, tmp_path):
    run("toy", folder=tmp_path, progress=str)
    results = load("toy", tmp_path)
    for call, words in (
        (lambda: results.values("loss"), "key: got 'loss'; allowed: threads, value"),
        (lambda: results.values("value", depth=1), "point: got depth; allowed: power, sign"),
        (lambda: results.values("value", power=9), "allowed: a point that was run"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_results_must_be_finite_numbers(toy, tmp_path):
    registry._FOUND["toy"] = find("toy")._replace(run=lambda *_, **__: {"value": float("nan")})
    with pytest.raises(ValueError, match="result: got value; allowed: finite numbers"):
        run("toy", folder=tmp_path, progress=str)
    assert not (tmp_path / "toy.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"config": {"sizes": (1, 2)}}, "config: got"),
        ({"config": {"x": float("nan")}}, "config: got"),
        ({"points": []}, "no points or no seeds"),
        ({"points": [POINTS[0], dict(reversed(POINTS[0].items()))]}, "the same point twice"),
        ({"replay": {"power": 5}}, "replay: got"),
    ],
)
def test_registration_refuses(toy, options, words):
    with pytest.raises(ValueError, match=words):
        register(**options)


def test_a_name_is_registered_once(toy):
    with pytest.raises(ValueError, match="name: got 'toy'; allowed: a name not yet taken"):
        experiment("toy", config={}, points=[{}])(lambda config, seed: {})


def test_unknown_names_and_seeds(toy, tmp_path):
    for action in (load, run, replay, check):
        with pytest.raises(ValueError, match="name: got 'tyo'; allowed: .*digits_data_size.*, toy"):
            action("tyo")
    with pytest.raises(ValueError, match="seed: got 5; allowed: 3, 1, 8"):
        run("toy", seed=5, folder=tmp_path)


def test_command_line(toy, tmp_path, capsys):
    folder = ["--folder", str(tmp_path)]
    assert main([]) == 0 and "toy: A power of a number. (12 runs)" in capsys.readouterr().out
    assert main(["toy", "--check", *folder]) == 1
    assert "no recorded results" in capsys.readouterr().err
    assert main(["toy", *folder]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(tmp_path / "toy.json") and told.err.count("\n") == 12
    assert main(["toy", "--check", *folder]) == 0
    assert "value recorded 2.5, now 2.5: within tolerance" in capsys.readouterr().out
    for bad in (["tyo", *folder], ["toy", "--seed", "5", *folder], ["toy", "--seed", "x"]):
        with pytest.raises(SystemExit) as stopped:
            main(bad)
        assert stopped.value.code == 2
