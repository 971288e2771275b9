"""What derives from `repository.url`: the site's address, and the cards of links to its pages."""

import html
import re

DESCRIPTION = (
    "An executable book on Transformers and mixture-of-experts: every number on its pages is "
    "computed by a cell and checked."
)


def setup(app):
    app.connect("config-inited", site_address)
    app.connect("html-page-context", card, priority=700)


def site_address(app, config):
    """Set `html_baseurl` to the pages address of the repository, unless it is set."""
    options = config.html_theme_options or {}
    url = str(options.get("repository_url") or "").rstrip("/").removesuffix(".git")
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", url)
    if found and not config.html_baseurl:
        config.html_baseurl = f"https://{found[1].lower()}.github.io/{found[2]}/"


def card(app, page, template, context, doctree):
    """Tags for previews of a link: title, description, picture."""
    base = app.config.html_baseurl
    if not base:
        return
    title = re.sub(r"<[^>]+>", "", context.get("title") or "")
    values = {
        "og:title": title,
        "og:site_name": app.config.html_title or app.config.project,
        "og:type": "article",
        "og:description": DESCRIPTION,
        "og:url": base + app.builder.get_target_uri(page),
        "og:image": base + "_static/card.png",
        "og:image:alt": "An attention map of the words of a sentence, beside the book's title",
    }
    tags = (f'<meta property="{k}" content="{html.escape(str(v))}" />' for k, v in values.items())
    plain = {"twitter:card": "summary_large_image", "description": DESCRIPTION}
    more = (f'<meta name="{k}" content="{html.escape(v)}" />' for k, v in plain.items())
    context["metatags"] = context.get("metatags", "") + "\n".join([*tags, *more]) + "\n"
