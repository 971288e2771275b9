"""What the book adds to Sphinx: generated pages, an anchor at every claim, search in Chinese."""

from labbook import anchors, search
from labbook.pages import DIRECTIVES


def setup(app):
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    app.add_search_language(search.SearchWithChinese)
    app.connect("doctree-read", anchors.add)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
