"""An anchor at each claim: `#claim-A01-03` opens the very cell, or the cited sentence."""

import re

from docutils import nodes

from labbook.source import CLAIM, MARK


def anchor(claim_id):
    """The HTML id of a claim, the same on its page and in links to it."""
    return f"claim-{claim_id}"


def add(app, doctree):
    """Give cells that claim, and comments that mark a citation or an erratum, their ids."""
    for cell in doctree.findall(nodes.container):
        if "cell" not in cell["classes"]:
            continue
        for block in cell.findall(nodes.literal_block):
            cell["ids"] += [anchor(found) for found in CLAIM.findall(block.astext())]
            break  # the first literal block is the input; later ones are outputs
    for node in list(doctree.findall(nodes.raw)) + list(doctree.findall(nodes.comment)):
        marks = MARK.findall(node.astext()) or MARK.findall(f"<!-- {node.astext()} -->")
        if not marks:
            continue
        spans = "".join(
            f'<span id="{"erratum" if kind else "claim"}-{found}"></span>' for kind, found in marks
        )
        text = re.sub(MARK, "", node.astext()) if isinstance(node, nodes.raw) else ""
        node.replace_self(nodes.raw("", spans + text, format="html"))
