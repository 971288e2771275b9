"""Small drawings as SVG text for frames: curves, and lines of attention between two word lists."""

import math
import unicodedata

import numpy

from labcore.shapes import require
from labcore.viz.markup import escape, tag
from labcore.viz.style import PALETTE
from labcore.viz.tables import table
from labcore.viz.values import finite, label_text, names, number_text

DASHES = ("solid", "dashed", "dotted")
PATTERNS = {"solid": None, "dashed": "7 4", "dotted": "2 3"}
GRID = 'stroke="currentColor" stroke-opacity=".18"'
AXIS = 'stroke="currentColor" stroke-opacity=".6"'


def line_svg(
    series, x, *, xlabel="", ylabel="", ylim=None, log_x=False, log_y=False, at=None,
    caption=None, digits=2, size=(430, 210),
):  # fmt: skip
    """HTML figure with one curve for each of `series` (name = numbers) over `x`, and its key.

    The key is a table with the first and last value of each curve, so that something is left where
    drawings are not shown. `ylim` fixes the axis for frames that are to be compared; `at` draws a
    vertical line. Refuses non-finite numbers, other lengths than `x` has, values outside `ylim`,
    and numbers that are not positive on a logarithmic axis.

    >>> line_svg({"1/x": [1, 0.5, 0.25]}, [1, 2, 4], xlabel="x").count("<polyline")
    1
    """
    across = finite(x, "x", ndim=1).astype(float)
    require(0 < len(series) <= len(PALETTE), "series", len(series), f"1 to {len(PALETTE)} curves")
    lines = {str(name): finite(y, f"series[{name!r}]", ndim=1) for name, y in series.items()}
    for name, y in lines.items():
        require(len(y) == len(across), f"series[{name!r}]", f"{len(y)} numbers", len(across))
    height = numpy.concatenate([y.astype(float) for y in lines.values()])
    low, high = _limits(height, ylim, log_y)
    left, top, right, bottom = 52, 8, size[0] - 10, size[1] - 38
    to_x, ticks_x = _axis(across.min(), across.max(), left, right, log_x, "x")
    if log_x and len(across) <= 10:  # powers of two, most often: their own values say more
        ticks_x = [(value, f"{value:.6g}") for value in across]
    to_y, ticks_y = _axis(low, high, bottom, top, log_y, "series")
    across_at = [(to_x(value), text) for value, text in ticks_x]
    parts = _box(left, top, right, bottom, across_at, [(to_y(y), text) for y, text in ticks_y])
    if at is not None:
        inside = across.min() <= at <= across.max()
        require(inside, "at", f"{at:g}", f"a place from {across.min():g} to {across.max():g}")
        parts.append(f'<path d="M{to_x(float(at)):.1f} {top}V{bottom}" {AXIS} stroke-width="2"/>')
    for index, y in enumerate(lines.values()):
        points = " ".join(f"{to_x(a):.1f},{to_y(b):.1f}" for a, b in zip(across, y, strict=True))
        parts.append(_polyline(points, index))
    parts.append(_text((left + right) / 2, size[1] - 4, xlabel))
    middle = (top + bottom) / 2
    parts.append(_text(11, middle, ylabel, more=f' transform="rotate(-90 11 {middle:g})"'))
    told = f"{caption or ylabel or 'curves'}: {', '.join(lines)}"
    return _figure("".join(parts), size, told, caption, _key(lines, across, xlabel, digits))


def lines_svg(tokens_from, tokens_to, weights, *, query=None, caption=None, digits=2):
    """HTML figure: words left, words right, a line for each weight [from, to], wide where large.

    `query` is the position of one word on the left whose lines alone are drawn. Below stands a
    table: the strongest link of each word, or the three strongest of the query. Weights outside
    0 to 1 and lists of the wrong length are errors.

    >>> lines_svg(["it"], ["cat", "it"], [[0.9, 0.1]]).count("<path")
    2
    """
    array = finite(weights, "weights", ndim=2).astype(float)
    inside = bool((array >= 0).all() and (array <= 1 + 1e-6).all())
    require(inside, "weights", f"{array.min():g} to {array.max():g}", "numbers from 0 to 1")
    left = names(tokens_from, array.shape[0], "tokens_from")
    right = names(tokens_to, array.shape[1], "tokens_to")
    rows = range(len(left))
    if query is not None:
        allowed = f"a position from 0 to {len(left) - 1}"
        require(query in rows, "query", given=repr(query), allowed=allowed)
    drawing, size = _links(array, left, right, query)
    told = caption or "attention from the words left to the words right"
    best = [(left[r], c, array[r, c]) for r in rows for c in [int(array[r].argmax())]]
    if query is not None:
        order = numpy.argsort(-array[query], kind="stable")[:3]
        best = [(left[query], int(c), array[query, c]) for c in order]
    links = [[word, right[c], float(weight)] for word, c, weight in best]
    below = table(links, ["query", "key", "weight"], digits=digits)
    return _figure(drawing, size, told, caption, below)


