"""What the generated pages are made from: ledger, notebooks, results. Only reads."""

import functools
import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
SECTION = re.compile(r"^#{2,6} ([ABCDK]\d+(?:\.\d+)*) · (.+)$", re.M)
CLAIM = re.compile(r"""\bclaim\(\s*["']([ABCDK][\d.]+-\d+)["']""")
MARK = re.compile(r"<!-- (erratum )?([ABCDK][\d.]+-\d+) -->")
DOCUMENTS = {
    "A": "The Transformer",
    "B": "LLM architecture",
    "C": "One string through the tensors",
    "D": "Principles and cost",
    "K": "Kernels",
}


@functools.cache
def ledger():
    """All ledger entries, in the documents' order."""
    entries = []
    for path in sorted((ROOT / "book" / "ledger").glob("ledger_*.yml")):
        entries += yaml.safe_load(path.read_text(encoding="utf-8"))
    return entries


def notebook_paths():
    return sorted((ROOT / "notebooks").glob("*/*.ipynb"))


def found():
    """By claim id: the page, the section it stands in, and the line its cell printed."""
    places = {}
    for path in notebook_paths():
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        section = None
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                for heading in SECTION.finditer(text):
                    section = heading[1]
                for kind, name in MARK.findall(text):
                    key = ("erratum", name) if kind else name
                    places[key] = {"page": page, "section": section, "printed": ""}
                continue
            printed = "".join("".join(o.get("text", "")) for o in cell["outputs"])
            for name in CLAIM.findall(text):
                line = re.search(rf"^✓ {re.escape(name)}  (.*)$", printed, re.M)
                places[name] = {
                    "page": page,
                    "section": section,
                    "printed": line[1] if line else "",
                }
    return places


def results(pattern):
    """(file name without suffix, content) of JSON files below the root, sorted by name."""
    return [
        (path.stem, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(ROOT.glob(pattern))
    ]
