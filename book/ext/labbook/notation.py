"""`{notation}`: the letter table, taken from `labcore.shapes`."""

from docutils import nodes

from labbook.build import Generated, table


def setup(app):
    app.add_directive("notation", Notation)


class Notation(Generated):
    """One row for each axis: code letter, letter in formulas, what it counts, Chinese."""

    def content_nodes(self):
        from labcore.shapes import LETTERS

        rows = [
            [
                nodes.literal("", row.letter),
                nodes.math("", row.latex),
                row.meaning,
                row.chinese,
            ]
            for row in LETTERS.values()
        ]
        columns = ("in code", "in formulas", "counts", "Chinese")
        return [table(columns, rows, classes=["notation-table"])]
