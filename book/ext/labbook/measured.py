"""`{measured-speed}` and `{experiments}`: recorded measurements as tables."""

import json

from docutils import nodes

from labbook.build import Generated, number, paragraph, section, table, text
from labbook.sources import ROOT

SPEED = ("labcore/bench/results", "book/results/bench")
EXPERIMENTS = ("labcore/experiments/results", "book/results")


def setup(app):
    app.add_directive("measured-speed", Speed)
    app.add_directive("experiments", Experiments)


def records(folders):
    """Contents of the JSON files in the first of the folders that has any, by file name."""
    for folder in folders:
        paths = sorted((ROOT / folder).glob("*.json"))
        if paths:
            return {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in paths}
    return {}


class Speed(Generated):
    """The newest measurement of each machine."""

    def content_nodes(self):
        return [paragraph("Not measured yet.")]


class Experiments(Generated):
    """Each recorded experiment with its question, seeds and versions."""

    def content_nodes(self):
        return [paragraph("None recorded yet.")]


__all__ = ["number", "section", "table", "text", "nodes", "setup"]
