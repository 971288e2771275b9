"""Figures with matplotlib: heat maps, curves, histograms, bars. Every number is finite first.

A helper returns a `Picture`; a cell that ends in one shows it once. Drawn into an `ax` from
`panels`, it returns the picture of that axis.
"""

import io

import matplotlib
import numpy
from matplotlib import figure as base
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg

from labcore.shapes import require
from labcore.viz.style import PALETTE, WIDEST, styled
from labcore.viz.values import as_array, finite, names, number_text

BLUES = matplotlib.colors.LinearSegmentedColormap.from_list("labcore", ["white", "#1b5fa8"])
TWO_SIDED = matplotlib.colors.LinearSegmentedColormap.from_list(
    "labcore_two_sided", ["#b8500f", "white", "#1b5fa8"]
)


class Picture(base.Figure):
    """A figure that no plotting state knows: a cell shows it once, and nothing has to be closed."""

    def _repr_png_(self):
        buffer = io.BytesIO()
        with styled():
            pil = {"optimize": True}
            self.savefig(buffer, format="png", metadata={"Software": None}, pil_kwargs=pil)
        return buffer.getvalue()


def panels(rows=1, columns=1, *, width=None, height=2.6, **shared):
    """A pair: an empty `Picture`, and its axes in an array [rows, columns] (one axis for 1 × 1).

    `width` and `height` are inches, of the whole figure; more than 6.2 in width is an error.
    `shared` goes to `subplots` (`sharey=True`).

    >>> panels(2, 3)[1].shape
    (2, 3)
    """
    width = min(WIDEST, 3.4 * columns) if width is None else width
    require(0 < width <= WIDEST, "width", given=width, allowed=f"at most {WIDEST} inches")
    with styled():
        picture = Picture(figsize=(width, height))
        FigureCanvasAgg(picture)
        axes = picture.subplots(rows, columns, **shared)
    return picture, axes


def heatmap(
    values, rows=None, columns=None, *, title="", xlabel="", ylabel="", label="",
    vmin=None, vmax=None, mask=None, annotate=None, digits=2, ax=None,
):  # fmt: skip
    """Picture of a matrix [rows, columns] with a colour bar named `label`.

    Blue on white; with negative numbers orange to blue around zero. `mask` (True = shown) leaves
    cells grey, whatever number they hold. `annotate` writes the numbers into the cells (when None:
    if there are at most 100). Refuses shown numbers that are not finite.

    >>> heatmap([[0.0, 1.0]], columns=["a", "b"], label="weight").axes[0].get_xlabel()
    ''
    """
    array, hidden = _masked(values, mask)
    rows = names(rows, array.shape[0], "rows")
    columns = names(columns, array.shape[1], "columns")
    low, high = _colour_range(array, hidden, vmin, vmax)
    with styled():
        if ax is None:
            _, ax = panels(width=_map_width(array, rows), height=_map_height(array, columns))
        colours = TWO_SIDED if low < 0 else BLUES
        ax.set_facecolor("#d9d9d9")
        shown = numpy.ma.masked_array(array, hidden)
        image = ax.imshow(shown, cmap=colours, vmin=low, vmax=high, aspect="equal")
        _label_cells(ax, rows, columns)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        ax.spines[:].set_visible(False)
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, aspect=18, label=label)
        bar.outline.set_visible(False)
        if annotate or (annotate is None and array.size <= 100):
            _write_cells(ax, shown, image, digits)
    return ax.get_figure(root=True)


