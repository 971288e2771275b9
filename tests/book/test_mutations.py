"""Tests of the tests: the sample chapter passes every check, and each broken copy is caught."""

import copy
import re

import pytest
import sample
from checks import coverage, form, structure, views
from checks.notebook import Notebook
from mutations import MUTATIONS, UNTOUCHED_BY_FORM, Copy


def every_fault(book, url, entries=None):
    """Faults of all checks that look at a notebook alone, by the check's name."""
    sections, entries = sample.sample_outline(), entries or sample.sample_ledger()
    names = [s["section"] for s in sections]
    found = {check.__name__: check(book) for check in form.ALL}
    found["sections"] = structure.sections(book, sections)
    found["dials"] = structure.dials(book, sections)
    found["setup_cell"] = structure.setup_cell(book, url)
    plain = (structure.depths, structure.exercises, structure.footnotes, views.dropped_views)
    for check in plain:
        found[check.__name__] = check(book)
    for check in (coverage.claims, coverage.citations, coverage.errata):
        found[check.__name__] = check(book, entries, names)
    found["literals"] = coverage.literals(book, entries)
    return {name: faults for name, faults in found.items() if faults}


def test_the_sample_is_right(sample_path, url):
    assert every_fault(Notebook(sample_path), url) == {}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_copy_is_caught(name, sample_path, url, tmp_path):
    change, check = MUTATIONS[name]
    broken = Copy(sample_path)
    change(broken)
    # A careless author would still run the tool that writes the canonical form.
    book = broken.written(tmp_path / "sample.ipynb", canonical=name not in UNTOUCHED_BY_FORM)
    found = every_fault(book, url)
    if check is None:  # another source still stands in the same paragraph
        assert found == {}
    else:
        assert check in found, f"{name}: not seen by {check}; seen: {found}"


def test_a_paragraph_without_a_source_is_caught(sample_path, url, tmp_path):
    broken = Copy(sample_path)
    cell = broken.cell("A01-06")
    cell.source = re.sub(r" \{cite\}`\w+`", "", cell.source)
    assert "citations" in every_fault(broken.written(tmp_path / "sample.ipynb"), url)


def test_an_entry_added_to_the_ledger_is_missed(sample_path, url):
    entries = sample.sample_ledger()
    entries["A02-50"] = {**copy.deepcopy(entries["A02-01"]), "id": "A02-50"}
    assert "claims" in every_fault(Notebook(sample_path), url, entries)
