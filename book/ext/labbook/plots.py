"""Plots of measured speed in plain HTML: they follow the width of the page and its colours."""

import math
from html import escape

from docutils import nodes


def raw(html):
    return nodes.raw("", html, format="html")


def ratio_plot(points):
    """Dots with quartiles on a logarithmic axis: (work, side, ratio, floor or None) each.

    Right of 1 ours is faster; a short line marks what was asked for.
    """
    if not points:
        return raw("")
    values = [v for _, _, ratio, floor in points for v in (*ratio.values(), floor or 1.0)]
    low = min(-1, math.floor(math.log2(max(min(values), 2**-20))))
    high = max(1, math.ceil(math.log2(max(values))))

    def at(value):
        return 100 * (math.log2(max(value, 2.0**low)) - low) / (high - low)

    lines, last = [], None
    for work, side, ratio, floor in points:
        if work != last:
            lines.append(f'<div class="speed-work">{escape(work)}</div>')
        last = work
        marks = [mark("one", at(1)), mark("spread", at(ratio["low"]), at(ratio["high"]))]
        marks += [mark("asked", at(floor))] if floor else []
        marks.append(mark("dot", at(ratio["median"])))
        lines.append(line(side, "".join(marks), f"{ratio['median']:.2f}"))
    ticks = {at(2.0**p): f"{2.0**p:g}" for p in range(low, high + 1, 1 if high - low < 8 else 2)}
    told = "Their time divided by ours, with quartiles; right of 1 ours is faster"
    return raw(figure(told, lines, ticks))


def rate_plot(bars):
    """Bars up to the ceiling: (work, unit, ceiling, floor, goal, rate or None) each.

    Short lines mark floor and goal; a row without a rate has them alone.
    """
    lines = []
    for work, unit, ceiling, floor, goal, rate in bars:
        marks = [] if rate is None else [mark("bar", 0, 100 * min(1.0, rate / ceiling))]
        marks += [mark("asked", 100 * floor / ceiling), mark("goal", 100 * goal / ceiling)]
        told = "not measured" if rate is None else f"{rate:.3g} {unit}"
        lines.append(f'<div class="speed-work">{escape(work)}</div>')
        lines.append(line(f"{floor:g} to {goal:g} {unit}", "".join(marks), told))
    ticks = {25.0 * k: f"{25 * k} %" for k in range(5)}
    return raw(figure("Share of the ceiling; the lines are floor and goal", lines, ticks))


def mark(kind, left, right=None):
    width = "" if right is None else f";width:{max(right - left, 0.3):.2f}%"
    return f'<i class="speed-{kind}" style="left:{left:.2f}%{width}"></i>'


def line(label, marks, value):
    """One line: what, where, how much. The marks only show what the words beside them say."""
    track = f'<span class="speed-track" aria-hidden="true">{marks}</span>'
    words = f"<span>{escape(label)}</span>", f"<span>{escape(value)}</span>"
    return f'<div class="speed-line">{words[0]}{track}{words[1]}</div>'


def figure(told, lines, ticks):
    axis = "".join(f'<b style="left:{at:.2f}%">{words}</b>' for at, words in ticks.items())
    axis = f'<span></span><span class="speed-track speed-ticks">{axis}</span><span></span>'
    axis = f'<div class="speed-line" aria-hidden="true">{axis}</div>'
    return f'<div class="speed-plot"><p>{escape(told)}.</p>{"".join(lines)}{axis}</div>'