def curves(
    x, series, *, xlabel, ylabel, title="", log_x=False, log_y=False, reference=None,
    markers=False, ylim=None, ax=None,
):  # fmt: skip
    """Picture of curves over `x` [n]: `series` maps a name to numbers [n], or [seeds, n].

    Of several seeds all are drawn thin and their mean bold. `reference` maps names to numbers [n]
    drawn dashed in grey: the prediction that the curves are compared with. Refuses non-finite
    numbers, and numbers that are not positive on a logarithmic axis.

    >>> len(curves([1, 2, 4], {"a": [[3, 2, 1], [3, 2, 2]]}, xlabel="n", ylabel="l").axes[0].lines)
    3
    """
    across = finite(x, "x", ndim=1)
    require(0 < len(series) <= len(PALETTE), "series", len(series), f"1 to {len(PALETTE)} curves")
    require(not log_x or across.min() > 0, "x", across.min(), "positive numbers (log_x)")
    lines = {name: _over(across, y, f"series[{name!r}]", log_y) for name, y in series.items()}
    dashed = {
        name: _over(across, y, f"reference[{name!r}]", log_y)
        for name, y in (reference or {}).items()
    }
    with styled():
        ax = panels(width=5.2, height=2.8)[1] if ax is None else ax
        for colour, (name, runs) in zip(PALETTE, lines.items(), strict=False):
            for run in runs if len(runs) > 1 else []:
                ax.plot(across, run, color=colour, linewidth=0.7, alpha=0.45)
            dot = {"marker": "o", "markersize": 3.5} if markers else {}
            ax.plot(across, runs.mean(0), color=colour, label=str(name), **dot)
        for style, (name, runs) in zip(("--", ":", "-."), dashed.items(), strict=False):
            ax.plot(across, runs.mean(0), style, color="#555555", linewidth=1.1, label=str(name))
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        _log_axes(ax, across, log_x, log_y)
        if ylim is not None:
            ax.set_ylim(*ylim)
        ax.grid(True, linewidth=0.6)
        if len(lines) + len(dashed) > 1:
            ax.legend()
    return ax.get_figure(root=True)


def histograms(
    samples, *, xlabel, ylabel="share of samples", title="", bins=40, limits=None, ax=None
):
    """Picture with one outlined histogram for each of `samples` (name = numbers), on shared bins.

    Heights are shares, so that samples of different size compare. `limits` are the ends of the
    bins; numbers outside are counted in the outermost bin, none is lost. Refuses non-finite ones.

    >>> len(histograms({"a": [1.0, 2.0, 2.5]}, xlabel="score").axes[0].patches)
    1
    """
    given = {name: finite(values, f"samples[{name!r}]") for name, values in samples.items()}
    require(0 < len(given) <= len(PALETTE), "samples", len(given), f"1 to {len(PALETTE)} samples")
    arrays = {name: values.astype(float).ravel() for name, values in given.items()}
    low, high = limits or (
        min(values.min() for values in arrays.values()),
        max(values.max() for values in arrays.values()),
    )
    edges = numpy.linspace(low, high if high > low else low + 1, bins + 1)
    with styled():
        ax = panels(width=5.2, height=2.6)[1] if ax is None else ax
        for colour, (name, values) in zip(PALETTE, arrays.items(), strict=False):
            counts, _ = numpy.histogram(numpy.clip(values, edges[0], edges[-1]), edges)
            soft = matplotlib.colors.to_rgba(colour, 0.22)
            ax.stairs(
                counts / len(values), edges, fill=True, facecolor=soft, edgecolor=colour,
                linewidth=1.2, label=str(name),
            )  # fmt: skip
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        if len(arrays) > 1:
            ax.legend()
    return ax.get_figure(root=True)


def bars(labels, series, *, ylabel, xlabel="", title="", digits=2, ax=None):
    """Picture of upright bars: `series` maps a name to one number for each of `labels`.

    Each bar carries its number. Refuses non-finite numbers and other lengths than `labels` has.

    >>> len(bars(["a", "b"], {"loss": [0.5, 1.5]}, ylabel="loss").axes[0].patches)
    2
    """
    series = series if hasattr(series, "items") else {"": series}
    require(0 < len(series) <= len(PALETTE), "series", len(series), f"1 to {len(PALETTE)} sets")
    labels = [str(label) for label in labels]
    heights = {name: finite(y, f"series[{name!r}]", ndim=1) for name, y in series.items()}
    for name, y in heights.items():
        require(len(y) == len(labels), f"series[{name!r}]", f"{len(y)} numbers", len(labels))
    wide = 0.8 / len(heights)
    with styled():
        ax = panels(width=min(WIDEST, 1.6 + 0.8 * len(labels)), height=2.6)[1] if ax is None else ax
        for index, (name, y) in enumerate(heights.items()):
            place = numpy.arange(len(labels)) + (index - (len(heights) - 1) / 2) * wide
            drawn = ax.bar(place, y, wide * 0.92, color=PALETTE[index], label=str(name))
            texts = [number_text(value, digits) for value in y]
            ax.bar_label(drawn, texts, fontsize=8, padding=2)
        ax.set_xticks(range(len(labels)), labels)
        ax.axhline(0, color="#444444", linewidth=0.8)
        ax.margins(y=0.14)
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        if len(heights) > 1:
            ax.legend()
    return ax.get_figure(root=True)


