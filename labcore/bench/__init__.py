"""Measured speed: our parts and others' timed in turn, kept with machine, versions and date."""

from labcore.bench.harness import (
    Comparison,
    Field,
    Spread,
    backward_only,
    compare,
    compare_all,
    spread,
    with_backward,
)
from labcore.bench.record import measure, recorded, run
from labcore.bench.registry import Row, groups, row, rows
from labcore.bench.sides import NotThere, Side

__all__ = [
    "Comparison",
    "Field",
    "NotThere",
    "Row",
    "Side",
    "Spread",
    "backward_only",
    "compare",
    "compare_all",
    "groups",
    "measure",
    "recorded",
    "row",
    "rows",
    "run",
    "spread",
    "with_backward",
]
