"""Dials with two faces: live in a kernel, frames made beforehand on a page that has none."""

import functools
import hashlib
import inspect
import itertools
import json
import re

from labcore.shapes import require
from labcore.viz.markup import asset, escape, framed, tag
from labcore.viz.values import label_text

MOST_DIALS = 2
MOST_FRAMES = 40
MOST_LIVE = 1000
FORBIDDEN = (
    r"<\s*(script|img|image|iframe|style|object|embed|link|meta|base|form|video|audio|foreignObject)\b"
    r"|<[^>]*\son\w+\s*=|<[^>]*\b(src|href)\s*=\s*[\"']?(?!#)|url\(\s*(?!#)|data:|javascript:"
)
HINT = "Run this cell, or read the book page, to turn the dials."


def explore(render, *, start=None, title="", live=None, **dials):
    """`Explorer` that turns `dials` (name = values) and shows what `render(**point)` returns.

    `render` gets one value of every dial and returns HTML: a table (`heat_table`, `bar_table`,
    `table`) or a table beside a drawing. All points of the grid are rendered here, once: they are
    the frames a page can show. `start` is the first point (first values when None). `live` gives
    dials more values in a kernel, where nothing has to be rendered beforehand.

    Refuses no dial or more than two, more than 40 frames, dials with fewer than two or equal
    values, a start that is no point of the grid, and frames that are not plain HTML.

    >>> from labcore.viz.tables import heat_table
    >>> dial = explore(lambda d_k: heat_table([[1 / d_k, 1.0]]), d_k=[2, 4, 8])
    >>> len(dial.frames())
    3
    """
    require(callable(render), "render", type(render).__name__, "a function", error=TypeError)
    allowed = f"1 to {MOST_DIALS} dials, as name = values"
    require(0 < len(dials) <= MOST_DIALS, "dials", _listed(dials) or "none", allowed)
    grid = {name: _values(name, given, MOST_FRAMES) for name, given in dials.items()}
    frames = 1
    for values in grid.values():
        frames *= len(values)
    require(frames <= MOST_FRAMES, "dials", f"{frames} points", f"at most {MOST_FRAMES} points")
    _check_parameters(render, grid)
    return Explorer(render, grid, _start(start, grid), str(title), _live(live, grid))