def _masked(values, mask):
    """The matrix and the boolean matrix of what is hidden; shown numbers are finite."""
    array = as_array(values, "values", ndim=2).astype(float)
    if mask is None:
        return finite(array, "values"), numpy.zeros(array.shape, bool)
    shown = as_array(mask, "mask", ndim=2)
    allowed = f"booleans of shape {list(array.shape)}, True = shown"
    told = f"{shown.dtype} of shape {list(shown.shape)}"
    require(shown.dtype == bool and shown.shape == array.shape, "mask", told, allowed)
    return finite(numpy.where(shown, array, 0.0), "values"), ~shown


def _colour_range(array, hidden, vmin, vmax):
    """Ends of the colour scale: around zero when there are negative numbers, else from zero."""
    shown = array[~hidden] if (~hidden).any() else numpy.zeros(1)
    far = float(numpy.abs(shown).max()) or 1.0
    high = far if vmax is None else float(vmax)
    low = (-high if shown.min() < 0 else 0.0) if vmin is None else float(vmin)
    require(low < high, "vmin", given=f"{low:g}", allowed=f"less than vmax = {high:g}")
    return low, high


def _map_width(array, rows):
    """Inches that a heat map takes: cells, row labels, colour bar; never more than the page."""
    side = max((len(label) for label in rows), default=0) * 0.08 if rows else 0.3
    return min(WIDEST, max(2.8, array.shape[1] * 0.44 + side + 1.1))


def _map_height(array, columns):
    side = max((len(label) for label in columns), default=0) * 0.08 if columns else 0.3
    cell = min(0.44, (WIDEST - 1.6) / array.shape[1])
    return min(7.0, max(1.6, array.shape[0] * cell + side + 0.7))


def _label_cells(ax, rows, columns):
    """Labels at cells; those of columns upright when they are too long to lie side by side."""
    for axis, labels in ((ax.xaxis, columns), (ax.yaxis, rows)):
        if labels is None:
            axis.set_major_locator(ticker.MaxNLocator(integer=True))
        else:
            axis.set_ticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    if columns and max(len(label) for label in columns) > 4:
        ax.tick_params(axis="x", labelrotation=90)


def _write_cells(ax, shown, image, digits):
    """Numbers inside the cells, white where the cell is dark."""
    for (r, c), value in numpy.ndenumerate(shown.filled(numpy.nan)):
        if numpy.isnan(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        colour = "white" if dark else "#222222"
        text = number_text(value, digits)
        ax.text(c, r, text, ha="center", va="center", fontsize=7.5, color=colour)


def _log_axes(ax, across, log_x, log_y):
    """Logarithmic axes with plain numbers: below the curves those of `x`, where they are few."""
    if log_x:
        ax.set_xscale("log")
        few = len(set(across.tolist())) <= 10
        places = ticker.FixedLocator(sorted(set(across.tolist()))) if few else ticker.LogLocator()
        ax.xaxis.set_major_locator(places)
    if log_y:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    for axis, log in ((ax.xaxis, log_x), (ax.yaxis, log_y)):
        if log:
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(ticker.NullLocator())


def _over(across, y, name, log):
    """Numbers [seeds, n] of one curve."""
    runs = numpy.atleast_2d(finite(y, name, ndim=(1, 2)))
    told = f"{runs.shape[1]} numbers"
    require(runs.shape[1] == len(across), name, told, f"{len(across)}, as many as x has")
    require(not log or runs.min() > 0, name, f"{runs.min():g}", "positive numbers (log_y)")
    return runs
