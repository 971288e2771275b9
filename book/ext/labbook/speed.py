"""`{measured-speed}`: what each machine measured, as plots and tables, and what is still asked for.

The rows that a GPU must show are listed whether somebody measured them or not: a page that left
them out would look complete.
"""

from docutils import nodes

from labbook.build import Generated, paragraph, section, table
from labbook.measured import machine_name, records, versions
from labbook.plots import rate_plot, ratio_plot

SPEED = "labcore/bench/results"
KERNELS = ("attention", "window", "moe")
MISSING = "not measured"
COLUMNS = ("work and side", "ratio or rate", "quartiles or share", "floor / goal", "verdict")
ASKED_COLUMNS = ("kernel, shape, measure", "floor", "goal", "measured", "verdict")


def setup(app):
    app.add_directive("measured-speed", Speed)


class Speed(Generated):
    """The kernels' table for one GPU, then a section for each machine."""

    def content_nodes(self):
        return page(records(SPEED))


def page(found):
    """All nodes of the page from records by file name."""
    newest = newest_by_machine(found)
    parts = [asked_section(newest)]
    parts += [machine_section(name, record) for name, record in newest.items()]
    return parts if newest else [*parts, paragraph("Not measured on any machine yet.")]


def newest_by_machine(found):
    """One record for each machine by its name, newest first."""
    newest = {}
    for record in sorted(found.values(), key=lambda r: r.get("date", ""), reverse=True):
        newest.setdefault(machine_name(record.get("machine", {})), record)
    return newest


def asked_section(newest):
    """Everything that is asked of the kernels on one GPU, beside what was measured there."""
    from labcore.bench.ceilings import ASKED_ON, STATED
    from labcore.bench.registry import rows

    record = next((r for name, r in newest.items() if name.startswith(ASKED_ON)), None)
    there = {(r["group"], r["title"]): r for r in (record or {}).get("rows", ())}
    asked = [r for group in KERNELS for r in rows(group) if r.rate or r.ratios]
    top = STATED[ASKED_ON]
    told = f"What is asked of the kernels on one {ASKED_ON}, in bfloat16. It reaches at most "
    told += f"{top['flops'] / 1e12:g} TFLOP/s and {top['bytes'] / 1e12:g} TB/s; ratios are to "
    told += "what torch has for the same work, in the same run. "
    told += told_of(record) if record else f"On this GPU it is {MISSING} yet."
    cells = [line for row in asked for line in asked_lines(row, there.get((row.group, row.title)))]
    plot = rate_plot(
        [bar(row, there.get((row.group, row.title)), top) for row in asked if row.rate]
    )
    block = table(ASKED_COLUMNS, cells, classes=["numbers"])
    title = f"Kernels on an {ASKED_ON.removeprefix('NVIDIA ')}"
    return section(title, paragraph(told), plot, block, ids=["kernels-asked"])


def asked_lines(row, measured):
    """Table rows of one benchmark row: one for its rate, one for each ratio that is asked for."""
    name = title_of(row.group, row.title)
    wanted = []
    if row.rate:
        wanted.append(("TFLOP/s" if row.flops else "TB/s", row.rate))
    wanted += [(f"ratio to {side}", pair) for side, pair in (row.ratios or {}).items()]
    found = {one["what"]: one for one in (measured or {}).get("asked", ())}
    return [
        [f"{name}: {what}", f"{floor:g}", f"{goal:g}", *outcome(found.get(what))]
        for what, (floor, goal) in wanted
    ]


def outcome(one):
    """(value, verdict) of something asked for, in words."""
    if one is None:
        return MISSING, "–"
    return ("–" if one["value"] is None else f"{one['value']:.3g}"), one["verdict"]


def bar(row, measured, top):
    """(name, unit, ceiling, floor, goal, measured rate or None) for the plot of rates."""
    unit, ceiling = ("TFLOP/s", top["flops"]) if row.flops else ("TB/s", top["bytes"])
    rate = measured["rate"]["median"] if measured and measured.get("rate") else None
    return title_of(row.group, row.title), unit, ceiling / 1e12, *row.rate, rate


