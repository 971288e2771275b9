"""The directives of the generated pages; each writes HTML or Markdown from data, at build time."""

from html import escape

from docutils import nodes

from labbook import source
from labbook.anchors import anchor
from labbook.generated import Generated, html_table
from labbook.measured import Experiments, MeasuredSpeed


class Claims(Generated):
    """Every claimed or cited ledger entry, with the line its cell printed and a link to it."""

    def make(self):
        places, rows, waiting = source.found(), [], 0
        for entry in source.ledger():
            place = places.get(entry["id"])
            if not place:
                waiting += 1
                continue
            name, section = entry["id"], entry["section"]
            there = f'<a href="{self.link(place, anchor(name))}">{name}</a>'
            shown = f"<code>{escape(place['printed'])}</code>" if place["printed"] else "cited"
            attributes = f' id="row-{name}" data-document="{name[0]}" data-section="{section}"'
            rows.append((attributes, [there, escape(entry["claim"]), shown]))
        sections = sorted({a.split('data-section="')[1].rstrip('"') for a, _ in rows}, key=natural)
        used = sorted({s[0] for s in sections})
        options = "".join(
            f'<option value="{d}">{d} · {escape(source.DOCUMENTS[d])}</option>' for d in used
        )
        narrower = "".join(f"<option>{s}</option>" for s in sections)
        controls = (
            '<form class="labbook-filter"><label>Document <select name="document">'
            f'<option value="">all</option>{options}</select></label> '
            f'<label>Section <select name="section"><option value="">all</option>{narrower}'
            '</select></label> <output aria-live="polite">'
            f"{len(rows)} claims</output></form>"
        )
        later = f"<p>{waiting} more entries of the ledger belong to chapters to come.</p>"
        table = html_table(("claim", "statement", "value"), rows, "labbook labbook-claims")
        return self.html(controls + table + later)


class Errata(Generated):
    """What the documents state otherwise, sorted by how serious it is, with the deciding cell."""

    GROUPS = (
        ("error", "Errors", "The document's statement is wrong."),
        ("imprecise", "Imprecise statements", "True only under a condition that is left out."),
        ("convention", "Conventions", "Both ways are right; the book keeps to one."),
        ("supplied", "What the document leaves to the reader", "Nothing is wrong here."),
    )
    VERIFIED = {"computed": "computed", "source read": "source read", "memory": "not verified"}

    def make(self):
        places, made = source.found(), []
        for kind, title, lead in self.GROUPS:
            rows = []
            for entry in source.ledger():
                erratum = entry.get("erratum") or {}
                place = places.get(("erratum", entry["id"])) or places.get(entry["id"])
                if place and erratum and erratum.get("class", "error") == kind:
                    rows.append(("", self.cells(entry, erratum, place)))
            if rows:
                heads = ("entry", "the document", "right is", "source", "verified")
                part = nodes.section(ids=[f"errata-{kind}"], names=[f"errata-{kind}"])
                part += nodes.title(text=title)
                part += nodes.paragraph(text=lead)
                part += nodes.raw("", html_table(heads, rows), format="html")
                made.append(part)
        return made or [nodes.paragraph(text="No erratum of the chapters that exist so far.")]

    def cells(self, entry, erratum, place):
        there = f'<a href="{self.link(place, anchor(entry["id"]))}">{entry["id"]}</a>'
        texts = [escape(str(erratum.get(k) or "")) for k in ("document", "correct", "source")]
        verified = self.VERIFIED.get(erratum.get("verified"), "not verified")
        return [there, *texts, verified]


class Notation(Generated):
    """The letter table of `labcore.shapes`."""

    watched = ("labcore/shapes.py",)

    def make(self):
        from labcore.shapes import LETTERS

        lines = ["| letter | in formulas | counts | 中文 |", "|---|---|---|---|"]
        for row in LETTERS.values():
            latex = row.latex.replace("|", r"\vert ")
            lines.append(f"| `{row.letter}` | ${latex}$ | {row.meaning} | {row.chinese} |")
        return self.markdown(lines)


class Status(Generated):
    """Seconds, memory and claims of each notebook, from the last verified execution."""

    watched = ("build/status.json", "book/status.json", "notebooks/*/*.ipynb")

    def make(self):
        known = dict(source.results("book/status.json") + source.results("build/status.json"))
        status = known.get("status")
        if not status:
            return [nodes.paragraph(text="Not measured: no execution is recorded yet.")]
        rows = []
        for name, n in sorted(status["notebooks"].items()):
            seconds, memory = f"{n['seconds']:.0f}", f"{n['peak_mib']:.0f}"
            cells = [escape(name), seconds, memory, str(n["cells"]), str(n["claims"])]
            rows.append(("", cells))
        heads = ("notebook", "seconds, one thread", "peak memory, MiB", "code cells", "claims")
        versions = ", ".join(f"{k} {v}" for k, v in status.get("versions", {}).items() if v)
        return self.html(html_table(heads, rows) + f"<p>Executed with {escape(versions)}.</p>")


def natural(section):
    """Sort key that puts A2 before A10."""
    return section[0], [int(n) for n in section[1:].split(".")]


DIRECTIVES = {
    "claims": Claims,
    "errata": Errata,
    "notation": Notation,
    "status": Status,
    "measured-speed": MeasuredSpeed,
    "experiments": Experiments,
}
