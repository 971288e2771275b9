"""Every notebook of the book: its form, its anatomy, its claims, its budget."""

import json

import pytest
from checks import address, chapters, coverage, form, structure, views

MOST_SECONDS, MOST_MIB = 60, 2048


def told(faults):
    """Fails with every fault on a line of its own."""
    faults = list(faults)
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


@pytest.mark.parametrize("check", form.ALL, ids=lambda f: f.__name__)
def test_form(book, check):
    told(check(book))


def test_no_view_is_dropped(book):
    told(views.dropped_views(book))


def test_sections(book):
    if book.name[0] == "k":  # beyond the documents: no outline lists its sections
        return told(structure.own_sections(book))
    told(structure.sections(book, chapters.expected_sections(book.name)))


def test_heading_depths(book):
    told(structure.depths(book))


def test_setup_cell(book, url):
    told(structure.setup_cell(book, url))


def test_dials(book):
    told(structure.dials(book, chapters.expected_sections(book.name)))


def test_exercises(book):
    told(structure.exercises(book))


def test_no_footnotes(book):
    told(structure.footnotes(book))


@pytest.mark.parametrize("check", [coverage.claims, coverage.citations, coverage.errata])
def test_coverage(book, check):
    sections = {s["section"] for s in chapters.expected_sections(book.name)}
    if book.name[0] == "k":  # beyond the documents: its sections are those of its own ledger
        sections = {h.section for h in book.headings if h.section}
    told(check(book, chapters.ledger(), sections))


def test_claims_are_computed(book):
    told(coverage.literals(book, chapters.ledger()))


def test_budget(book, status):
    """At most a minute on one thread (a busy machine makes it wait, not work) and 2 GB."""
    rows = json.loads(status.read_text(encoding="utf-8"))["notebooks"]
    row = rows.get(f"{book.path.parent.name}/{book.name}")
    assert row, f"{book.name}: not in {status}: run make test-notebooks"
    seconds = min(row["seconds"], row["cpu_seconds"])
    assert seconds <= MOST_SECONDS, f"{book.name}: {seconds} s; at most {MOST_SECONDS} s"
    assert row["peak_mib"] <= MOST_MIB, f"{book.name}: {row['peak_mib']} MiB; at most {MOST_MIB}"


def test_every_notebook_is_a_chapter(notebooks):
    known = {*chapters.CHAPTERS, *(p.stem for p in notebooks if p.stem[0] == "k")}
    told([f"{p.name}: no chapter of the table" for p in notebooks if p.stem not in known])


def test_chapters_hold_the_whole_outline_once():
    found = [s["section"] for name in chapters.CHAPTERS for s in chapters.expected_sections(name)]
    assert found == [s["section"] for s in chapters.outline()]


def test_addresses(root):
    told(address.addresses(root))


def test_launch_links(root):
    told(address.launches(root))
