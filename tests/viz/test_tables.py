"""Tables and drawings: what stands in them, how it is escaped, and what they refuse."""

import re
from html.parser import HTMLParser

import numpy
import pytest
import torch

from labcore.viz import bar_table, heat_table, line_svg, lines_svg, show, table

ROWS, COLUMNS = 3, 5
VALUES = numpy.linspace(-1.0, 0.75, ROWS * COLUMNS).reshape(ROWS, COLUMNS)
NAN, INF = float("nan"), float("inf")


class Balance(HTMLParser):
    """Fails where an element ends that did not begin."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def balanced(html):
    parser = Balance()
    parser.feed(html)
    parser.close()
    return parser.open == []


def cells(html):
    return re.findall(r"<td[^>]*>([^<]*)</td>", html)


def test_heat_table_shows_every_number_and_scales_colour_by_the_largest():
    html = heat_table(VALUES)
    assert cells(html) == [f"{value:.2f}".replace("-0.00", "0.00") for value in VALUES.ravel()]
    assert 'class="n" style="--v:1"' in html  # -1 is the largest magnitude
    assert balanced(html)


def test_heat_table_with_vmax_keeps_frames_comparable():
    assert "--v:0.25" in heat_table([[0.5]], vmax=2)
    assert "--v:1" in heat_table([[2.0]], vmax=2)


def test_heat_table_has_headers_with_scope_and_a_caption():
    html = heat_table(VALUES, rows="abc", columns=range(COLUMNS), caption="a < b")
    assert html.count('scope="row"') == ROWS
    assert html.count('scope="col"') == COLUMNS
    assert "<caption>a &lt; b</caption>" in html
    assert balanced(html)


def test_heat_table_takes_tensors_booleans_and_forbidden_scores():
    values = torch.tensor([[0.5, -INF]], requires_grad=True)
    assert cells(heat_table(values)) == ["0.50", "-∞"]
    assert cells(heat_table(torch.tensor([[True, False]]))) == ["1", "0"]
    assert cells(heat_table(torch.tensor([[0.5]], dtype=torch.bfloat16))) == ["0.50"]
    assert cells(heat_table([[-INF, -INF]])) == ["-∞", "-∞"]
    assert cells(heat_table([[0.0, 0.0]])) == ["0.00", "0.00"]


def test_marked_cells_are_outlined():
    assert re.findall(r'class="([^"]*labx-m)"[^>]*>([^<]*)', heat_table(VALUES, mark={(0, 0)})) == [
        ("n labx-m", "-1.00")
    ]


def test_bar_table_puts_negative_bars_left_of_the_zero_line():
    html = bar_table({"it": 0.5, "was": -1.0}, vmax=1)
    assert "--a:50.0;--w:25.0" in html
    assert 'class="n" style="--a:0.0;--w:50.0"' in html
    assert html.count("--z:50") == 2
    assert balanced(html)


def test_bar_table_without_negative_numbers_uses_the_whole_width():
    html = bar_table([("a", 1.0), ("b", 0.25)])
    assert "--a:0.0;--w:100.0" in html
    assert "--a:0.0;--w:25.0" in html


def test_bar_table_of_several_columns():
    html = bar_table({"a": [1, 2, 3], "b": torch.tensor([4, 5, 6])}, columns=["x", "y", "z"])
    assert html.count("<i ") == 6
    assert html.count('colspan="2"') == 3
    assert balanced(html)


def test_table_aligns_numbers_right_and_escapes_text():
    html = table([["<a>", 0.12345, "x"], ["b", 2, None]], ["n", "p", "t"], caption="c")
    assert "&lt;a&gt;" in html
    assert "<td>0.1235</td>" in html or "<td>0.1234</td>" in html
    assert '<td class="labx-l">none</td>' in html
    assert html.count('scope="col"') == 3
    assert balanced(html)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: heat_table([[1.0, NAN]]), r"values: got nan at index \[0, 1\]; allowed: finite"),
        (lambda: heat_table([[INF]]), "values: got inf"),
        (lambda: heat_table([1.0, 2.0]), r"values: got shape \[2\]; allowed: 2 axes"),
        (lambda: heat_table([[1, 2], [3]]), "values: got rows of different length"),
        (lambda: heat_table([["a"]]), "values: got list of <U1; allowed: real numbers"),
        (lambda: heat_table(numpy.zeros((0, 3))), r"values: got shape \[0, 3\]"),
        (lambda: heat_table(VALUES, rows="ab"), "rows: got 2 labels; allowed: 3"),
        (lambda: heat_table(VALUES, columns="ab"), "columns: got 2 labels; allowed: 5"),
        (lambda: heat_table(VALUES, vmax=0), "vmax: got 0; allowed: a positive number"),
        (lambda: heat_table(VALUES, vmax=NAN), "vmax: got nan; allowed: a positive number"),
        (lambda: bar_table({}), "rows: got none"),
        (lambda: bar_table({"a": NAN}), "rows: got nan"),
        (lambda: bar_table({"a": -INF}), "rows: got -inf"),
        (lambda: bar_table({"a": [1, 2]}, columns=["x"]), "columns: got 1 labels; allowed: 2"),
        (lambda: table([]), "rows: got none"),
        (lambda: table([[1, 2], [3]]), r"rows: got rows of \[1, 2\] cells"),
        (lambda: table([[1, 2]], ["a"]), "columns: got 1 labels; allowed: 2"),
        (lambda: line_svg({}, [1, 2]), "series: got 0; allowed: 1 to 6 curves"),
        (lambda: line_svg({"a": [1, NAN]}, [1, 2]), r"series\['a'\]: got nan at index \[1\]"),
        (lambda: line_svg({"a": [1]}, [1, 2]), r"series\['a'\]: got 1 numbers; allowed: 2"),
        (lambda: line_svg({"a": [1, 2]}, [0, 2], log_x=True), "x: got 0; allowed: positive"),
        (lambda: line_svg({"a": [0, 2]}, [1, 2], log_y=True), "series: got 0; allowed: positive"),
        (lambda: line_svg({"a": [1, 9]}, [1, 2], ylim=(0, 5)), "ylim: got 0 to 5 for values from"),
        (lambda: line_svg({"a": [1, 9]}, [1, 2], at=3), "at: got 3; allowed: a place from 1 to 2"),
        (lambda: lines_svg(["a"], ["b"], [[1.5]]), "weights: got 1.5 to 1.5; allowed: numbers"),
        (lambda: lines_svg(["a"], ["b"], [[1.0]], query=1), "query: got 1; allowed: a position"),
        (lambda: lines_svg(["a"], ["b", "c"], [[1.0]]), "tokens_to: got 2 labels; allowed: 1"),
    ],
)
def test_what_cannot_be_shown_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_line_svg_places_its_points_between_the_axes():
    size = (430, 210)
    html = line_svg({"a": [1, 10, 100], "b": [100, 10, 1]}, [1, 2, 3], log_y=True, size=size)
    points = re.findall(r'points="([^"]*)"', html)
    first, second = ([tuple(map(float, p.split(","))) for p in line.split()] for line in points)
    assert all(0 <= x <= size[0] and 0 <= y <= size[1] for x, y in first + second)
    assert first[0][1] - first[1][1] == pytest.approx(first[1][1] - first[2][1], abs=0.2)
    assert [x for x, _ in first] == [x for x, _ in second]
    assert balanced(html)


def test_line_svg_keeps_first_and_last_values_in_a_table():
    html = line_svg({"a": [1.0, 5.0, 9.5]}, [1, 2, 3], xlabel="n")
    assert cells(html)[-2:] == ["1.00", "9.50"]
    assert "n = 1" in html
    assert "n = 3" in html


@pytest.mark.parametrize("constant", [0.0, 3.0, -2.0])
def test_line_svg_of_a_constant(constant):
    assert "nan" not in line_svg({"a": [constant] * 3}, [1, 2, 3])


def test_lines_svg_draws_each_visible_weight_and_names_the_strongest():
    weights = [[0.7, 0.3, 0.0], [0.2, 0.2, 0.6]]
    html = lines_svg(["it", "was"], ["the", "cat", "sat"], weights)
    assert html.count("<path") == 5
    assert cells(html) == ["the", "0.70", "sat", "0.60"]
    one = lines_svg(["it", "was"], ["the", "cat", "sat"], weights, query=0)
    assert one.count("<path") == 2
    assert balanced(html)


def test_drawings_carry_no_ids_and_inherit_the_text_colour():
    html = line_svg({"a": [1, 2]}, [1, 2]) + lines_svg(["a"], ["b"], [[1.0]])
    assert " id=" not in html
    assert "currentColor" in html
    assert html.count('role="img" aria-label="') == 2


def test_builders_give_the_same_bytes_twice():
    def all_of_them():
        return (
            heat_table(VALUES)
            + bar_table({"a": -0.3, "b": 0.1})
            + line_svg({"a": [1, 2]}, [1, 2])
            + lines_svg(["a"], ["b"], [[1.0]])
        )

    assert all_of_them() == all_of_them()


def test_show_has_html_for_pages_and_text_for_terminals():
    shown = show(table([["a", 1], ["b", 2]], caption="c"))
    assert repr(shown) == "c\na 1\nb 2"
    assert "<style>" in shown._repr_html_()
    assert "<script" not in shown._repr_html_()
    assert repr(show("<table></table>", "text")) == "text"
    for wrong in ("", "  ", None, 3):
        with pytest.raises(TypeError, match="^content: got"):
            show(wrong)


@pytest.mark.parametrize("make", [heat_table, bar_table])
def test_a_value_beyond_vmax_is_refused_not_cut(make):
    rows = [[0.5, -7.0]] if make is heat_table else {"a": 0.5, "b": -7.0}
    with pytest.raises(ValueError, match="^values: got a magnitude of 7; allowed: up to vmax 4"):
        make(rows, vmax=4)