def machine_section(name, record):
    """A machine: when and with what it was measured, and its groups."""
    groups = {}
    for row in record.get("rows", ()):
        groups.setdefault(row.get("group", ""), []).append(row)
    parts = [part for group, rows in groups.items() for part in group_parts(group, rows)]
    if record.get("failed") or record.get("left out"):
        missing = [f"{one['title']} ({one['error']})" for one in record.get("failed", ())]
        parts.append(
            paragraph("Failed or not reached: ", "; ".join(missing + record.get("left out", [])))
        )
    told = told_of(record)
    return section(name, paragraph(told), *parts, ids=[nodes.make_id(f"on-{name}")])


def told_of(record):
    """Day, versions and driver, and the ceilings that the shares are of."""
    driver = record.get("machine", {}).get("driver")
    told = f"Measured on {record.get('date', 'an unknown day')} with {versions(record)}"
    told += f", driver {driver}." if driver else "."
    tops = {r["rate"]["unit"]: r["ceiling"] for r in record.get("rows", ()) if r.get("rate")}
    words = [f"{top['value']:.3g} {unit} ({top['from']})" for unit, top in tops.items()]
    return f"{told} Ceilings: {', '.join(words)}." if words else told


def group_parts(group, rows):
    """A group's plot, the sides that were not there, and all its numbers, folded."""
    lines = [line for row in rows for line in machine_lines(row)]
    points = [point for row in rows for point in ratio_points(row)]
    head = nodes.rubric("", "", nodes.Text(group))
    folded = [nodes.raw("", f"<details><summary>{group}: all numbers</summary>", format="html")]
    folded += [
        table(COLUMNS, lines, classes=["numbers"]),
        nodes.raw("", "</details>", format="html"),
    ]
    absent = [paragraph(f"Not there: {words}.") for words in absences(rows)]
    return [head, ratio_plot(points), *absent, *folded]


def absences(rows):
    """Sides that were not there, one line for each reason."""
    found = {}
    for row in rows:
        for name, side in row.get("sides", {}).items():
            if "not there" in side:
                found.setdefault(side["not there"], {})[name] = None
    return [f"{', '.join(names)} ({why})" for why, names in found.items()]


def ratio_points(row):
    """(work, side, ratio with quartiles, floor or None) of every side that was measured."""
    sides = {n: s["ratio"] for n, s in row.get("sides", {}).items() if "ratio" in s}
    if not sides and row.get("ratio"):
        sides = {row.get("against", "–"): row["ratio"]}
    asked = {one["what"]: one for one in row.get("asked", ())}
    for name, ratio in sides.items():
        prefix = next((w for w in asked if f"ratio to {name}".startswith(w)), None)
        yield (
            row.get("title", ""),
            name,
            ratio,
            asked[prefix]["floor"] if prefix else row.get("floor"),
        )


def machine_lines(row):
    """Table rows of a measured row: its rate where it has one, then the ratio to every side."""
    name, asked = row.get("title", ""), {one["what"]: one for one in row.get("asked", ())}
    if row.get("rate"):
        unit, top = row["rate"]["unit"], row["ceiling"]["value"]
        value, share = f"{row['rate']['median']:.3g} {unit}", f"{row['share']:.0%} of {top:.3g}"
        one = asked.get(unit)
        yield [f"{name}: rate", value, share, wanted(one), said(one)]
    for _, side, ratio, _ in ratio_points(row):
        spread = f"{ratio['low']:.2f}–{ratio['high']:.2f}"
        one = next((o for w, o in asked.items() if f"ratio to {side}".startswith(w)), None)
        one = one if row.get("sides") else row
        work = f"{name}: against {side}"
        yield [work, f"{ratio['median']:.2f}", spread, wanted(one), said(one)]


def said(one):
    """The verdict on one measure: nothing is asked of the others."""
    return one.get("verdict", "–") if one else "information"


def wanted(one):
    """Floor and goal, or a dash."""
    there = one and one.get("floor") is not None
    return f"{one['floor']:g} / {one['goal']:g}" if there else "–"


def title_of(group, title):
    """A row's name without the device, which the table's heading says."""
    return f"{group}: {title.partition(': ')[2] or title}"
