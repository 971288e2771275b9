"""Other tiles for the kernels, timed: what the tables would say on this very GPU.

The rows of the benchmark are the work. Which tables a row's kernels ask is seen by listening to
`Table.find` while it runs once; each entry found is then varied, one step in each direction, and
all variants are timed in turn with the entry. A table that several rows ask is swept once, on the
first of them.
"""

import contextlib
import functools
import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple
from unittest import mock

import torch

from labcore.bench.field import release, rounded
from labcore.bench.harness import compare_all, relative_difference
from labcore.bench.registry import rows
from labcore.bench.sides import reason
from labcore.kernels.config import Table, Tile, bits, capability

MODULES = {
    "attention": "labcore.kernels.attention_tiles",
    "window_attention": "labcore.kernels.window_tiles",
    "expert_gemm": "labcore.kernels.experts_tiles",
    "expert_gemm_dw": "labcore.kernels.experts_tiles",
}
LEAST = Tile(16, 16, 16, 1, 1)
MOST = Tile(256, 256, 128, 16, 6)
# A variant must be faster by more than the noise of the best of many medians.
WORTH = 1.02
NOTE = "a rehearsal: the eager forms run, which ask no table, so the times say nothing"
# More scores than this in one block fit into no registers.
LARGEST = 128 * 256


class Entry(NamedTuple):
    """One entry of a table, by names alone, so that another process can find it again."""

    group: str
    title: str
    table: str
    key: tuple
    tile: Tile


