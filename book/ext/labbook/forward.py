"""References to sections of chapters that are still to come: text now, a link once they exist."""

from docutils import nodes

from labbook.sources import outline


def setup(app):
    app.connect("missing-reference", to_come)


def to_come(app, env, node, content):
    """Plain words in place of a link, when the target is a section of the outline."""
    if node.get("refdomain") not in ("std", "", None):
        return None
    wanted = {section.lower(): section for section in outline()}
    section = wanted.get(str(node.get("reftarget", "")).lower())
    if section is None:
        return None
    explicit = node.get("refexplicit")
    words = content.astext() if explicit else outline()[section]["heading_en"]
    title = f"section {section}: its chapter is still to come"
    words = words if explicit else f"{section} · {words}"
    return nodes.inline("", words, classes=["to-come"], title=title)