def _links(array, left, right, query):
    """SVG text of both word columns and the lines between them, and its size."""
    step, start = 20, 12
    edge = max(text_width(word) for word in left) + 10
    far = edge + 150
    parts = []
    for r in range(len(left)) if query is None else [query]:
        for c, weight in enumerate(array[r]):
            if weight >= 0.01:  # thinner than can be seen
                y, z = start + step * r, start + step * c
                curve = f"M{edge} {y}C{edge + 60} {y} {far - 60} {z} {far} {z}"
                look = f'stroke-width="{0.6 + 4 * weight:.1f}" stroke-opacity="{weight**0.5:.2f}"'
                parts.append(f'<path d="{curve}" fill="none" stroke="{PALETTE[0]}" {look}/>')
    for r, word in enumerate(left):
        bold = ' font-weight="700"' if r == query else ""
        faint = ' opacity=".7"' if query is not None and r != query else ""
        parts.append(_text(edge - 6, start + step * r + 4, word, "end", bold + faint))
    for c, word in enumerate(right):
        parts.append(_text(far + 6, start + step * c + 4, word, "start"))
    width = far + max(text_width(word) for word in right) + 10
    return "".join(parts), (math.ceil(width), step * max(len(left), len(right)) + 8)


def text_width(text, size=12):
    """Width in pixels that a text of this font size takes at most, wide characters counted double.

    >>> text_width("it") < text_width("注意")
    True
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return math.ceil(size * (wide * 1.05 + (len(text) - wide) * 0.66))


def ticks(low, high, most=5):
    """Round numbers between `low` and `high`, at most `most` + 1 of them, evenly spaced.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _limits(values, ylim, log):
    """Ends of the upright axis: `ylim`, or the values' range with a little air."""
    low, high = float(values.min()), float(values.max())
    if ylim is not None:
        a, b = (float(limit) for limit in ylim)
        told = f"{a:g} to {b:g} for values from {low:g} to {high:g}"
        require(a < b and a <= low and high <= b, "ylim", told, "limits that hold all values")
        return a, b
    if log:
        return (low, high) if low < high else (low / 2, high * 2)
    air = 0.05 * (high - low) or max(abs(high), 1.0) * 0.1
    return low - air * (low != 0), high + air * (high != 0)


def _axis(low, high, start, end, log, name):
    """A function from value to pixel, and the ticks as (value, text), for one axis."""
    if log:
        require(low > 0, name, given=f"{low:g}", allowed="positive numbers on a logarithmic axis")
        low, high = math.log10(low), math.log10(high)
    high = high if high > low else low + 1
    scale = (end - start) / (high - low)
    if not log:
        marks = [(value, f"{value:.6g}") for value in ticks(low, high)]
        return (lambda value: start + (value - low) * scale), marks
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    marks = [(10.0**p, f"{10.0**p:.6g}") for p in powers[:: max(1, math.ceil(len(powers) / 6))]]
    if len(marks) < 2:
        marks = [(10**value, f"{10**value:.3g}") for value in (low, (low + high) / 2, high)]
    return (lambda value: start + (math.log10(value) - low) * scale), marks


def _box(left, top, right, bottom, across, upright):
    """SVG parts of the two axes, their ticks at pixels (place, text), and the grid lines."""
    parts = []
    for y, text in upright:
        parts.append(f'<path d="M{left} {y:.1f}H{right}" {GRID}/>')
        parts.append(_text(left - 6, y + 4, text, "end"))
    for x, text in across:
        parts.append(f'<path d="M{x:.1f} {bottom}v4" {AXIS}/>')
        parts.append(_text(x, bottom + 17, text))
    return [*parts, f'<path d="M{left} {top}V{bottom}H{right}" fill="none" {AXIS}/>']


def _text(x, y, text, anchor="middle", more=""):
    """One SVG text; empty when there is nothing to say."""
    if not text:
        return ""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor"{more}>{escape(text)}</text>'


def _polyline(points, index):
    pattern = PATTERNS[DASHES[index % len(DASHES)]]
    dash = f' stroke-dasharray="{pattern}"' if pattern else ""
    look = f'fill="none" stroke="{PALETTE[index]}" stroke-width="2"{dash}'
    return f'<polyline points="{points}" {look}/>'


def _key(lines, across, xlabel, digits):
    """Table that says which curve is which, with the first and the last value of each."""
    ends = [f"{xlabel or 'x'} = {label_text(float(value))}" for value in across[[0, -1]]]
    head = "".join(tag("th", escape(text), scope="col") for text in ends)
    rows = []
    for index, (name, y) in enumerate(lines.items()):
        style = f"border-top:3px {DASHES[index % len(DASHES)]} {PALETTE[index]}"
        mark = tag("i", class_="labx-k", style=style)
        cells = "".join(tag("td", number_text(value, digits)) for value in y[[0, -1]])
        rows.append(tag("tr", tag("th", mark + escape(name), scope="row", class_="labx-l") + cells))
    top = tag("thead", tag("tr", "<td></td>" + head))
    return tag("table", top + tag("tbody", "".join(rows)), class_="labx-plain")


def _figure(drawing, size, told, caption, below):
    """HTML figure: caption, drawing, table."""
    box = f'viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}"'
    picture = f'<svg {box} role="img" aria-label="{escape(told)}">{drawing}</svg>'
    head = tag("figcaption", escape(caption)) if caption else ""
    return tag("figure", head + picture + below)
