"""The sweep over tiles, on an operator of our own whose time and result depend on its tile."""

import types

import pytest
import torch

from labcore.bench import registry, rows, sweep
from labcore.kernels.config import Table, Tile

START = Tile(64, 64, 0, 4, 2)
KEY = (90, 16, 64)
TABLE = Table("toy_forward", {KEY: START, (80, 16, 64): START, (90, 16, 32): START})
CPU = torch.device("cpu")
used = []


def operate():
    """An operator that asks its table; tiles of 32 rows are wrong, 8 warps do not run."""
    tile = TABLE.find(*KEY)
    used.append(tile)
    if tile.warps == 8:
        raise RuntimeError("out of resource: shared memory. Reduce the tile.")
    return torch.ones(3) * (2 if tile.rows == 32 else 1)


def cost(function, calls):
    """Seconds by the tile that the function used: 128 columns are the fastest."""
    function()
    return {128: 0.5, 64: 1.0, 32: 2.0}[used[-1].cols]


@pytest.fixture
def toy(monkeypatch):
    rows()
    monkeypatch.setattr(registry, "_ROWS", list(registry._ROWS))
    for title in ("first", "second"):
        options = {"against": "x", "operator": "toy", "devices": ("cpu",)}
        registry.row("toy", title, **options)(lambda device: (operate, {}))
    module = types.SimpleNamespace(ONE=TABLE, SOME={1: Table("toy_16", TABLE.tiles)}, other=3)
    monkeypatch.setitem(sweep.MODULES, "toy", "toy_tiles")
    monkeypatch.setattr(sweep.importlib, "import_module", lambda name: module)
    return sweep.Entry("toy", "first", "toy_forward", KEY, START)


def test_neighbours_are_one_step_away_and_within_bounds():
    for tile in (START, Tile(128, 256, 64, 8, 3), Tile(16, 16, 16, 1, 1), Tile(64, 0, 0, 4, 1)):
        found = sweep.neighbours(tile)
        assert len(found) == len(set(found)) and tile not in found
        for other in found:
            assert all(
                a == b or a in (b // 2, 2 * b) for a, b in zip(other[:4], tile[:4], strict=True)
            )
            assert abs(other.stages - tile.stages) <= 1 <= other.stages
            assert other.rows >= 16 and other.rows * max(other.cols, 1) <= 128 * 256
            assert (other.cols == 0) == (tile.cols == 0) and (other.depth == 0) == (tile.depth == 0)
            assert 1 <= other.warps <= 16
    sides = {tile[:3] for tile in sweep.neighbours(START, fixed=True)}
    assert sides == {START[:3]}


def test_a_plan_takes_each_entry_that_is_asked_for_once(toy):
    assert sweep.plan(CPU, ["toy"]) == [toy]
    # Outside the block nobody listens.
    with sweep.listening() as asked:
        operate()
    operate()
    assert list(asked) == [("toy_forward", KEY)] and asked["toy_forward", KEY] is TABLE


def test_tiles_that_fail_or_compute_something_else_are_refused(toy):
    table, _, found = sweep.trials(toy, CPU)
    assert table is TABLE
    told = dict(found)
    assert told[START._replace(warps=8)] == "RuntimeError: out of resource: shared memory"
    assert told[START._replace(rows=32)].startswith("the result differs by 1")
    assert told[START._replace(cols=128)] is None and len(told) > 6
    assert TABLE.find(*KEY) == START  # what was tried is not left behind


def test_the_fastest_tile_that_is_right_wins(toy):
    tiles = sweep.checked(toy, CPU)
    found = sweep.measure_entry(toy, tiles, CPU, rounds=3, clock=cost)
    assert found["winner"]["cols"] == 128 and found["faster"] == 2.0
    assert found["tile"] == START._asdict() and found["key"] == KEY
    by_tile = {tuple(one["tile"].values()): one for one in found["tiles"]}
    assert by_tile[START._replace(cols=32)]["ms"]["median"] == 2000.0
    assert "refused" in by_tile[START._replace(warps=8)]
    assert "cols 128, warps 4, stages 2 is 2.000 times as fast" in sweep.line(found)


def test_an_entry_that_nobody_beats_wins(toy):
    even = {"rounds": 3, "clock": lambda function, calls: 1.0}
    found = sweep.measure_entry(toy, sweep.checked(toy, CPU), CPU, **even)
    assert found["winner"] == found["tile"] and found["faster"] == 1.0
    assert sweep.line(found).endswith("the entry wins")
    slightly = {"rounds": 3, "clock": lambda function, calls: cost(function, calls) ** 0.02}
    found = sweep.measure_entry(toy, sweep.checked(toy, CPU), CPU, **slightly)
    assert found["faster"] == 1.0  # 0.5 ** 0.02 is 1.4 % less: that may be noise
    none = sweep.measure_entry(toy, [(START, "refused")], CPU, **even)
    assert none["winner"] == none["tile"] and none["tiles"][0]["refused"] == "refused"


def test_a_sweep_keeps_what_it_has_and_tells_what_it_has_not(toy, monkeypatch):
    monkeypatch.setattr(sweep, "_check_here", lambda entries, seconds: dict.fromkeys(entries, []))
    kept, told = [], []
    options = {"rehearse": True, "progress": told.append, "each": lambda f: kept.append(len(f))}
    # A rehearsal takes all tables of the operator, as an eager form asks none.
    seconds = iter([9.0, 9.0, 0.0])
    found = sweep.sweep(CPU, ["toy"], left=lambda: next(seconds), rounds=3, clock=cost, **options)
    assert [one["table"] for one in found] == ["toy_forward", "toy_16"] and kept == [1, 2]
    assert "not measured: the time was over" in told[-1] and "2 entries" in told[0]
    assert "the times say nothing" in told[0] and all("note" in one for one in found)


def test_the_backward_pass_sees_the_tile_too(toy):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return grad * TABLE.find(*KEY).cols

    x = torch.ones(3, requires_grad=True)
    y = Doubled.apply(x)
    run = sweep._with(TABLE, START._replace(cols=128), lambda: torch.autograd.grad(y, x, y))
    assert run()[0].tolist() == [256.0] * 3


def test_tiles_are_checked_in_processes_of_their_own():
    # The other process does not know this row: its error comes back as a reason.
    entry = sweep.Entry("nowhere", "first", "toy_forward", KEY, START)
    found = sweep.check_all([entry], "cpu", seconds=120.0)
    assert found[entry].startswith("ValueError: group: got 'nowhere'")


def test_processes_are_ended_when_the_time_is_over():
    entry = sweep.Entry("nowhere", "first", "toy_forward", KEY, START)
    assert sweep.check_all([entry], "cpu", seconds=0.0)[entry] == "not checked: the time was over"
