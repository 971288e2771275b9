"""What the book shows: dials, tables, small drawings, figures, and the source of its own code.

Dials and their frames are HTML; figures are matplotlib. Neither knows a model: they take numbers.
"""

from labcore.viz.drawings import line_svg, lines_svg
from labcore.viz.explorer import Explorer, explore
from labcore.viz.figures import Picture, bars, curves, heatmap, histograms, panels
from labcore.viz.markup import Shown, show
from labcore.viz.source import Source, show_source
from labcore.viz.style import PALETTE, theme
from labcore.viz.tables import bar_table, heat_table, table
from labcore.viz.words import attention_lines

__all__ = [
    "PALETTE",
    "Explorer",
    "Picture",
    "Shown",
    "Source",
    "attention_lines",
    "bar_table",
    "bars",
    "curves",
    "explore",
    "heat_table",
    "heatmap",
    "histograms",
    "line_svg",
    "lines_svg",
    "panels",
    "show",
    "show_source",
    "table",
    "theme",
]
