"""Small docutils builders, so that the directives read like the pages they make."""

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    """A directive whose page is read again at each build, because its data may have changed."""

    has_content = False

    def run(self):
        env = self.env
        if not hasattr(env, "labbook_generated"):
            env.labbook_generated = set()
        env.labbook_generated.add(env.docname)
        return self.content_nodes()

    def content_nodes(self):
        raise NotImplementedError


def text(words, kind=nodes.paragraph, **attributes):
    """A node with plain text."""
    return kind("", "", nodes.Text(str(words)), **attributes)


def paragraph(*parts, classes=()):
    """A paragraph of strings and inline nodes."""
    node = nodes.paragraph(classes=list(classes))
    for part in parts:
        node += nodes.Text(part) if isinstance(part, str) else part
    return node


def reference(target, words, page):
    """A link to a label of any page, resolved by Sphinx (and reported when the label is gone)."""
    node = addnodes.pending_xref(
        "",
        text(words, nodes.inline),
        refdomain="std",
        reftype="ref",
        reftarget=target.lower(),
        refexplicit=True,
        refwarn=True,
        refdoc=page,
    )
    return node


def section(title, *children, ids=()):
    """A section with a heading."""
    node = nodes.section(ids=list(ids) or [nodes.make_id(title)])
    node += text(title, nodes.title)
    node.extend(children)
    return node


def table(columns, rows, classes=(), row_attributes=None):
    """A table; a cell is a string, an inline node, or a list of block nodes.

    Each cell carries its column's name as a class, and pages fold the columns into blocks on a
    narrow screen.
    """
    group = nodes.tgroup(cols=len(columns))
    group.extend(nodes.colspec(colwidth=1) for _ in columns)
    head, body = nodes.thead(), nodes.tbody()
    head += _row(columns)
    for index, cells in enumerate(rows):
        attributes = row_attributes[index] if row_attributes else {}
        body += _row(cells, [nodes.make_id(c) for c in columns], **attributes)
    group += [head, body]
    return nodes.table("", group, classes=["lab-table", *classes], align="left")


def _row(cells, names=None, **attributes):
    row = nodes.row(**attributes)
    for index, cell in enumerate(cells):
        entry = nodes.entry(classes=[f"col-{names[index]}"] if names else [])
        if isinstance(cell, list):
            entry.extend(cell)
        else:
            entry += paragraph(cell) if not isinstance(cell, nodes.Body) else cell
        row += entry
    return row


def number(value):
    """A measured number with at most four digits that mean something."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
