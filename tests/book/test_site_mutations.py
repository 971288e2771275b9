"""Tests of the tests of the site: a small page passes, and each broken copy of it is caught."""

import checks.site as site_checks
import pytest
from checks import browser as checks
from checks.notebook import Notebook

PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>A small page</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="style.css">
<script>document.documentElement.dataset.theme = localStorage.getItem("theme");</script></head>
<body><main><h1 id="top">A small page</h1>
<p><a href="#top">up</a> <a href="other.html#A02">A02</a></p>
<span class="math"><mjx-container>x</mjx-container></span>
<img src="dot.svg" alt="A grey dot"><table><tr id="A02-01"><td>
<a href="sample.html#cell-a02">weights</a></td></tr></table>
<div class="cell" id="cell-a02">A02-01</div>
%s
</main></body></html>
"""
DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="4"/></svg>'
STYLE = "body{background:#fff;color:#111}[data-theme=dark] body{background:#111;color:#eee}"


@pytest.fixture(scope="module")
def chromium():
    with checks.launched() as browser:
        yield browser


@pytest.fixture
def small(tmp_path, sample_path):
    """Folder of a small site whose page holds the explorers of the sample chapter."""
    book = Notebook(sample_path)
    outs = [out.get("data", {}).get("text/html", "") for _, c in book.code for out in c.outputs]
    (tmp_path / "sample.html").write_text(PAGE % "\n".join(outs), encoding="utf-8")
    (tmp_path / "other.html").write_text('<p id="A02">A02</p>', encoding="utf-8")
    (tmp_path / "dot.svg").write_text(DOT)
    (tmp_path / "style.css").write_text(STYLE)
    return tmp_path


def explorers(path):
    """Explorers of the sample chapter, by id."""
    outs = [out for _, cell in Notebook(path).code for out in cell.outputs]
    parts = [site_checks.explorers(out.get("data", {}).get("text/html", "")) for out in outs]
    return {name: data for part in parts for name, data in part.items()}


def file_faults(folder):
    """What the checks say about the files of the small site, by the check's name."""
    page, ask = folder / "sample.html", site_checks
    ask.soup.cache_clear()
    ask.anchors.cache_clear()
    looks = (ask.elsewhere, ask.links, ask.weight, ask.picture_names)
    found = {check.__name__: check(folder, page) for check in looks}
    found["claim_links"] = ask.claim_links(folder, page, {"A02-01": "sample"})
    found["styles"] = ask.styles(folder)
    return found


def browser_faults(folder, chromium, expected, width=1280, mode="light"):
    """What the checks say about the small page in a browser."""
    with (
        checks.served(folder) as base,
        checks.Visit(chromium, base, "sample.html", width, mode) as visit,
    ):
        checks.maths(visit)
        checks.width(visit)
        checks.colours(visit, mode)
        checks.dials(visit, expected)
        for name in list(expected)[:1]:
            checks.plays(visit, name)
        return visit.faults


@pytest.mark.browser
@pytest.mark.parametrize("mode", checks.MODES)
@pytest.mark.parametrize("width", checks.WIDTHS)
def test_the_small_page_is_right(small, chromium, sample_path, width, mode):
    assert not any(file_faults(small).values())
    assert browser_faults(small, chromium, explorers(sample_path), width, mode) == []


def _first_frame(text):
    """The first explorer's second frame where its first should be."""
    lines = text.split("\n")
    rows = [i for i, line in enumerate(lines) if line.startswith('"<')]
    lines[rows[0]] = lines[rows[1]]
    return "\n".join(lines)


def at_end(html):
    return lambda text: text.replace("</main>", f"{html}</main>")


def without(old, new=""):
    def change(text):
        assert old in text, f"the small page has no {old!r}"
        return text.replace(old, new)

    return change


