"""`{claims}`: every ledger entry that a notebook decides, with its value and its cell."""

from docutils import nodes

from labbook import sources
from labbook.build import Generated, paragraph, reference, section, table, text
from labbook.rules import rule_text

COLUMNS = ("claim", "statement", "printed", "must be")


def setup(app):
    app.add_directive("claims", Claims)


class Claims(Generated):
    """Tables of claims, one for each section, below a filter."""

    def content_nodes(self):
        places = sources.places(self.env)
        entries = sources.ledger()
        listed = [entries[i] for i in entries if i in places]
        parts = [self.summary(entries, places), nodes.raw("", FILTER, format="html")]
        for chapter in sources.chapters(self.env):
            mine = [e for e in listed if places[e["id"]].page == chapter.page]
            if mine:
                parts.append(self.chapter(chapter, mine, places))
        return parts

    def summary(self, entries, places):
        known = [i for i in places if i in entries]
        by_code = sum(places[i].how == "code" for i in known)
        to_come = len(sources.waiting(self.env, entries.values()))
        words = (
            f"{len(known)} statements are decided on these pages: {by_code} by a cell that "
            f"computes them, {len(known) - by_code} by a citation, because no cell can. "
        )
        missing = len(entries) - to_come - len(known)
        if missing:
            words += f"{missing} entries of these chapters are still without a cell. "
        return paragraph(words + f"{to_come} entries belong to chapters to come.")

    def chapter(self, chapter, entries, places):
        parts = []
        for name in dict.fromkeys(e["section"] for e in entries):
            mine = [e for e in entries if e["section"] == name]
            rows = [self.row(e, places[e["id"]]) for e in mine]
            ids = [{"ids": [e["id"]], "classes": ["claim-row"]} for e in mine]
            block = table(COLUMNS, rows, classes=["claims-table"], row_attributes=ids)
            title = sources.heading(name)
            node = section(title, block, ids=[f"claims-of-{name}"])
            node["classes"] += ["claims-of", f"document-{name[0]}"]
            parts.append(node)
        outer = section(chapter.title, *parts, ids=[nodes.make_id(f"in-{chapter.page}")])
        outer["classes"].append("claims-in")
        return outer

    def row(self, entry, place):
        link = reference(f"claim-{entry['id']}", entry["id"], self.env.docname)
        if place.how == "cited":
            source = entry.get("source") or entry.get("primary_source") or "see the sentence"
            return [link, entry["claim"], "cited", source]
        rules = [
            paragraph(text(name, nodes.literal), ": ", rule_text(rule))
            for name, rule in entry["expect"].items()
        ]
        return [link, entry["claim"], text(place.printed, nodes.inline, classes=["printed"]), rules]


FILTER = """<form class="claim-filter" id="claim-filter" role="search" hidden>
<label>Document <select name="document"><option value="">all</option></select></label>
<label>Section <select name="section"><option value="">all</option></select></label>
<label>Words <input name="words" type="search" autocomplete="off"></label>
<output name="count" aria-live="polite"></output>
</form>"""
