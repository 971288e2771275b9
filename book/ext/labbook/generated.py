"""What the generated pages share: a directive rebuilt with its data, and an HTML table."""

from html import escape

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from labbook import source


class Generated(SphinxDirective):
    """A directive without content whose nodes come from `make`; rebuilt when its data changes."""

    watched = ("book/ledger/*.yml", "notebooks/*/*.ipynb")

    def run(self):
        for pattern in self.watched:
            for path in source.ROOT.glob(pattern):
                self.env.note_dependency(str(path))
        self.env.note_reread()
        return self.make()

    def html(self, text):
        return [nodes.raw("", text, format="html")]

    def markdown(self, lines):
        box = nodes.container()
        self.state.nested_parse(StringList(lines, source="generated"), 0, box)
        return box.children

    def link(self, place, target):
        """Relative address of a place on a notebook's page."""
        up = "../" * self.env.docname.count("/")
        return f"{up}{place['page']}.html#{target}"


def html_table(heads, rows, classes="labbook"):
    """HTML table of cells that are HTML already; scrolls in its own box on a narrow screen."""
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = "".join(f"<tr{a}>{''.join(f'<td>{c}</td>' for c in cells)}</tr>" for a, cells in rows)
    return (
        f'<div class="labbook-box" tabindex="0"><table class="{classes}">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