def neighbours(tile, fixed=False):
    """Tiles one step from `tile`: a side or the warps halved or doubled, a stage more or less, and
    some pairs of these that belong together. `fixed` keeps the sides.

    >>> [t[3:] for t in neighbours(Tile(64, 64, 0, 4, 2), fixed=True)]
    [(2, 2), (8, 2), (4, 1), (4, 3), (2, 3), (8, 1)]
    """
    r, c, d, w, s = tile
    found = [(r, c, d, w // 2, s), (r, c, d, w * 2, s), (r, c, d, w, s - 1), (r, c, d, w, s + 1)]
    found += [(r, c, d, w // 2, s + 1), (r, c, d, w * 2, s - 1)]
    if not fixed:
        found += [(r // 2, c, d, w, s), (r * 2, c, d, w, s), (r, c // 2, d, w, s)]
        found += [(r, c * 2, d, w, s), (r // 2, c, d, w // 2, s), (r * 2, c, d, w * 2, s)]
        found += [(r, c * 2, d, w, s - 1), (r, c // 2, d, w, s + 1)]
        found += [(r, c, d // 2, w, s + 1), (r, c, d * 2, w, s - 1)] if d else []
    fits = [Tile(*t) for t in found if _allowed(t, tile)]
    return list(dict.fromkeys(t for t in fits if t != tile))


def _allowed(tile, start):
    """Within the bounds; a side that the kernel does not have, 0, stays 0."""
    sized = all(
        value == was == 0 or low <= value <= high
        for value, was, low, high in zip(tile, start, LEAST, MOST, strict=True)
    )
    return sized and tile[0] * max(tile[1], 1) <= LARGEST


@contextlib.contextmanager
def listening():
    """A `with` block that collects {(table, key): table} of all entries asked for inside it."""
    asked, find = {}, Table.find

    def record(table, *key):
        asked[table.name, tuple(key)] = table
        return find(table, *key)

    with mock.patch.object(Table, "find", record):
        yield asked


def asked_by(row, device):
    """(function of ours, {(table name, key): table}) of a row."""
    function, _ = row.build(torch.device(device))
    with listening() as asked:
        function()
    return function, asked


def plan(device, groups):
    """The entries that the rows of `groups` ask for on a device, each with its first row."""
    found = {}
    for row in _rows(device, groups):
        function, asked = asked_by(row, device)
        for (name, key), table in asked.items():
            entry = Entry(row.group, row.title, name, key, table.find(*key))
            found.setdefault((name, key), entry)
        del function
        release()
    return list(found.values())


def rehearsal_plan(device, groups):
    """Entries of all tables there are, for a machine where the eager forms run and ask none."""
    found = {}
    for row in _rows(device, groups):
        function, _ = row.build(torch.device(device))
        like = function()
        like = like[0] if isinstance(like, (tuple, list)) else like
        for table in tables(row.operator):
            known = [k[1:] for k in table.tiles if k[1] == bits(like)] or [(16, 64)]
            key = (capability(like), *known[0])
            if table.has(*key):
                entry = Entry(row.group, row.title, table.name, key, table.find(*key))
                found.setdefault(table.name, entry)
    return list(found.values())


def tables(operator):
    """All tables in the module of an operator's tiles, also those kept in a dict."""
    values = list(vars(importlib.import_module(MODULES[operator])).values())
    values += [v for held in values if isinstance(held, dict) for v in list(held.values())]
    return list(dict.fromkeys(v for v in values if isinstance(v, Table)))


def _rows(device, groups):
    kind = torch.device(device).type
    return [r for g in groups for r in rows(g) if kind in r.devices and r.operator]


def _row(entry):
    return next(r for r in rows(entry.group) if r.title == entry.title)


def _fixed(entry):
    """Window kernels that hold a window whole have its size as their side."""
    return entry.table.startswith("window") and entry.table[-1].isdigit()


def _with(table, tile, function):
    """`function` with another tile. The backward pass runs in this thread, where the tile is set:
    autograd would take a thread of its own, which has the settings that every thread starts with.
    """

    def run():
        with table.override(tile), torch.autograd.set_multithreading_enabled(False):
            return function()

    return run


def trials(entry, device):
    """(table, function, [(tile, None or why it is refused)]) of an entry's neighbours.

    A tile is refused that does not compile, does not fit, or gives another result.
    """
    function, asked = asked_by(_row(entry), device)
    table = asked.get((entry.table, entry.key))
    if table is None:  # the eager form asked for none
        table = next(t for t in tables(_row(entry).operator) if t.name == entry.table)
    wanted, found = function(), []
    for tile in neighbours(entry.tile, _fixed(entry)):
        found.append((tile, _refused(_with(table, tile, function), wanted, device)))
    return table, function, found


def _refused(run, wanted, device):
    try:
        apart = relative_difference(run(), wanted)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
    except Exception as error:  # too large, not compiled, or a side the kernel cannot have
        return reason(error)
    return None if apart < 2e-2 else f"the result differs by {apart:.2g}, relative"


def checked(entry, device):
    """[(tile, None or reason)]: `trials` for another process, which also fills the compiler's
    cache and takes any fault of a tile with it."""
    return trials(entry, device)[2]


def check_all(entries, device, seconds, workers=8):
    """{entry: its checked tiles, or a reason why there are none}, in processes of their own."""
    found = dict.fromkeys(entries, "not checked: the time was over")
    pool = ProcessPoolExecutor(
        min(workers, max(1, len(entries))),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    )
    futures = {pool.submit(checked, entry, device): entry for entry in entries}
    try:
        for future in as_completed(futures, timeout=max(1.0, seconds)):
            error = future.exception()
            found[futures[future]] = future.result() if error is None else reason(error)
    except TimeoutError:
        for process in list((pool._processes or {}).values()):
            process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def measure_entry(entry, tiles, device, **options):
    """One dict: the entry, every tile with its time or why it was refused, and the winner."""
    function, asked = asked_by(_row(entry), device)
    table = asked.get((entry.table, entry.key))
    table = table or next(t for t in tables(_row(entry).operator) if t.name == entry.table)
    runs = {str(i): _with(table, tile, function) for i, (tile, why) in enumerate(tiles) if not why}
    field = compare_all(_with(table, entry.tile, function), runs, device=device, **options)
    # The ratio is a variant's time over the entry's: the winner has the smallest.
    best = min(runs, key=lambda i: field.ratios[i].median, default=None)
    won = best is not None and field.ratios[best].median * WORTH < 1
    told = []
    for i, (tile, why) in enumerate(tiles):
        one = {"tile": tile._asdict()}
        measured = {} if why else {"ms": rounded(field.theirs[str(i)], 1e3)}
        told.append(one | ({"refused": why} if why else measured))
    return {
        **entry._asdict(),
        "tile": entry.tile._asdict(),
        "ms": rounded(field.ours, 1e3),
        "tiles": told,
        "winner": (tiles[int(best)][0] if won else entry.tile)._asdict(),
        "faster": round(1 / field.ratios[best].median, 4) if won else 1.0,
    }


def sweep(device, groups, *, rehearse=False, progress=print, each=None, left=None, **options):
    """A list of `measure_entry` for all entries that the rows of `groups` ask for.

    `each` gets the list so far after every entry, `left()` tells the seconds that are left.
    """
    left = left or (lambda: float("inf"))
    entries = (rehearsal_plan if rehearse else plan)(device, groups)
    progress(f"sweep: {len(entries)} entries of the tables" + (f" ({NOTE})" if rehearse else ""))
    check = _check_here if rehearse else functools.partial(check_all, device=device)
    checks = check(entries, seconds=min(left() * 0.6, 600.0))
    found = []
    for entry in entries:
        tiles = checks[entry]
        if isinstance(tiles, str) or left() <= 0:
            why = tiles if isinstance(tiles, str) else "not measured: the time was over"
            found.append({**entry._asdict(), "tile": entry.tile._asdict(), "not measured": why})
        else:
            found.append(measure_entry(entry, tiles, device, **options))
        found[-1] |= {"note": NOTE} if rehearse else {}
        progress(line(found[-1]))
        release()
        if each is not None:
            each(found)
    return found


def _check_here(entries, seconds):
    return {entry: checked(entry, "cpu") for entry in entries}


def line(found):
    """One line of text about a swept entry."""
    tile = "×".join(str(v) for v in list(found["tile"].values())[:3] if v)
    text = f"{found['table']} {tuple(found['key'])}, {tile}: "
    if "not measured" in found:
        return text + found["not measured"]
    refused = sum("refused" in one for one in found["tiles"])
    text += f"{len(found['tiles'])} others, {refused} refused; "
    if found["faster"] == 1.0:
        return text + "the entry wins"
    won = ", ".join(f"{k} {v}" for k, v in found["winner"].items() if v)
    return text + f"{won} is {found['faster']:.3f} times as fast"