# What breaks the page, the check that must see it, and a word of what it must say.
MUTATIONS = {
    "script of a CDN": (
        at_end('<script src="https://cdn.example/a.js"></script>'),
        "elsewhere",
        "cdn",
    ),
    "script of a CDN, asked for": (
        at_end('<script src="//cdn.example/a.js"></script>'),
        "browser",
        "asks the network",
    ),
    "import of a CDN": (
        at_end('<script type="module">import "https://cdn.example/a.js"</script>'),
        "elsewhere",
        "cdn",
    ),
    "fetch at run time": (
        at_end('<script>fetch("https://x.example/data").catch(e => 0)</script>'),
        "browser",
        "asks the network",
    ),
    "missing script": (at_end('<script src="gone.js"></script>'), "elsewhere", "gone.js"),
    "missing picture": (at_end('<img src="gone.png" alt="a plot">'), "browser", "404"),
    "console error": (at_end('<script>console.error("oh")</script>'), "browser", "oh"),
    "exception": (at_end("<script>nothing.here()</script>"), "browser", "nothing"),
    "dead link": (at_end('<a href="gone.html">x</a>'), "links", "not there"),
    "dead anchor": (at_end('<a href="other.html#A03">x</a>'), "links", "no such place"),
    "no alt text": (without('alt="A grey dot"'), "picture_names", "dot.svg"),
    "hashed alt text": (
        without("A grey dot", "_images/0123456789abcdef0123.png"),
        "picture_names",
        "0123",
    ),
    "heavy page": (at_end("<p>" + "x" * 1_500_000 + "</p>"), "weight", "MB"),
    "claim without a link": (
        without("sample.html#cell-a02", "other.html"),
        "claim_links",
        "A02-01",
    ),
    "claim linked to another cell": (without("#cell-a02", "#top"), "claim_links", "A02-01"),
    "wide page": (at_end('<div style="width:1500px">x</div>'), "browser", "sideways"),
    "raw formula": (without("<mjx-container>x</mjx-container>", "x^2"), "browser", "not rendered"),
    "refused formula": (
        at_end('<mjx-merror title="Undefined">x</mjx-merror>'),
        "browser",
        "refused",
    ),
    "swapped frame": (_first_frame, "browser", "not the frame"),
    "dead dial": (without("input.oninput", "input.onnothing"), "browser", "not the frame"),
    "mouse-only dial": (
        without('type: "range"', 'type: "range", disabled: 1'),
        "browser",
        "not the frame",
    ),
    "no explorer": (without('class="labx labx-player"', 'class="labx"'), "browser", "sliders"),
    "dead play button": (without("setInterval(step, 700)", "0"), "browser", "play button"),
    "silent dial": (
        without('setAttribute("aria-valuetext", text)', 'setAttribute("title", text)'),
        "browser",
        "says",
    ),
    "grey on grey": (
        at_end("<style>.labx td{color:#999!important; background:#aaa!important}</style>"),
        "browser",
        "contrast",
    ),
}


@pytest.mark.browser
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_page_is_caught(name, small, chromium, sample_path):
    change, check, word = MUTATIONS[name]
    page = small / "sample.html"
    page.write_text(change(page.read_text(encoding="utf-8")), encoding="utf-8")
    if check == "browser":
        found = browser_faults(small, chromium, explorers(sample_path))
    else:
        found = file_faults(small)[check]
    assert any(word in fault for fault in found), f"{name}: seen: {found}"


def test_style_sheet_of_another_host_is_caught(small):
    (small / "style.css").write_text("@import url(https://fonts.example/css);")
    assert "fonts.example" in site_checks.styles(small)[0]


def test_changed_explorers_are_caught_without_a_browser(small, sample_path):
    page, book = small / "sample.html", Notebook(sample_path)
    site_checks.soup.cache_clear()
    assert site_checks.same_explorers(page, book) == []
    text = page.read_text(encoding="utf-8")
    page.write_text(_first_frame(text), encoding="utf-8")
    site_checks.soup.cache_clear()
    assert "other frames" in site_checks.same_explorers(page, book)[0]
    page.write_text(text.replace("labx-player", "labx-none"), encoding="utf-8")
    site_checks.soup.cache_clear()
    assert len(site_checks.same_explorers(page, book)) == 2
