"""`{status}`: what the last complete run of the notebooks took, notebook by notebook."""

import json

from labbook import sources
from labbook.build import Generated, number, paragraph, reference, table

MEASURED = ("build/status.json", "book/status.json")


def setup(app):
    app.add_directive("status", Status)


def measured():
    """The newest figures: of this checkout's last run, otherwise the ones the book carries."""
    for name in MEASURED:
        path = sources.ROOT / name
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    return {}


class Status(Generated):
    """A table of notebooks, and the versions that ran them."""

    def content_nodes(self):
        figures = measured()
        rows = [self.row(c, figures) for c in sources.chapters(self.env)]
        columns = ("notebook", "seconds", "peak memory", "code cells", "claims", "outcome")
        parts = [table(columns, rows, classes=["numbers"])]
        if not figures:
            return [paragraph("Not measured in this checkout: run the notebook gate."), *parts]
        versions = ", ".join(f"{k} {v}" for k, v in figures.get("versions", {}).items())
        day = figures.get("date", "an unknown day")
        parts.insert(0, paragraph(f"Run of {day} with {versions}."))
        return parts

    def row(self, chapter, figures):
        name = chapter.page.removeprefix("notebooks/")
        told = figures.get("notebooks", {}).get(name)
        first = chapter.sections[0] if chapter.sections else None
        title = reference(first, chapter.title, self.env.docname) if first else chapter.title
        claims = sum(place.how == "code" for place in chapter.places.values())
        if not told:
            return [title, "not measured", "not measured", "", number(claims), "not measured"]
        failures = told.get("failures", 0)
        return [
            title,
            f"{told['seconds']:.0f} s",
            f"{told['peak_mib']:,} MiB",
            number(told.get("cells")),
            number(told.get("claims", claims)),
            f"{failures} cells differ" if failures else "every output the same",
        ]
