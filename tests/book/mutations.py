"""Ways to break a copy of the sample chapter, each with the check that must see it."""

import base64

import nbformat
import run_notebooks
from checks.notebook import Notebook

PNG = base64.b64encode(b"\x89PNG").decode()


class Copy:
    """A copy of the sample to break; `cell("words")` is its first cell with these words."""

    def __init__(self, path):
        self.nb = nbformat.read(path, as_version=4)

    def cell(self, words):
        return next(cell for cell in self.nb.cells if words in cell.source)

    def replace(self, old, new):
        found = [cell for cell in self.nb.cells if old in cell.source]
        assert found, f"the sample has no {old!r}"
        found[0].source = found[0].source.replace(old, new, 1)

    def add(self, source, text="", kind="code"):
        if kind == "markdown":
            self.nb.cells.append(nbformat.v4.new_markdown_cell(source))
            return
        outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
        self.nb.cells.append(nbformat.v4.new_code_cell(source, outputs=outputs))

    def written(self, path, canonical=True):
        text = run_notebooks.canonical(self.nb) if canonical else nbformat.writes(self.nb)
        path.write_text(text, encoding="utf-8")
        return Notebook(path)


def _no_count(c):
    c.cell("len(weights)").execution_count = None


def _stripped(c):
    c.cell("len(weights)").outputs = []


def _stderr(c):
    out = nbformat.v4.new_output("stream", name="stderr", text="UserWarning")
    c.cell("len(weights)").outputs.append(out)


def _error(c):
    out = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    c.cell("len(weights)").outputs.append(out)


def _no_alt(c):
    c.cell("axes.bar").metadata.pop("mystnb")


def _widget_state(c):
    c.nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}


def _swapped_sections(c):
    first, second = (i for i, x in enumerate(c.nb.cells) if ")=\n##" in x.source)
    cells = c.nb.cells
    cells[first], cells[second] = cells[second], cells[first]


def _swapped_frames(c):
    data = c.cell("explore(frame").outputs[0]["data"]
    lines = data["text/html"].split("\n")
    rows = [i for i, line in enumerate(lines) if line.startswith('"<')]
    lines[rows[0]] = lines[rows[1]]
    data["text/html"] = "\n".join(lines)


def _png_frame(c):
    data = c.cell("explore(frame").outputs[0]["data"]
    store = '<script type="application/json">'
    head, _, rest = data["text/html"].partition(store)
    picture = f'<img alt=\\"a plot\\" src=\\"data:image/png;base64,{PNG}\\">'
    data["text/html"] = head + store + rest.replace("<\\/table>", f"<\\/table>{picture}", 1)


def _two_claims(c):
    c.add('claim("A02-01", weights=weights)', "✓ A02-01")


def _moved_claim(c):
    claim = c.cell('claim("A02-01"')
    claim.source, text = "weights = f()", claim.outputs[0].text
    claim.outputs = []
    spot = c.nb.cells.index(c.cell("explore(frame"))
    moved = nbformat.v4.new_code_cell(
        'claim("A02-01", weights=f())',
        outputs=[nbformat.v4.new_output("stream", name="stdout", text=text)],
    )
    c.nb.cells.insert(spot, moved)


def swap(old, new):
    """A mutation that writes `new` where the sample first has `old`."""
    return lambda copy: copy.replace(old, new)


def prose(text):
    """A mutation that adds a Markdown cell."""
    return lambda copy: copy.add(text, kind="markdown")


def code(source, text=""):
    """A mutation that adds a code cell and what it printed."""
    return lambda copy: copy.add(source, text)


