"""The built site as files: links that lead somewhere, nothing from elsewhere, light pages.

Every function takes the site's folder and one page's path in it and returns the page's faults.
"""

import functools
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup

MOST_ADDED = 1_500_000
LOADED = ("script[src]", "img[src]", "iframe[src]", "source[src]", "video[src]", "audio[src]")
FETCHED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "manifest"}
IN_SCRIPT = re.compile(r"https?://[^\s\"'`]+\.(?:m?js|css|woff2?)\b")


def pages(root):
    """Pages of the book in order, from its table of contents: paths without an ending."""
    toc = yaml.safe_load((Path(root) / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *_files(toc)]


def _files(node):
    for child in node if isinstance(node, list) else node.values():
        if isinstance(child, (dict, list)):
            yield from _files(child)
    if isinstance(node, dict) and "file" in node:
        yield re.sub(r"\.(md|ipynb|rst)$", "", node["file"])


@functools.lru_cache(maxsize=200)
def soup(path):
    """A page's tree, read once."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def elsewhere(site, page):
    """Faults of scripts, styles, pictures and fonts that the page would fetch from another host."""
    tree, faults = soup(page), []
    targets = [(n.name, n["src"]) for n in tree.select(",".join(LOADED))]
    links = [n for n in tree.select("link[href]") if FETCHED_LINKS & set(n.get("rel", ()))]
    targets += [("link", n["href"]) for n in links]
    for name, target in targets:
        if urlsplit(target).netloc:
            faults.append(f"{page.name}: <{name}> fetches {target}")
        elif not target.startswith("data:") and not _file(site, page, target).is_file():
            faults.append(f"{page.name}: <{name}> names a file that is not there: {target}")
    for script in tree.select("script:not([src]), style"):
        text = script.string or ""
        kind = script.get("type", "")
        found = IN_SCRIPT.search(text) if "json" not in kind else None
        if found:
            faults.append(f"{page.name}: a script or style on the page fetches {found.group()}")
    return faults


def styles(site):
    """Faults of style sheets of the site that fetch from another host."""
    faults = []
    for path in sorted(Path(site).rglob("*.css")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"(?:url\(|@import)\s*[\"']?(https?:)?//[^)\s]+", text)
        if found:
            faults.append(f"{path.name}: fetches {found.group()[:80]}")
    return faults


def weight(site, page):
    """Faults of a page that adds too much to the theme: its HTML and its pictures."""
    files = {page}
    for node in soup(page).select("img[src], source[src], video[src]"):
        target = node["src"]
        if not urlsplit(target).netloc and not target.startswith("data:"):
            files.add(_file(site, page, target))
    size = sum(path.stat().st_size for path in files if path.is_file())
    if size <= MOST_ADDED:
        return []
    return [f"{page.name}: adds {size / 1e6:.2f} MB; at most {MOST_ADDED / 1e6} MB"]


def _file(site, page, target):
    """The file that a link of a page names."""
    path = unquote(urlsplit(target).path)
    if not path:
        return page
    return (Path(site) / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()


@functools.lru_cache(maxsize=200)
def anchors(path):
    """All places of a page that a link can name."""
    tree = soup(path)
    return {n["id"] for n in tree.select("[id]")} | {n["name"] for n in tree.select("a[name]")}


def links(site, page):
    """Faults of links within the site that lead to no file or no place in it."""
    faults = []
    for node in soup(page).select("a[href]"):
        target = node["href"]
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or target in ("#", ""):
            continue
        path = _file(site, page, target)
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            faults.append(f"{page.name}: link to {target}, which is not there")
        elif (
            parts.fragment
            and path.suffix == ".html"
            and unquote(parts.fragment) not in anchors(path)
        ):
            faults.append(f"{page.name}: link to {target}, which has no such place")
    return faults


def claim_links(site, page, names):
    """Faults of the Claims page: each claim has a row of its own that links to its very cell.

    `names` maps a claim's id to the notebook that decides it.
    """
    faults = []
    for name, notebook in names.items():
        row = soup(page).find(id=name)
        targets = [n["href"] for n in row.select("a[href]")] if row else []
        cells = [t for t in targets if f"{notebook}.html#" in t]
        if not cells:
            faults.append(f"{page.name}: {name} does not link to its cell in {notebook}")
            continue
        spot = soup(_file(site, page, cells[0])).find(id=unquote(urlsplit(cells[0]).fragment))
        around = spot and (spot.find_parent(class_="cell") or spot)
        if spot is None or (name not in around.get_text() and name not in str(spot)):
            faults.append(f"{page.name}: {name} links to {cells[0]}, which does not show it")
    return faults


def picture_names(site, page):
    """Faults of pictures whose alt text is empty or a file's name."""
    faults = []
    for node in soup(page).select("article img, main img"):
        alt = (node.get("alt") or "").strip()
        if not alt or re.search(r"[0-9a-f]{16,}|\.(png|svg|jpe?g)$", alt):
            faults.append(
                f"{page.name}: picture {node.get('src', '')[:60]} has the alt text {alt!r}"
            )
    return faults


def explorers(page):
    """Explorers of a page or an output: id to (dials, start, frames)."""
    tree = page if isinstance(page, BeautifulSoup) else BeautifulSoup(page, "html.parser")
    found = {}
    for root in tree.select(".labx-player"):
        data = json.loads(root.select_one('script[type="application/json"]').string)
        found[root["id"]] = data
    return found


def same_explorers(page, book):
    """Faults of explorers of the built page that are not, frame by frame, those of the notebook."""
    on_page, faults = explorers(soup(page)), []
    written = {}
    for _, cell in book.code:
        for out in cell.outputs:
            written.update(explorers(out.get("data", {}).get("text/html", "")))
    for name in written.keys() - on_page.keys():
        faults.append(f"{page.name}: explorer {name} is in the notebook, not on the page")
    for name, data in on_page.items():
        if name not in written:
            faults.append(f"{page.name}: explorer {name} is on the page, not in the notebook")
        elif data != written[name]:
            faults.append(f"{page.name}: explorer {name} has other frames than the notebook")
    return faults
