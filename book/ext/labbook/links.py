"""On finished pages: a link from each claim's printed line back to the Claims page."""

import re

from labbook.sources import CITED, ID

LINE = re.compile(rf"✓ ({ID})(?=[\s<])")
LISTED = re.compile(rf"(?:<p>|, )({ID})(?=, |</p></td>)")
CLAIMS_PAGE = "book/claims"


def setup(app):
    app.connect("html-page-context", link_back, priority=600)
    app.connect("html-page-context", tidy_scripts, priority=900)


def link_back(app, page, template, context, doctree):
    """Turn the id in `✓ A01-05` into a link, and show a mark where a comment cites an entry."""
    body = context.get("body")
    if not body or CLAIMS_PAGE not in app.env.found_docs or page == CLAIMS_PAGE:
        return
    target = app.builder.get_relative_uri(page, CLAIMS_PAGE)

    def line(found):
        return f"✓ {anchor(target, found[1], found[1])}"

    def mark(found):
        return anchor(target, found[1], "¶")

    def listed(found):
        return found[0].replace(found[1], anchor(target, found[1], found[1]))

    if page.startswith("notebooks/"):
        context["body"] = LISTED.sub(listed, CITED.sub(mark, LINE.sub(line, body)))


def anchor(target, claim_id, words):
    title = f"{claim_id} on the Claims page"
    return f'<a class="claim-link" href="{target}#{claim_id}" title="{title}">{words}</a>'


def tidy_scripts(app, page, template, context, doctree):
    """Leave out scripts for live kernels: this book runs without, and they fetch from elsewhere."""
    kept = [s for s in context.get("script_files", ()) if not unwanted(s)]
    context["script_files"] = kept


def unwanted(script):
    name = str(getattr(script, "filename", script) or "")
    body = str(getattr(script, "attributes", {}).get("body") or "")
    return "thebe" in name.lower() or "thebe" in body.lower()
