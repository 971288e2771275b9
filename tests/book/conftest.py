"""What the book tests share: the notebooks, the sample chapter, the built site, the browser."""

import os
from pathlib import Path

import pytest
import sample
from checks import address, chapters
from checks.notebook import Notebook

ROOT = chapters.ROOT
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
SITE = ROOT / "_build" / "html"


def pytest_generate_tests(metafunc):
    if "book" in metafunc.fixturenames:
        metafunc.parametrize(
            "book", NOTEBOOKS, ids=lambda p: p.stem, indirect=True, scope="session"
        )
    if "page" in metafunc.fixturenames:
        pages = [SITE / p.relative_to(ROOT).with_suffix(".html") for p in NOTEBOOKS]
        metafunc.parametrize("page", pages, ids=lambda p: p.stem)


@pytest.fixture(scope="session")
def book(request):
    """One notebook of the book."""
    return Notebook(request.param)


@pytest.fixture(scope="session")
def root():
    """The repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def notebooks():
    """Paths of all notebooks."""
    return NOTEBOOKS


@pytest.fixture(scope="session")
def url():
    """Where the repository will stand, from the one place that says so."""
    return address.repository(ROOT)


@pytest.fixture(scope="session")
def sample_path(tmp_path_factory, url):
    """The sample chapter, executed once."""
    return sample.executed(tmp_path_factory.mktemp("sample") / "sample.ipynb", url)


@pytest.fixture(scope="session")
def site():
    """Folder of the built book; without it a test is skipped, or fails where CI demands it."""
    if not (SITE / "index.html").exists():
        told = "the book is not built: run make book"
        pytest.fail(told) if os.environ.get("BOOK_REQUIRED") else pytest.skip(told)
    return SITE


@pytest.fixture(scope="session")
def status():
    """Seconds and memory of the last run of the notebook gate."""
    path = ROOT / "build" / "status.json"
    if not path.exists():
        told = "no figures of a notebook run: run make test-notebooks"
        pytest.fail(told) if os.environ.get("BOOK_REQUIRED") else pytest.skip(told)
    return Path(path)
