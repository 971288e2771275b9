"""What the book shows: dials, tables, small drawings, figures, and the source of its own code.

Dials and their frames are HTML; figures are matplotlib. Neither knows a model: they take numbers.
"""

from labcore.viz.explorer import Explorer, explore
from labcore.viz.markup import Shown, show
from labcore.viz.style import PALETTE, theme
from labcore.viz.tables import bar_table, heat_table, table

__all__ = [
    "PALETTE",
    "Explorer",
    "Shown",
    "bar_table",
    "explore",
    "heat_table",
    "show",
    "table",
    "theme",
]
