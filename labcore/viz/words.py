"""A picture of attention between words: two columns of the sentence, lines from one word."""

import numpy

from labcore.shapes import require
from labcore.viz.figures import panels
from labcore.viz.style import PALETTE, WIDEST, styled
from labcore.viz.values import finite, names

ROW = 0.235  # inches a word is high
GAP = 2.1  # inches between the columns
LONGEST = 26  # characters of a word; longer ones are cut in the middle


def attention_lines(tokens, weights, query, *, heads=None, title="", ax=None):
    """Picture: the sentence twice, and lines from `tokens[query]` left to all words right.

    `weights` is [S] or [heads, S] of this query, or the whole map [T, S] or [heads, T, S] given
    with T = S = number of tokens (a square [S, S] is a map). A line is wide and dark where its
    weight is large; each head has a colour, and its weights stand as squares beside the words.
    `heads` names the heads. Refuses weights outside 0 to 1, an unknown query, more than 6 heads.

    >>> picture = attention_lines(["the", "cat", "it"], [0.1, 0.8, 0.1], query=2)
    >>> len(picture.axes[0].texts)
    6
    """
    array = _of_query(weights, query, len(tokens))
    words = [_short(word) for word in names(tokens, len(tokens), "tokens")]
    told = names(heads, len(array), "heads")
    count = len(words)
    with styled():
        if ax is None:
            wide = max(len(word) for word in words) * 0.085 + 0.3
            width = min(WIDEST, GAP + 2 * wide + 0.12 * len(array))
            extra = 0.25 * bool(title) + 0.28 * bool(told)
            ax = panels(width=width, height=max(1.0, ROW * count + 0.2 + extra))[1]
        _write_words(ax, words, query, len(array))
        for index, row in enumerate(array):
            shift = (index - (len(array) - 1) / 2) * 0.16
            _draw_head(ax, row, query + shift, shift, PALETTE[index], index)
        ax.set(ylim=(count - 0.5, -0.5), title=title)
        ax.set_axis_off()
        _widen(ax)
        if told:
            _name_heads(ax, told)
    return ax.get_figure(root=True)


def _of_query(weights, query, count):
    """Weights [heads, S] of one query, from all the shapes that `attention_lines` takes."""
    array = finite(weights, "weights", ndim=(1, 2, 3)).astype(float)
    whole = isinstance(query, (int, numpy.integer)) and not isinstance(query, bool)
    good = whole and 0 <= query < count
    require(good, "query", given=repr(query), allowed=f"a position from 0 to {count - 1}")
    told = f"shape {list(array.shape)}"
    is_map = array.ndim == 3 or array.shape == (count, count)
    if is_map:
        require(array.shape[-2] == count, "weights", told, f"[..., {count}, {count}]")
        array = array[..., query, :]
    array = numpy.atleast_2d(array)
    require(array.shape[1] == count, "weights", told, f"{count} weights, one for each token")
    most = len(PALETTE)
    require(len(array) <= most, "weights", f"{len(array)} heads", f"at most {most} heads")
    inside = bool((array >= 0).all() and (array <= 1 + 1e-6).all())
    require(inside, "weights", f"{array.min():g} to {array.max():g}", "numbers from 0 to 1")
    return array


def _short(word):
    """The word, cut in the middle when it is longer than a column can be wide."""
    half = (LONGEST - 1) // 2
    return word if len(word) <= LONGEST else f"{word[:half]}…{word[-half:]}"


def _write_words(ax, words, query, heads):
    """Words right-aligned before the lines, left-aligned behind lines and squares."""
    for place, word in enumerate(words):
        asked = place == query
        look = {"weight": "bold"} if asked else {"color": "#777777"}
        ax.text(-0.04, place, word, ha="right", va="center", fontsize=9, **look)
        ax.text(1.04 + 0.06 * heads, place, word, ha="left", va="center", fontsize=9)


def _draw_head(ax, row, start, shift, colour, index):
    """Lines and squares of one head: width grows with the weight, darkness with its root."""
    for place, weight in enumerate(row):
        weight = min(float(weight), 1.0)
        look = {"color": colour, "alpha": weight**0.5}
        ax.plot(
            [0, 1], [start, place + shift], linewidth=0.4 + 4.6 * weight,
            solid_capstyle="butt", **look,
        )  # fmt: skip
        square = 1.01 + 0.06 * index + numpy.array([0, 0.05, 0.05, 0])
        ax.fill(square, place + numpy.array([-0.36, -0.36, 0.36, 0.36]), **look)


def _widen(ax):
    """Moves the ends of the axis until no word is cut; words are measured as they are drawn."""
    picture = ax.get_figure(root=True)
    renderer = picture.canvas.get_renderer()
    ax.set_xlim(-1, 2)
    picture.draw_without_rendering()
    for _ in range(4):  # text keeps its size while the axis changes: a few rounds settle it
        back = ax.transData.inverted()
        boxes = [text.get_window_extent(renderer).transformed(back) for text in ax.texts]
        left = min(box.x0 for box in boxes)
        right = max(box.x1 for box in boxes)
        ax.set_xlim(left - 0.02, right + 0.02)


def _name_heads(ax, told):
    """A legend above the picture, one entry for each head."""
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], color=colour, linewidth=3) for colour in PALETTE[: len(told)]]
    picture = ax.get_figure(root=True)
    picture.legend(marks, told, loc="outside upper center", ncols=min(len(told), 6))
