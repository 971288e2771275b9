"""The built book as files: links, sizes, nothing from another host."""

import re

import checks.site as site_checks
import pytest
from checks import address, chapters
from checks.notebook import Notebook, calls
from test_notebooks import told

PAGES = site_checks.pages(chapters.ROOT)
PER_PAGE = (
    site_checks.elsewhere,
    site_checks.links,
    site_checks.weight,
    site_checks.picture_names,
)


def html(site, name):
    """The file of a page."""
    path = site / f"{name}.html"
    assert path.is_file(), f"{name} is in the table of contents, but was not built"
    return path


@pytest.mark.parametrize("check", PER_PAGE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", PAGES)
def test_page(site, name, check):
    told(check(site, html(site, name)))


def test_style_sheets(site):
    told(site_checks.styles(site))


def test_every_notebook_is_in_the_table_of_contents(notebooks, root):
    missing = [p for p in notebooks if str(p.relative_to(root).with_suffix("")) not in PAGES]
    told([f"{path.name}: not in _toc.yml" for path in missing])


def test_explorers_are_those_of_the_notebook(book, site, root):
    page = html(site, str(book.path.relative_to(root).with_suffix("")))
    told(site_checks.same_explorers(page, book))


def test_claims_page(site, notebooks):
    names = {}
    for path in notebooks:
        for _, cell in Notebook(path).code:
            for call in calls(cell.source, "claim"):
                names[call.args[0].value] = path.stem
    told(site_checks.claim_links(site, html(site, "book/claims"), names))


def test_launch_buttons(book, site, root):
    """The page's own buttons open files that are in git, at the address of the configuration."""
    page = html(site, str(book.path.relative_to(root).with_suffix("")))
    owner, name = address.slug(address.repository(root))
    text = page.read_text(encoding="utf-8")
    colab = re.findall(rf"colab\.research\.google\.com/github/{owner}/{name}/blob/(\S+?)\"", text)
    assert colab, f"{book.name}: no launch button for Colab"
    told(
        f"{book.name}: a launch button opens {target}, which is not in git"
        for target in {t.partition("/")[2] for t in colab}
        if target not in address.tracked(root)
    )