class Explorer:
    """Dials and their frames, made by `explore`; a cell that ends in one shows it."""

    def __init__(self, render, grid, start, title, live):
        self.render = render
        self.grid = grid
        self.start = start
        self.title = title
        self.live = live
        self._frames = {tuple(p.values()): checked(render(**p), p) for p in self.points()}
        self._check_start()
        self._shown = None  # the live view must live as long as the output that shows it

    def points(self):
        """All points of the grid, as dictionaries; the last dial turns fastest."""
        product = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in product]

    def frames(self):
        """Dictionary of all frames: the values of a point, in the order of the dials, to HTML."""
        return dict(self._frames)

    def frame(self, **point):
        """HTML of one point of the grid; a point outside the grid is an error."""
        return self._frames[tuple(_start(point, self.grid, argument="point").values())]

    def to_html(self):
        """HTML of the page's face: start frame, all frames, and the script that turns the dials.

        The same explorer gives the same bytes, and its element's id is a hash of the content.
        """
        start = self.frame(**self.start)
        note = f"{at_text(self.start)}. {HINT}"
        data = self._data()
        digest = hashlib.sha256((self.title + data).encode()).hexdigest()[:12]
        name = self.title or _listed(self.grid)
        inner = [
            tag("p", escape(self.title), class_="labx-title") if self.title else "",
            tag("div", start, class_="labx-view"),
            tag("p", escape(note), class_="labx-note"),
            f'<script type="application/json">{data}</script>',
            f"<script>{asset('player.js')}</script>",
        ]
        attributes = {"class_": "labx labx-player", "id": f"labx-{digest}", "role": "group"}
        style = f"<style>{asset('player.css')}</style>"
        return style + tag("div", "".join(inner), **attributes, aria_label=name)

    def widget(self):
        """The kernel's face: one slider for each dial above the frame, computed when turned."""
        import ipywidgets

        options = {n: self.live.get(n, values) for n, values in self.grid.items()}
        sliders = {
            name: ipywidgets.SelectionSlider(
                options=[(label_text(value), value) for value in values],
                value=self.start[name],
                description=name,
                continuous_update=False,
                style={"description_width": "initial"},
            )
            for name, values in options.items()
        }
        view = ipywidgets.HTML(framed(self.frame(**self.start)))

        def turn(_change):
            view.value = framed(self._at({name: s.value for name, s in sliders.items()}))

        for slider in sliders.values():
            slider.observe(turn, "value")
        head = [ipywidgets.HTML(f"<b>{escape(self.title)}</b>")] if self.title else []
        return ipywidgets.VBox([*head, *sliders.values(), view])

    def _at(self, point):
        """HTML at any point a slider can reach; an error of `render` is shown, not hidden."""
        key = tuple(point.values())
        if key in self._frames:
            return self._frames[key]
        try:
            return checked(self.render(**point), point)
        except Exception as error:  # a callback's traceback would go to a log that nobody reads
            return tag("p", escape(f"{at_text(point)}: {type(error).__name__}: {error}"))

    def _data(self):
        """JSON of dials, start and frames, a frame on each line, safe inside a script element."""
        dials = [
            {"name": name, "labels": [label_text(value) for value in values]}
            for name, values in self.grid.items()
        ]
        start = [values.index(self.start[name]) for name, values in self.grid.items()]
        dump = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
        lines = ",\n".join(dump(frame) for frame in self._frames.values())
        text = f'{{"dials":{dump(dials)},"start":{dump(start)},"frames":[\n{lines}\n]}}'
        return text.replace("</", "<\\/").replace("<!--", "\\u003c!--")

    def _check_start(self):
        """Nothing; refuses a start frame that changes from one call to the next."""
        start = self.frame(**self.start)
        again = checked(self.render(**self.start), self.start)
        allowed = "the same frame whenever the dials are the same"
        require(start == again, "render", f"two frames at {at_text(self.start)}", allowed)

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/html": self.to_html(), "text/plain": repr(self)}
        self._shown = self.widget()
        if self._shown.model_id is not None:
            view = {"version_major": 2, "version_minor": 0, "model_id": self._shown.model_id}
            bundle["application/vnd.jupyter.widget-view+json"] = view
        return bundle

    def __repr__(self):
        turns = "; ".join(
            f"{name} in {', '.join(label_text(value) for value in values)}"
            for name, values in self.grid.items()
        )
        head = f"Explorer {self.title!r}" if self.title else "Explorer"
        return f"{head}: {turns}; start {at_text(self.start)}"


def checked(frame, point):
    """`frame`, after making sure that it is HTML which every reader's page can show.

    Refuses what is no string or blank, frames without a table (notebooks that are not trusted drop
    drawings), scripts (they would not run), images (a frame is a table or a drawing of lines, not a
    photograph of one), and whatever would fetch something from elsewhere.
    """
    where = f"at {at_text(point)}"
    told = f"{type(frame).__name__} {where}"
    require(isinstance(frame, str), "render", told, "a string of HTML", error=TypeError)
    require(frame.strip() != "", "render", f"an empty string {where}", "a string of HTML")
    found = re.search(FORBIDDEN, frame, flags=re.I)
    allowed = "tables and inline SVG, no script, style, image or link to elsewhere"
    require(not found, "render", f"{found and found.group()!r} {where}", allowed)
    bare = re.sub(r"<!--.*?-->", "", frame, flags=re.S)
    allowed = "a table, alone or beside a drawing (notebooks not trusted drop drawings)"
    require("<table" in bare, "render", f"a frame without a table {where}", allowed)
    return frame


