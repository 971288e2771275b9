"""Measured speed: our parts and others' timed in turn, kept with machine, versions and date."""

from labcore.bench.harness import Comparison, Spread, compare, spread, with_backward
from labcore.bench.record import measure, recorded, run
from labcore.bench.registry import Row, groups, row, rows

__all__ = [
    "Comparison",
    "Row",
    "Spread",
    "compare",
    "groups",
    "measure",
    "recorded",
    "row",
    "rows",
    "run",
    "spread",
    "with_backward",
]
