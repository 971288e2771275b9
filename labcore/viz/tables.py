"""Small tables as HTML text, for frames of an explorer and, through `show`, for a page."""

import numbers

import numpy

from labcore.shapes import require
from labcore.viz.markup import escape, tag
from labcore.viz.values import finite, label_text, names, number_text


def heat_table(values, rows=None, columns=None, digits=2, vmax=None, caption=None, mark=()):
    """HTML table of a matrix [rows, columns]: blue for positive, orange for negative numbers.

    The strongest colour is at `vmax` (largest magnitude when None): give it in frames that are to
    be compared. `-inf` (a forbidden score) shows as `-∞` without colour. `mark` is a set of
    (row, column) to outline. NaN, `+inf` and label lists of the wrong length are errors.

    >>> heat_table([[0.25, 0.75]], columns=["a", "b"]).count("<td")
    2
    """
    array = finite(values, "values", ndim=2, also=(-numpy.inf,))
    height, width = array.shape
    rows, columns = names(rows, height, "rows"), names(columns, width, "columns")
    scale = _scale(array, vmax)
    cells = [
        [_heat_cell(array[r, c], scale, digits, (r, c) in mark) for c in range(width)]
        for r in range(height)
    ]
    return _assemble(cells, rows, columns, caption, "labx-heat")


def bar_table(rows, columns=None, digits=2, vmax=None, caption=None, mark=()):
    """HTML table with a labelled bar in each row; negative bars lie left of a zero line.

    `rows` maps labels to numbers, or is a list of (label, number). With lists of numbers instead
    of numbers, `columns` names the bars of a row. `vmax` is the value of a full bar (largest
    magnitude when None). `mark` is a set of row indices to outline. Refuses NaN and infinities.

    >>> bar_table({"it": 0.75, "was": -0.25}).count("<i ")
    2
    """
    pairs = list(rows.items()) if hasattr(rows, "items") else [tuple(row) for row in rows]
    require(len(pairs) > 0, "rows", given="none", allowed="at least one (label, number)")
    array = finite([_series(value) for _, value in pairs], "rows", ndim=2)
    heads = names(columns, array.shape[1], "columns")
    scale = _scale(array, vmax)
    zero = 50.0 if (array < 0).any() else 0.0
    cells = [
        [cell for x in line for cell in _bar_cells(x, scale, digits, zero, r in mark)]
        for r, line in enumerate(array)
    ]
    labels = [label_text(label) for label, _ in pairs]
    return _assemble(cells, labels, heads, caption, "labx-bars", span=2)


def table(rows, columns=None, caption=None, digits=4, mark=()):
    """HTML table of numbers and texts; the first cell of each row is its header.

    Numbers stand right, texts left; floats get `digits` decimals. `mark` is a set of (row, column)
    to outline, counted with the header column as column 0. Rows of unequal length are errors.

    >>> table([["greedy", 0.216], ["beam 2", 0.288]], columns=["method", "p"]).count("<tr>")
    3
    """
    rows = [list(row) for row in rows]
    require(len(rows) > 0 and len(rows[0]) > 0, "rows", given="none", allowed="at least one cell")
    widths = sorted({len(row) for row in rows})
    allowed = "rows of one length"
    require(len(widths) == 1, "rows", given=f"rows of {widths} cells", allowed=allowed)
    heads = names(columns, widths[0], "columns")
    text = [any(not _is_number(row[c]) for row in rows) for c in range(widths[0])]
    lines = []
    for r, row in enumerate(rows):
        side = tag("th", _cell_text(row[0], digits), scope="row", class_="labx-l")
        body = [
            tag("td", _cell_text(value, digits), class_=_class(text[c], (r, c) in mark))
            for c, value in enumerate(row)
        ]
        lines.append(tag("tr", side + "".join(body[1:])))
    head = ""
    if heads:
        cells = [
            tag("th", escape(name), scope="col", class_=_class(text[c] or c == 0, False))
            for c, name in enumerate(heads)
        ]
        head = tag("thead", tag("tr", "".join(cells)))
    return _whole(head, lines, caption, "labx-plain")


def _assemble(cells, rows, columns, caption, kind, span=1):
    """HTML table of finished cells between row headers and column headers."""
    head = ""
    if columns:
        corner = "<td></td>" if rows else ""
        wide = str(span) if span > 1 else None
        tops = "".join(tag("th", escape(name), scope="col", colspan=wide) for name in columns)
        head = tag("thead", tag("tr", corner + tops))
    lines = []
    for r, line in enumerate(cells):
        side = tag("th", escape(rows[r]), scope="row", class_="labx-l") if rows else ""
        lines.append(tag("tr", side + "".join(line)))
    return _whole(head, lines, caption, kind)


def _whole(head, lines, caption, kind):
    top = tag("caption", escape(caption)) if caption else ""
    return tag("table", top + head + tag("tbody", "".join(lines)), class_=kind)


def _heat_cell(value, scale, digits, marked):
    """One cell whose colour strength `--v` runs from 0 to 1."""
    strength = 0.0 if numpy.isinf(value) else min(abs(float(value)) / scale, 1.0)
    shown = f"{strength:.2f}".rstrip("0").rstrip(".")
    kinds = ["n" * bool(value < 0), "x" * bool(numpy.isinf(value)), "labx-m" * marked]
    style = f"--v:{shown}" if float(shown) else None
    kind = " ".join(kind for kind in kinds if kind)
    return tag("td", number_text(value, digits), class_=kind, style=style)


def _bar_cells(value, scale, digits, zero, marked):
    """A cell with the number and a cell with its bar, `--a` its left end and `--w` its width."""
    full = 100.0 - zero
    width = min(abs(float(value)) / scale, 1.0) * full
    left = zero - width if value < 0 else zero
    bar = tag("i", class_="n" if value < 0 else None, style=f"--a:{left:.1f};--w:{width:.1f}")
    line = f"--z:{zero:g}"
    return (
        tag("td", number_text(value, digits), class_=_class(False, marked)),
        tag("td", bar, class_="labx-b labx-z", style=line),
    )


def _scale(array, vmax):
    """Magnitude of the strongest colour or longest bar: `vmax`, or the largest one there is."""
    if vmax is not None:
        good = isinstance(vmax, numbers.Real) and numpy.isfinite(vmax) and vmax > 0
        require(good, "vmax", given=repr(vmax), allowed="a positive number")
    sizes = numpy.abs(array[numpy.isfinite(array)].astype(float))
    if vmax is not None:
        # A bar cut short would lie; the slack is for weights that rounding has lifted over 1.
        fits = sizes.max(initial=0.0) <= vmax * (1 + 1e-6)
        largest = sizes.max(initial=0.0)
        require(fits, "values", f"a magnitude of {largest:g}", f"up to vmax {vmax:g}")
        return float(vmax)
    return float(sizes.max()) if sizes.size and sizes.max() > 0 else 1.0


def _series(value):
    """Numbers of one row as a list, also when it is a single number."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else [value]


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _cell_text(value, digits):
    value = value.item() if hasattr(value, "item") else value
    return escape(number_text(value, digits) if _is_number(value) else label_text(value))


def _class(text, marked):
    kinds = ["labx-l" * text, "labx-m" * marked]
    return " ".join(kind for kind in kinds if kind)
