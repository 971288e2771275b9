"""What a cell of a notebook shows, seen by executing one."""

import pytest

CELLS = {
    "explorer": """
from labcore.viz import bar_table, explore
explore(lambda n: bar_table({"n": n}), n=[1, 2])""",
    "figure": """
from labcore.viz import heatmap
heatmap([[0.0, 1.0]], label="weight")""",
    "figure after pyplot": """
from matplotlib import pyplot
from labcore.viz import heatmap
heatmap([[0.0, 1.0]], label="weight")""",
    "figure kept": """
from labcore.viz import attention_lines
kept = attention_lines(["注", "b"], [0.5, 0.5], 0)""",
    "table": """
from labcore.viz import show, table
show(table([["a", 1]]))""",
    "source": """
from labcore.viz import show_source
from labcore.shapes import require
show_source(require)""",
}


@pytest.fixture(scope="module")
def outputs():
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def only(outputs, name):
    (output,) = outputs[name]
    assert output.output_type == "execute_result"
    return output.data


def test_explorer_has_a_live_view_frames_and_text(outputs):
    data = only(outputs, "explorer")
    assert set(data) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "text/plain",
    }
    assert data["text/plain"] == "Explorer: n in 1, 2; start n = 1"


@pytest.mark.parametrize("name", ["figure", "figure after pyplot"])
def test_figure_shows_once(outputs, name):
    data = only(outputs, name)
    assert set(data) == {"image/png", "text/plain"}
    assert data["text/plain"].startswith("<Picture size ")


def test_figure_that_is_only_kept_shows_nothing(outputs):
    assert outputs["figure kept"] == []


def test_table_and_source(outputs):
    assert set(only(outputs, "table")) == {"text/html", "text/plain"}
    assert set(only(outputs, "source")) == {"text/markdown", "text/plain"}
