"""A notebook as the checks see it: cells with their section, and the code of a cell as a tree."""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

SECTION = r"[A-Z]\d+(?:\.\d+)*"
HEADING = re.compile(rf"^(#{{1,6}}) +(?:({SECTION}) · )?(.+?)\s*$")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


@dataclass
class Heading:
    """A Markdown heading: its depth, the section it names (or None), its words, the line above."""

    depth: int
    section: str | None
    title: str
    above: str
    cell: int


class Notebook:
    """The cells of one notebook; `number` of a code cell is the count that the page shows."""

    def __init__(self, path):
        self.path = Path(path)
        self.name = self.path.stem
        self.text = self.path.read_text(encoding="utf-8")
        self.nb = nbformat.reads(self.text, as_version=4)
        self.cells = self.nb.cells

    @functools.cached_property
    def code(self):
        """Code cells as (number, cell), counted from 1."""
        cells = [cell for cell in self.cells if cell.cell_type == "code"]
        return list(enumerate(cells, start=1))

    @functools.cached_property
    def headings(self):
        """Every heading in order; lines inside code fences are none."""
        found = []
        for index, cell in enumerate(self.cells):
            if cell.cell_type == "markdown":
                found += headings_in(cell.source, index)
        return found

    @functools.cached_property
    def sections(self):
        """Section of each cell by its index: the last one whose heading stands in or before it."""
        where, current = [], None
        for index, _ in enumerate(self.cells):
            named = [h.section for h in self.headings if h.cell == index and h.section]
            current = named[-1] if named else current
            where.append(current)
        return where

    def section_of(self, cell):
        """Section that a cell stands in."""
        return self.sections[next(i for i, other in enumerate(self.cells) if other is cell)]

    def paragraphs(self):
        """Markdown as (section, lines of one paragraph); a heading changes the section at once."""
        current = None
        for index, cell in enumerate(self.cells):
            if cell.cell_type != "markdown":
                continue
            for block in re.split(r"\n\s*\n", cell.source):
                for heading in headings_in(block, index):
                    current = heading.section or current
                yield current, block.splitlines()


def headings_in(source, index):
    """Headings of one Markdown cell, each with the nearest line of text above it."""
    found, lines, fence = [], source.splitlines(), None
    for place, line in enumerate(lines):
        mark = FENCE.match(line)
        if mark:
            if fence is None:
                fence = mark[1]
            elif line.strip().startswith(fence):
                fence = None
            continue
        match = HEADING.match(line) if fence is None else None
        if match:
            above = next((x.strip() for x in reversed(lines[:place]) if x.strip()), "")
            found.append(Heading(len(match[1]), match[2], match[3], above, index))
    return found


def plain_python(source):
    """Source whose magics and shell lines are replaced, so that it parses as Python.

    >>> plain_python("try:\\n    %pip install x")
    'try:\\n    pass'
    """
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)


def tree(source):
    """Syntax tree of a cell; an empty one where it is not Python (nbval reports that)."""
    try:
        return ast.parse(plain_python(source))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def called(node):
    """Name of what a call calls: the last word of `labcore.viz.explore`.

    >>> called(ast.parse("viz.explore(f)").body[0].value)
    'explore'
    """
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def calls(source, *names):
    """All calls of functions with these names in a cell, in the order they are written."""
    found = [n for n in ast.walk(tree(source)) if isinstance(n, ast.Call) and called(n) in names]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))
