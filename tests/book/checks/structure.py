"""The anatomy of a notebook: title, sections of the outline, set-up cell, dials, exercises."""

import ast
import re

from checks.notebook import calls

LEAST_EXERCISES = 3
SETTINGS = ("start", "title", "live")


def sections(book, expected):
    """Faults of headings against `expected`, the outline's sections that belong in this notebook.

    Each stands once, in order, with the document's own heading, a label above it, and a depth that
    follows its dots relative to the notebook's first section.
    """
    faults, found = [], [h for h in book.headings if h.section]
    names, wanted = [h.section for h in found], [s["section"] for s in expected]
    for name in sorted(set(names) | set(wanted)):
        if names.count(name) != (name in wanted):
            faults.append(f"{book.name}: section {name} stands {names.count(name)} times")
    if not faults and names != wanted:
        faults.append(f"{book.name}: sections in the order {', '.join(names)}")
    by_name = {s["section"]: s for s in expected}
    for heading in found:
        if heading.section in by_name:
            faults += _heading(book, heading, by_name[heading.section], wanted[0])
    return faults


def _heading(book, heading, entry, first):
    """Faults of one section's heading: its label, its words, its depth."""
    faults, name = [], heading.section
    if heading.above != f"({name})=":
        faults.append(f"{book.name}: no label ({name})= above the heading of {name}")
    own = _letters(str(entry["heading_zh"] or ""))
    if own not in _letters(heading.title):
        faults.append(f"{book.name}: {name} lacks the document's heading {entry['heading_zh']!r}")
    both = own.isascii() or re.search(r"[A-Za-z]{3}.*（.+）$", heading.title)
    if not both:
        faults.append(f"{book.name}: {name}: write English words, then the Chinese in （…）")
    depth = max(2, 2 + name.count(".") - first.count("."))
    if heading.depth != depth:
        faults.append(f"{book.name}: heading of {name} has depth {heading.depth}, not {depth}")
    return faults


def own_sections(book):
    """Faults of the sections of a chapter beyond the documents: K03.1, K03.2, … in k03.

    Each has a label above it, depth 2, and English words with the Chinese behind them.
    """
    found = [h for h in book.headings if h.section]
    names = [h.section for h in found]
    chapter = book.name.split("_")[0].upper()
    wanted = [f"{chapter}.{number}" for number in range(1, max(len(found), 1) + 1)]
    faults = []
    if names != wanted:
        faults.append(f"{book.name}: sections {', '.join(names)}; not {', '.join(wanted)}")
    for heading in found:
        name = heading.section
        if heading.above != f"({name})=":
            faults.append(f"{book.name}: no label ({name})= above the heading of {name}")
        if not re.search(r"[A-Za-z]{3}.*（.*[\u4e00-\u9fff].*）$", heading.title):
            faults.append(f"{book.name}: {name}: write English words, then the Chinese in （…）")
        if heading.depth != 2:
            faults.append(f"{book.name}: heading of {name} has depth {heading.depth}, not 2")
    return faults


def _letters(text):
    """Letters and digits alone: spacing and punctuation of a heading may differ."""
    return re.sub(r"[\W_]+", "", text).lower()


def depths(book):
    """Faults of the heading tree: one title, first, and no level skipped."""
    levels = [h.depth for h in book.headings]
    faults = []
    if levels.count(1) != 1 or levels[0] != 1:
        faults.append(f"{book.name}: {levels.count(1)} titles (#); one, at the top")
    for before, heading in zip(book.headings, book.headings[1:], strict=False):
        if heading.depth > before.depth + 1:
            told = f"depth {heading.depth} under depth {before.depth}"
            faults.append(f"{book.name}: heading {heading.title!r}: {told}")
    return faults


def setup_text(url):
    """The first code cell of every notebook, for a repository at `url`."""
    return (
        "try:\n"
        "    import labcore\n"
        "except ModuleNotFoundError:  # a hosted notebook: labcore is not there yet\n"
        f'    %pip install -q "git+{url}"\n'
        "    import labcore\n"
        "labcore.runtime.setup()"
    )


def setup_cell(book, url):
    """Faults of the set-up cell: first, hidden on the page, silent, the same everywhere."""
    if not book.code:
        return [f"{book.name}: no code cell"]
    cell, faults = book.code[0][1], []
    if cell.source.strip() != setup_text(url):
        faults.append(f"{book.name}: the first code cell is not the shared set-up cell")
    if "remove-cell" not in cell.metadata.get("tags", ()):
        faults.append(f"{book.name}: the set-up cell lacks the tag remove-cell")
    if cell.outputs:
        faults.append(f"{book.name}: the set-up cell prints something")
    return faults


def dials(book, expected):
    """Faults of sections with fewer dials in their explorers than the outline lists."""
    turned = dict.fromkeys((s["section"] for s in expected), 0)
    for _, cell in book.code:
        section = book.section_of(cell)
        if section in turned:
            turned[section] += sum(map(_dials, calls(cell.source, "explore")))
    return [
        f"{book.name}: {s['section']} has {turned[s['section']]} dials of {len(s['dials'])}: "
        + "; ".join(dial["name"] for dial in s["dials"])
        for s in expected
        if s.get("dials") and turned[s["section"]] < len(s["dials"])
    ]


def _dials(call):
    """How many dials an `explore` call has; a `**mapping` written out counts by its keys."""
    count = 0
    for keyword in call.keywords:
        if keyword.arg is None:
            spread = keyword.value
            count += len(spread.keys) if isinstance(spread, ast.Dict) else 1
        else:
            count += keyword.arg not in SETTINGS
    return count


def exercises(book):
    """Faults of exercises: at least three, each with a folded solution, two of them with code."""
    text = "\n".join(c.source for c in book.cells if c.cell_type == "markdown")
    labels = re.findall(r"\{exercise(?:-start)?\}.*\n(?:[^\n`]*\n)*?\s*:label:\s*(\S+)", text)
    marks = re.findall(r"^(`{3,}|:{3,})\{exercise(?:-start)?\}", text, flags=re.M)
    faults = []
    if len(marks) < LEAST_EXERCISES:
        faults.append(f"{book.name}: {len(marks)} exercises; at least {LEAST_EXERCISES}")
    if len(labels) != len(marks):
        faults.append(f"{book.name}: {len(marks) - len(labels)} exercises without a :label:")
    solved = re.findall(r"\{solution(?:-start)?\}\s+(\S+)\n((?:\s*:[^\n]*\n)*)", text + "\n")
    for label, options in solved:
        if "dropdown" not in options:
            faults.append(f"{book.name}: the solution of {label} is not folded (:class: dropdown)")
    told = [label for label, _ in solved]
    for label in sorted(set(labels) ^ set(told)):
        where = "has no solution" if label in labels else "is solved, but no exercise"
        faults.append(f"{book.name}: {label} {where}")
    executed = _solutions_with_code(book)
    if executed < 2:
        faults.append(f"{book.name}: {executed} solutions with an executed cell; at least 2")
    return faults


def _solutions_with_code(book):
    """How many gated solutions hold a code cell."""
    count, inside, code = 0, False, False
    for cell in book.cells:
        if cell.cell_type == "code":
            code |= inside
            continue
        if "{solution-start}" in cell.source:
            inside, code = True, False
        if "{solution-end}" in cell.source:
            count += inside and code
            inside = False
    return count


def footnotes(book):
    """Faults of footnotes: translated pages lose them."""
    return [
        f"{book.name}: footnote {mark.group()}"
        for cell in book.cells
        if cell.cell_type == "markdown"
        for mark in [re.search(r"\[\^[\w-]+\]", cell.source)]
        if mark
    ]
