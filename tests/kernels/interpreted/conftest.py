"""Sizes that make the interpreter's tests of window attention fast, and some of them strict."""

import pytest

from labcore.kernels import window_tiles
from labcore.kernels.config import Tile


@pytest.fixture
def large_blocks(monkeypatch):
    """Fewer, larger blocks: the interpreter's time goes by their number, not by their size."""
    for name in ("FORWARD", "ROWS", "COLS", "BIAS"):
        table = getattr(window_tiles, name)
        monkeypatch.setattr(table, "find", lambda *key: Tile(64, 64))


@pytest.fixture
def few_programs(monkeypatch):
    """A GPU that asks for few programs, so that each takes several windows."""
    monkeypatch.setattr(window_tiles, "PROGRAMS", 4)
