"""`{claims}`: every ledger entry that a notebook decides, with its values and its cell."""

import re

from docutils import nodes

from labbook import sources
from labbook.build import Generated, paragraph, reference, section, text
from labbook.rules import rule_text


def setup(app):
    app.add_directive("claims", Claims)


class Claims(Generated):
    """Claims by chapter and section, below a filter."""

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
            node = section(sources.heading(name), *rows, ids=[f"claims-of-{name}"])
            node["classes"] += ["claims-of", f"document-{name[0]}"]
            parts.append(node)
        outer = section(chapter.title, *parts, ids=[nodes.make_id(f"in-{chapter.page}")])
        outer["classes"].append("claims-in")
        return outer

    def row(self, entry, place):
        link = reference(f"claim-{entry['id']}", entry["id"], self.env.docname)
        row = nodes.container(ids=[entry["id"]], classes=["claim-row"])
        row += paragraph(link, " ", entry["claim"], classes=["claim-says"])
        if place.how == "cited":
            source = entry.get("source") or entry.get("primary_source") or "see the sentence"
            row += paragraph("cited: ", source, classes=["claim-cited"])
            return row
        printed = values_of(place.printed, entry["expect"])
        values = nodes.bullet_list(classes=["claim-values"])
        for name, rule in entry["expect"].items():
            value = text(printed.get(name, "–"), nodes.strong)
            rule = text(f"must be {rule_text(rule)}", nodes.inline, classes=["claim-rule"])
            line = paragraph(text(name, nodes.literal), " ", value, " ", rule)
            values += nodes.list_item("", line)
        row += values
        return row


def values_of(printed, names):
    """What a claim's line shows for each name.

    >>> values_of("greedy 0.216  best 0.324", ["greedy", "best"])
    {'greedy': '0.216', 'best': '0.324'}
    """
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    parts = re.split(rf"(?:^|  )({pattern}) ", printed)
    return dict(zip(parts[1::2], (value.strip() for value in parts[2::2]), strict=True))


FILTER = """<form class="claim-filter" id="claim-filter" role="search" hidden>
<label>Document <select name="document"><option value="">all</option></select></label>
<label>Section <select name="section"><option value="">all</option></select></label>
<label>Words <input name="words" type="search" autocomplete="off"></label>
<output name="count" aria-live="polite"></output>
</form>"""
