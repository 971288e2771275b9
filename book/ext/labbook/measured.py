"""Pages of what was measured: speed ratios by machine, and the recorded experiments."""

from html import escape

from docutils import nodes

from labbook import source
from labbook.generated import Generated, html_table


def number(value):
    return f"{value:.2f}" if isinstance(value, float) else escape(str(value))


class MeasuredSpeed(Generated):
    """Ratios of `labcore.bench`, one table a machine; says so where nothing was measured."""

    watched = ("labcore/bench/results/*.json",)

    def make(self):
        made = []
        for name, result in source.results("labcore/bench/results/*.json"):
            rows = [("", [number(v) for v in row_cells(row)]) for row in result.get("rows", [])]
            machine = result.get("machine", {})
            title = machine.get("gpu") or machine.get("processor") or name
            heads = ("work", "compared with", "ratio", "spread", "floor", "goal")
            made.append(nodes.rubric(text=title))
            made += self.html(html_table(heads, rows) + f"<p>{escape(result.get('date', ''))}</p>")
        return made or [nodes.paragraph(text="Not measured.")]


def row_cells(row):
    """The six cells of a row; a dash stands where the row has no such figure."""
    ratio = row.get("ratio", "–")
    spread = row.get("ratio_iqr", row.get("spread", "–"))
    if isinstance(spread, (list, tuple)):
        spread = " – ".join(f"{x:.2f}" for x in spread)
    against = row.get("against", row.get("baseline", "–"))
    work = row.get("work") or row.get("name", "–")
    return [work, against, ratio, spread, row.get("floor") or "–", row.get("goal") or "–"]


class Experiments(Generated):
    """The recorded long comparisons: name, seeds, points, and what computed them."""

    watched = ("labcore/experiments/results/*.json",)

    def make(self):
        rows = []
        for name, result in source.results("labcore/experiments/results/*.json"):
            seeds = ", ".join(map(str, result.get("seeds", [])))
            torch = result.get("versions", {}).get("torch", "")
            cells = [f"<code>{escape(name)}</code>", seeds, str(len(result.get("rows", [])))]
            rows.append(("", [*cells, escape(str(torch))]))
        if not rows:
            return [nodes.paragraph(text="No experiment is recorded yet.")]
        return self.html(html_table(("experiment", "seeds", "runs", "torch"), rows))
