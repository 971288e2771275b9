"""What the generated pages are made from: ledger, outline, and the notebooks' claims."""

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[3]
LEDGER = ROOT / "book" / "ledger"
DOCUMENTS = {
    "A": "From seq2seq to experts",
    "B": "What modern language models changed",
    "C": "One string, index by index",
    "D": "The why, and the cost",
    "K": "Three kernels",
}
ID = r"[A-Z]\d+(?:\.\d+)*-\d+"
CLAIM = re.compile(rf"\bclaim\(\s*[\"']({ID})[\"']")
CITED = re.compile(rf"<!--\s*({ID})\s*-->")
ERRATUM = re.compile(rf"<!--\s*erratum\s+({ID})\s*-->")
PRINTED = re.compile(rf"✓ ({ID})  ?(.*)")
LABEL = re.compile(r"^\(([A-Z]\d+(?:\.\d+)*)\)=\s*$", re.M)


class Place(NamedTuple):
    """Where the book decides an entry: page, how, and what the cell printed."""

    page: str
    how: str  # "code" or "cited"
    printed: str


class Chapter(NamedTuple):
    """One notebook: its page, title, sections, claims and citations by id, admonished errata."""

    page: str
    title: str
    sections: tuple
    places: dict
    errata: frozenset


def read_yaml(pattern):
    for path in sorted(LEDGER.glob(pattern)):
        yield from yaml.load(path.read_text(encoding="utf-8"), Loader) or ()


Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def ledger():
    """All entries by id, in the files' order."""
    return {entry["id"]: entry for entry in read_yaml("ledger_*.yml")}


@cache
def outline():
    """All sections by name, in the documents' order."""
    return {row["section"]: row for row in read_yaml("outline_*.yml")}


def printed_lines(cell):
    """What `claim` printed in a code cell, by id."""
    streams = (o for o in cell.get("outputs", ()) if o.get("output_type") == "stream")
    text = "".join("".join(o["text"]) for o in streams)
    return dict(PRINTED.findall(text))


def chapter(page, path):
    """The `Chapter` in the notebook file at `path`."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, sections, places, errata = page, [], {}, set()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            lines = printed_lines(cell)
            for claim_id in CLAIM.findall(source):
                places[claim_id] = Place(page, "code", lines.get(claim_id, ""))
            continue
        heading = re.match(r"# (.+)", source)
        title = heading[1].strip() if heading and title == page else title
        sections += LABEL.findall(source)
        places.update((i, Place(page, "cited", "")) for i in CITED.findall(source))
        errata.update(ERRATUM.findall(source))
    return Chapter(page, title, tuple(sections), places, frozenset(errata))


_seen = {}


def chapters(env):
    """Chapters of the notebooks that the book includes, in the order of their names."""
    found = []
    for page in sorted(env.found_docs):
        path = Path(env.doc2path(page))
        if path.suffix == ".ipynb":
            key = (page, path.stat().st_mtime_ns)
            if key not in _seen:
                _seen[key] = chapter(page, path)
            found.append(_seen[key])
    return found


def places(env):
    """Where each decided entry stands: a mapping from id to `Place`."""
    return {key: place for one in chapters(env) for key, place in one.places.items()}


def waiting(env, entries):
    """Entries of sections that no notebook holds yet."""
    present = {section for one in chapters(env) for section in one.sections}
    return [entry for entry in entries if entry["section"] not in present]


def heading(section):
    """A section's heading as the notebooks write it."""
    row = outline().get(section)
    if row is None:
        return section
    english, chinese = row["heading_en"], row["heading_zh"]
    return f"{section} · {english}" + (f"（{chinese}）" if chinese != english else "")
