"""`{errata}`: where a document is wrong, imprecise, one of two conventions, or silent."""

from docutils import nodes

from labbook import sources
from labbook.build import Generated, paragraph, reference, section, text

CLASSES = {
    "error": ("Errors", "The document states something that is not so."),
    "imprecise": ("Imprecise", "The statement is right under a condition that the document omits."),
    "convention": ("Conventions", "Both forms are right; the book has to choose one."),
    "supplied": (
        "What the document leaves to the reader",
        "Nothing is wrong here: the document is silent or empty, and the book fills it in.",
    ),
}
VERIFIED = {
    "computed": "proved by computation",
    "source read": "checked in the source",
    "memory": "not verified",
}


def setup(app):
    app.add_directive("errata", Errata)


class Errata(Generated):
    """One section for each class of entry, errors first."""

    def content_nodes(self):
        places = sources.places(self.env)
        entries = [e for e in sources.ledger().values() if e.get("erratum")]
        decided = [e for e in entries if e["id"] in places]
        parts = [self.summary(decided, sources.waiting(self.env, entries))]
        for kind, (title, meaning) in CLASSES.items():
            mine = [e for e in decided if e["erratum"]["class"] == kind]
            body = [self.entry(e) for e in mine] or [paragraph("None so far.")]
            parts.append(section(title, paragraph(meaning), *body, ids=[f"class-{kind}"]))
        return parts

    def summary(self, decided, to_come):
        counts = ", ".join(
            f"{sum(e['section'][0] == letter for e in to_come)} in document {letter}"
            for letter in dict.fromkeys(e["section"][0] for e in to_come)
        )
        tail = f" {len(to_come)} more wait for their chapters: {counts}." if to_come else ""
        return paragraph(f"{len(decided)} entries are decided on pages of this book.{tail}")

    def entry(self, entry):
        erratum = entry["erratum"]
        here = self.env.docname
        verified = VERIFIED.get(erratum.get("verified"), "not verified")
        rows = [
            ("The document", erratum["document"]),
            ("What holds", erratum["correct"]),
            ("Source", erratum.get("source") or "see the deciding cell"),
            ("How verified", verified),
            ("Decided at", reference(f"claim-{entry['id']}", self.where(entry), here)),
        ]
        fields = nodes.definition_list(classes=["erratum"])
        for name, value in rows:
            item = nodes.definition_list_item()
            item += text(name, nodes.term)
            item += nodes.definition("", paragraph(value))
            fields += item
        english = sources.outline()[entry["section"]]["heading_en"]
        title = f"{entry['id']} · {english}"
        return section(title, fields, ids=[entry["id"]])

    def where(self, entry):
        how = "sentence" if entry["decide"] == "cited" else "cell"
        return f"the {how} of {entry['id']}"
