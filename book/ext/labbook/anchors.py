"""An anchor for each claim: on the cell that computes it, or on the sentence that cites it."""

from docutils import nodes

from labbook.sources import CITED, CLAIM, ERRATUM


def setup(app):
    app.connect("doctree-read", mark, priority=400)


def mark(app, doctree):
    """Give cells and sentences their anchors and labels."""
    page = app.env.docname
    labels = app.env.get_domain("std")
    seen = set()

    def name(node, anchor):
        if anchor in seen or (anchor, page) in seen:
            return
        seen.add(anchor)
        node["ids"].append(anchor)
        labels.note_hyperlink_target(anchor.lower(), page, anchor)

    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            for claim_id in CLAIM.findall(source_of(cell)):
                name(cell, f"claim-{claim_id}")
    for comment in list(doctree.findall(nodes.raw)):
        for pattern, prefix in ((CITED, "claim-"), (ERRATUM, "erratum-")):
            for claim_id in pattern.findall(comment.astext()):
                block = not isinstance(comment.parent, nodes.TextElement)
                spot = nodes.container() if block else nodes.inline()
                name(spot, prefix + claim_id)
                spot["classes"].append("claim-anchor")
                comment.parent.insert(comment.parent.index(comment), spot)


def source_of(cell):
    """The code of a cell; its outputs are left out."""
    for part in cell.findall(nodes.container):
        if part.get("nb_element") == "cell_code_source":
            return part.astext()
    return ""
