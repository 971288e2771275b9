"""HTML that is the same text every time, and the object that shows it in a notebook."""

import functools
import html
import pathlib
import re

from labcore.shapes import require

STATIC = pathlib.Path(__file__).parent / "static"


@functools.cache
def asset(name):
    """Text of a file in `static/`, without its comment lines, indentation and empty lines.

    >>> "//" in asset("player.js")
    False
    """
    text = (STATIC / name).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def escape(text):
    """`text` with the characters that mean something in HTML written out.

    >>> escape("a < b & c")
    'a &lt; b &amp; c'
    """
    return html.escape(str(text), quote=True)


def tag(name, content="", **attributes):
    """One HTML element; attributes that are None or empty are left out, `content` is HTML already.

    A trailing underscore is dropped and other underscores become hyphens, as in `class_`.

    >>> tag("th", "it", scope="row", class_=None)
    '<th scope="row">it</th>'
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value not in (None, "")
    )
    return f"<{name}{told}>{content}</{name}>"


def framed(content, **attributes):
    """`content` inside the box that carries the style of the book's tables and drawings."""
    return f"<style>{asset('player.css')}</style>" + tag(
        "div", tag("div", content, class_="labx-view"), class_="labx", **attributes
    )


def plain(content):
    """Words of an HTML text, a line for each table row: what a terminal shows instead.

    >>> plain("<table><tr><th>a</th><td>1</td></tr><tr><th>b</th><td>2</td></tr></table>")
    'a 1\\nb 2'
    """
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", "", content, flags=re.S)
    text = re.sub(r"</(tr|caption|p|figcaption|div)>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


class Shown:
    """HTML for a page and text for a terminal, in one object; made by `show`."""

    def __init__(self, content, text):
        self.content = content
        self.text = text

    def _repr_html_(self):
        return framed(self.content)

    def __repr__(self):
        return self.text


def show(content, text=None):
    """Object that a cell ends in: `content` (HTML) on a page, `text` in a terminal.

    Without `text` the terminal gets the words of the HTML, a line for each table row. Refuses
    anything that is not a non-empty string.

    >>> show("<table><tr><td>1</td></tr></table>")
    1
    """
    given = repr(content)[:40]
    good = isinstance(content, str) and content.strip() != ""
    require(good, "content", given=given, allowed="a non-empty string of HTML", error=TypeError)
    return Shown(content, plain(content) if text is None else str(text))
