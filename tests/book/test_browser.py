"""The built book in Chromium, with the network cut: nothing fails, every dial turns."""

import checks.site as site_checks
import pytest
from checks import browser as checks
from checks.notebook import Notebook
from test_notebooks import told
from test_site import PAGES, html

pytestmark = pytest.mark.browser
TERMS = ("残差", "专家")


@pytest.fixture(scope="module")
def chromium():
    with checks.launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def base(site):
    with checks.served(site) as address:
        yield address


@pytest.mark.parametrize("mode", checks.MODES)
@pytest.mark.parametrize("name", PAGES)
def test_page(chromium, base, site, name, mode):
    """Loads without a failed request, renders its formulas, fits both windows, can be read."""
    html(site, name)
    with checks.Visit(chromium, base, f"{name}.html", checks.WIDTHS[0], mode) as visit:
        checks.maths(visit)
        for width in checks.WIDTHS:
            visit.resize(width)
            checks.width(visit)
            checks.colours(visit, mode)
        told(visit.faults)


@pytest.mark.parametrize("width", checks.WIDTHS)
def test_dials(book, chromium, base, root, width):
    """Every dial turns by keyboard, and each frame is the one that the notebook holds.

    The narrow window turns each dial to its ends only: the frames are the same there.
    """
    name = str(book.path.relative_to(root).with_suffix(""))
    expected = written(book)
    with checks.Visit(chromium, base, f"{name}.html", width) as visit:
        checks.dials(visit, expected, ends_only=width != checks.WIDTHS[0])
        for explorer in list(expected)[:1]:
            checks.plays(visit, explorer)
        told(visit.faults)


def written(book: Notebook):
    """Explorers of a notebook's outputs, by id."""
    outs = [out for _, cell in book.code for out in cell.outputs]
    parts = [site_checks.explorers(out.get("data", {}).get("text/html", "")) for out in outs]
    return {name: data for part in parts for name, data in part.items()}


@pytest.mark.parametrize("term", TERMS)
def test_search_finds(chromium, base, term):
    with checks.Visit(chromium, base, "search.html") as visit:
        titles = checks.found(visit, term)
        told(visit.faults)
    assert titles, f"the search finds nothing for {term}"