# What breaks a copy of the sample, and the check that must see it.
MUTATIONS = {
    "no count": (_no_count, "counts"),
    "swapped counts": (lambda c: c.cell("len(weights)").update(execution_count=2), "counts"),
    "stripped output": (_stripped, "outputs"),
    "warning stored": (_stderr, "outputs"),
    "error stored": (_error, "outputs"),
    "semicolon": (swap("plt.show()", "plt.show();"), "semicolons"),
    "semicolon, then a comment": (swap("plt.show()", "plt.show(); # x"), "semicolons"),
    "no alt text": (_no_alt, "alt_texts"),
    "bare picture": (prose("![](a.png)"), "alt_texts"),
    "ignored output": (
        lambda c: c.cell("len(weights)").metadata.update(tags=["nbval-ignore-output"]),
        "unchecked",
    ),
    "ignored by a comment": (swap("print(", "# NBVAL_SKIP\nprint("), "unchecked"),
    "unstable id": (lambda c: c.cell("len(weights)").update(id="abc"), "canonical"),
    "widget state": (_widget_state, "canonical"),
    "interact": (code("from ipywidgets import interact"), "forbidden"),
    "display id": (code("display(1, display_id='x')", "1"), "forbidden"),
    "Play": (code("import ipywidgets as w\np = w.Play()"), "forbidden"),
    "long cell": (code("\n".join(["x = 1"] * 26)), "sizes"),
    "many cells": (lambda c: [c.add("x = 1") for _ in range(60)], "sizes"),
    "large file": (prose("x" * 1_300_000), "sizes"),
    "five decimals": (code("print(1 / 3)", "0.33333\n"), "decimals"),
    "raw residual": (code("print(e)", "1.19e-07\n"), "decimals"),
    "photograph in a frame": (_png_frame, "pictures_in_frames"),
    "view before the last line": (
        swap("explore(frame", "heat_table([[1]])\nexplore(frame"),
        "dropped_views",
    ),
    "source before the last line": (
        swap("print(len", "show_source(f)\nprint(len"),
        "dropped_views",
    ),
    "view in a loop": (
        swap("print(len", "for x in y:\n    viz.show(x)\nprint(len"),
        "dropped_views",
    ),
    "two views in a tuple": (code("show(a), show(b)", "(a, b)"), "dropped_views"),
    "view of a cell's own": (
        code("def f(x):\n    return show(x)\n\nf(1)\nf(2)", "2"),
        "dropped_views",
    ),
    "explorer not shown": (lambda c: c.cell("explore(frame").outputs.clear(), "explorers"),
    "missing section": (swap("A02 · ", "Part two "), "sections"),
    "section twice": (prose("(A02)=\n## A02 · Again"), "sections"),
    "section of another chapter": (prose("(A09)=\n## A09 · New"), "sections"),
    "swapped sections": (_swapped_sections, "sections"),
    "no label": (swap("(A01)=\n", ""), "sections"),
    "no Chinese heading": (swap("（归一化权重与 Value 汇总）", ""), "sections"),
    "no English heading": (
        swap(
            "Normalised weights and summing the values（归一化权重与 Value 汇总）",
            "归一化权重与 Value 汇总",
        ),
        "sections",
    ),
    "wrong depth": (swap("## A02", "### A02"), "sections"),
    "skipped depth": (prose("#### Deep"), "depths"),
    "two titles": (prose("# Again"), "depths"),
    "changed setup": (swap("setup()", "setup(1)"), "setup_cell"),
    "other address": (swap('"git+', '"git+x'), "setup_cell"),
    "visible setup": (lambda c: c.cell("labcore.runtime").metadata.clear(), "setup_cell"),
    "missing dial": (swap("explore(frame", "str(frame"), "dials"),
    "two exercises": (swap("{exercise}", "{note}"), "exercises"),
    "no solution": (swap("{solution-start} sample-1", "{note} x"), "exercises"),
    "open solution": (swap(":class: dropdown", ":class: note"), "exercises"),
    "footnote": (prose("So it is.[^1]"), "footnotes"),
    "stale id": (code('claim("A02-99", x=y)', "✓ A02-99"), "claims"),
    "unclaimed entry": (swap('claim("A02-01"', 'str("A02-01"'), "claims"),
    "claimed twice": (_two_claims, "claims"),
    "claimed in another section": (_moved_claim, "claims"),
    "claim never run": (lambda c: c.cell('claim("A02-01"').outputs.clear(), "claims"),
    "id not written out": (swap('claim("A02-01"', 'claim("A02-0" + "1"'), "claims"),
    "claim of a citation": (code('claim("A01-06", x=y)', "✓ A01-06"), "claims"),
    "missing citation": (swap("<!-- A01-06 -->", ""), "citations"),
    "citation without source": (swap("{cite}`bahdanau2015`", "somebody's"), None),
    "citation before its sentence": (prose("<!-- A01-06 --> Words {cite}`a`."), "citations"),
    "stale citation": (prose("Words {cite}`a`. <!-- A01-77 -->"), "citations"),
    "missing erratum": (swap("<!-- erratum A01-02 -->", ""), "errata"),
    "erratum in plain prose": (swap(":::{admonition} Two", "Two"), "errata"),
    "stale erratum": (prose("```{note}\n<!-- erratum A01-03 --> No.\n```"), "errata"),
    "literal True": (swap("weights=weights", "weights=True"), "literals"),
    "literal by a name": (
        swap('claim("A02-01", weights=weights)', 'ok = True\nclaim("A02-01", weights=ok)'),
        "literals",
    ),
    "not False": (swap("weights=weights", "weights=not False"), "literals"),
    "typed number": (swap("total=scores.sum()", "total=0.0"), "literals"),
    "typed exception": (swap("total=scores.sum()", "total=ValueError"), "literals"),
}
# These are broken in what the canonical form mends.
UNTOUCHED_BY_FORM = ("unstable id", "widget state", "swapped counts", "no count")
