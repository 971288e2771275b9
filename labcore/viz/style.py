"""The look of the book's figures: few colours, white ground, and a font with Chinese glyphs."""

import contextlib
import dataclasses
import functools
import pathlib

import matplotlib
from matplotlib import font_manager

FONT = pathlib.Path(__file__).parent / "fonts" / "labcore-cjk-subset.otf"
FONT_NAME = "Labcore CJK"
WIDEST = 6.2  # inches at 100 dots each: the text column of the book

# Blue, orange, green, purple, grey, gold: told apart with red-green and blue-yellow blindness,
# and dark enough on white, light enough on black, for drawings that have no ground of their own.
PALETTE = ("#2f7fd0", "#d9691e", "#1b9e77", "#a3519e", "#7a7a7a", "#b58900")

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.facecolor": "white",
    "axes.grid": False,
    "axes.labelsize": 9,
    "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.unicode_minus": True,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.edgecolor": "white",
    "figure.facecolor": "white",
    "figure.figsize": (5.6, 3.0),
    "font.family": ["DejaVu Sans", FONT_NAME],
    "font.size": 9,
    "grid.color": "#dddddd",
    "image.cmap": "Blues",
    "image.interpolation": "nearest",
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": "figure",
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "labcore",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}


def theme():
    """None; every figure made afterwards has the book's look. The helpers have it anyway.

    >>> theme(); matplotlib.rcParams["figure.dpi"]
    100.0
    """
    register_font()
    matplotlib.rcParams.update(STYLE)


@contextlib.contextmanager
def styled():
    """Context in which figures have the book's look; outside everything stays as it was."""
    register_font()
    with matplotlib.rc_context(STYLE):
        yield


@functools.cache
def register_font():
    """Name of the font whose glyphs are used where the Latin font has none."""
    manager = font_manager.fontManager
    manager.addfont(str(FONT))
    entry = next(known for known in manager.ttflist if known.name == FONT_NAME)
    # The one weight also answers for bold: a missing weight would be logged onto the page.
    manager.ttflist.append(dataclasses.replace(entry, weight=700))
    return FONT_NAME