def at_text(point):
    """Text of a point, as in `d_k = 64, scaled = on`.

    >>> at_text({"d_k": 64, "scaled": True})
    'd_k = 64, scaled = on'
    """
    return ", ".join(f"{name} = {label_text(value)}" for name, value in point.items())


def _listed(names):
    return ", ".join(names)


def _values(name, given, most):
    """Values of one dial as a list of plain Python values, at least two and all different."""
    iterable = hasattr(given, "__iter__") and not isinstance(given, (str, dict))
    require(iterable, name, repr(given), "a list of values", error=TypeError)
    given = list(itertools.islice(given, most + 1))  # an endless series is refused as well
    require(len(given) <= most, name, f"more than {most} values", f"at most {most} values")
    wide = [value for value in given if getattr(value, "ndim", 0)]
    allowed = "numbers, texts, booleans"
    require(not wide, name, given="tensors or arrays", allowed=allowed, error=TypeError)
    values = [value.item() if hasattr(value, "item") else value for value in given]
    require(len(values) > 1, name, given=f"{len(values)} values", allowed="at least 2 values")
    unfit = [value for value in values if getattr(value, "__hash__", None) is None]
    require(not unfit, name, given=repr(unfit and unfit[0]), allowed=allowed, error=TypeError)
    labels = [label_text(value) for value in values]
    twice = [label for label in labels if labels.count(label) > 1]
    allowed = "values that differ in six digits"
    require(not twice, name, given=f"{twice and twice[0]} twice", allowed=allowed)
    same = len(set(values)) < len(values)
    require(not same, name, given=f"equal values in {values}", allowed="different values")
    return values


def _start(start, grid, argument="start"):
    """The start point, complete and in the order of the dials."""
    if start is None:
        return {name: values[0] for name, values in grid.items()}
    allowed = f"a dictionary with one value for each of {_listed(grid)}"
    require(isinstance(start, dict), argument, repr(start), allowed, error=TypeError)
    start = {n: v.item() if getattr(v, "ndim", 1) == 0 else v for n, v in start.items()}
    plain = all(getattr(v, "ndim", 0) == 0 for v in start.values())
    require(plain, argument, given="tensors or arrays", allowed=allowed, error=TypeError)
    require(set(start) == set(grid), argument, _listed(map(str, start)) or "no dial", allowed)
    for name, values in grid.items():
        require(
            any(start[name] is v or start[name] == v for v in values),
            argument,
            given=f"{name} = {label_text(start[name])}",
            allowed=", ".join(label_text(value) for value in values),
        )
    return {name: values[values.index(start[name])] for name, values in grid.items()}


def _live(live, grid):
    """Values of the live sliders by dial; each holds at least the values of the page's grid."""
    live = {} if live is None else live
    allowed = "a dictionary from dial to values"
    require(isinstance(live, dict), "live", type(live).__name__, allowed, error=TypeError)
    for name in live:
        require(name in grid, "live", given=repr(name), allowed=_listed(grid))
    values = {name: _values(name, given, MOST_LIVE) for name, given in live.items()}
    for name, more in values.items():
        lost = [label_text(value) for value in grid[name] if value not in more]
        allowed = "every value of the grid among them"
        require(not lost, "live", given=f"{name} without {', '.join(lost)}", allowed=allowed)
    return values


def _check_parameters(render, grid):
    """Nothing; refuses a `render` that cannot be called with exactly these dials by name."""
    try:
        signature = inspect.signature(render)
    except ValueError:  # a built-in function does not tell its parameters
        return
    given = f"parameters {signature}"
    try:
        signature.bind(**dict.fromkeys(grid))
    except TypeError as error:
        allowed = f"parameters {_listed(grid)} ({error})"
        require(False, "render", given=given, allowed=allowed, error=TypeError)
