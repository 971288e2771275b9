"""`{experiments}`: recorded experiments as tables, and what all records have in common."""

import json

from docutils import nodes

from labbook.build import Generated, number, paragraph, section, table, text
from labbook.sources import ROOT

EXPERIMENTS = "labcore/experiments/results"


def setup(app):
    app.add_directive("experiments", Experiments)


def records(folder):
    """Contents of the JSON files in a folder of the repository, by file name."""
    paths = sorted((ROOT / folder).glob("*.json"))
    return {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in paths}


def machine_name(machine):
    """A machine in words: its GPU or processor, and with how many threads."""
    name = machine.get("gpu") or machine.get("processor") or "unnamed machine"
    threads = machine.get("threads")
    count = f", {threads} thread{'s' if threads != 1 else ''}" if threads else ""
    return name + ("" if "gpu" in machine else count)


def versions(record):
    found = record.get("versions", {})
    return ", ".join(f"{name} {found[name]}" for name in ("python", "torch") if name in found)


class Experiments(Generated):
    """Each recorded experiment: what it asks, its seeds, and its results at every point."""

    def content_nodes(self):
        found = records(EXPERIMENTS)
        if not found:
            return [paragraph("None recorded yet.")]
        return [self.experiment(name, record) for name, record in found.items()]

    def experiment(self, name, record):
        seeds = ", ".join(map(str, record["seeds"]))
        runs = len(record["rows"])
        wanted = len(record["points"]) * len(record["seeds"])
        told = f"{runs} runs, seeds {seeds}."
        told += "" if runs >= wanted else f" {wanted - runs} runs are still missing."
        machines = dict.fromkeys(
            f"{machine_name(m)} ({m.get('date', 'no date')}, {versions(m)})"
            for m in record["machines"]
        )
        parts = [
            paragraph(text(name, nodes.literal), ": ", about(name)),
            paragraph(told, " Computed on ", "; ".join(machines), "."),
            nodes.raw("", DETAILS, format="html"),
            self.points(record),
            nodes.raw("", "</details>", format="html"),
        ]
        return section(name.replace("_", " "), *parts, ids=[nodes.make_id(f"experiment-{name}")])

    def points(self, record):
        """One row a point: its coordinates, then mean and range over the seeds of each result."""
        groups = {}
        for row in record["rows"]:
            groups.setdefault(tuple(row["point"].items()), []).append(row["result"])
        coordinates = list(dict.fromkeys(k for point in groups for k, _ in point))
        measured = list(dict.fromkeys(k for rows in groups.values() for k in rows[0]))
        rows = [
            [str(dict(point).get(k, "")) for k in coordinates] + [over(rows, k) for k in measured]
            for point, rows in groups.items()
        ]
        columns = [name.replace("_", " ") for name in coordinates + measured]
        return table(columns, rows, classes=["numbers"])


def over(results, key):
    """Mean and range of one result over the seeds."""
    values = [r[key] for r in results if isinstance(r.get(key), (int, float))]
    if not values:
        return "–"
    if min(values) == max(values):
        return number(values[0])
    return f"{sum(values) / len(values):.3g} ({min(values):.3g}–{max(values):.3g})"


def about(name):
    """First line of the experiment's docstring, or nothing where the code is not there."""
    try:
        from labcore.experiments.registry import find

        return find(name).about
    except (ImportError, ValueError):
        return ""


DETAILS = "<details><summary>Every point: mean over the seeds, and the range</summary>"
