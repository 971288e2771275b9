"""The notebook gate itself: it runs on copies of the sample, and each wrong copy must fail.

What nbval is known to miss is shown to pass here, and to be caught by a check in its place.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from checks import chapters, form
from checks.notebook import Notebook
from mutations import Copy, _stripped, _swapped_frames

KERNEL = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


def _wrong_number(copy):
    output = copy.cell("len(weights) + 0").outputs[0]
    output.text = output.text.replace("4", "5")


def _false_claim(copy):
    copy.replace("[2.0, 1.0, 0.0, -1.0]", "[2.0, 1.0, 0.0, -2.0]")


def _stripped_without_count(copy):
    _stripped(copy)
    copy.cell("len(weights)").execution_count = None


def _changed_picture(copy):
    data = copy.cell("axes.bar").outputs[0]["data"]
    data["image/png"] = "AAAA" + data["image/png"][4:]


WRONG = {
    "wrong_number": _wrong_number,
    "false_claim": _false_claim,
    "swapped_frame": _swapped_frames,
    "stripped_output": _stripped,
}
MISSED = {"stripped_without_count": _stripped_without_count, "changed_picture": _changed_picture}


@pytest.fixture(scope="module")
def gate(sample_path, tmp_path_factory):
    """Folder of the copies, the closing words of a gate that ran on them, and its figures."""
    folder = tmp_path_factory.mktemp("gate")
    for name, change in {"right": lambda copy: None, **WRONG, **MISSED}.items():
        broken = Copy(sample_path)
        change(broken)
        broken.written(folder / f"{name}.ipynb", canonical=False)
    options = ["-p", "tests.nbval_report", "-c", "tests/nbval.ini", "-p", "no:cacheprovider"]
    options += ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=60", "-q", "--color=no"]
    options += ["--nbval-sanitize-with", "tests/nbval_sanitize.cfg", "-n", "2", "--dist=loadfile"]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={chapters.ROOT}"]
    command += [f"--status={folder / 'status.json'}", str(folder)]
    done = subprocess.run(
        command,
        cwd=chapters.ROOT,
        env={**os.environ, **KERNEL},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return folder, done.stdout


def failures(text, name):
    """Lines at the end that name a failed cell of a copy."""
    return re.findall(rf"^\S*{name}\.ipynb  cell \[(\d+)\]  claims: (.*)$", text, flags=re.M)


def test_the_right_copy_passes(gate):
    assert "notebook, cell, claims" in gate[1], gate[1][-3000:]
    assert failures(gate[1], "right") == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_copy_fails(gate, name):
    assert failures(gate[1], name), gate[1][-3000:]


def test_a_failure_names_cell_and_claim(gate):
    assert failures(gate[1], "false_claim")[0] == ("5", "A02-01")
    assert "false_claim.ipynb, cell [5], claim A02-01" in gate[1]


def test_what_nbval_misses_is_known(gate):
    """A stripped cell without a count passes nbval, and the count's own check catches it."""
    assert failures(gate[1], "stripped_without_count") == []
    book = Notebook(gate[0] / "stripped_without_count.ipynb")
    assert form.counts(book) and form.outputs(book)
    assert failures(gate[1], "changed_picture") == []  # pictures are compared by test-twice


def test_figures_for_the_status_page(gate):
    status = json.loads((gate[0] / "status.json").read_text(encoding="utf-8"))
    row = status["notebooks"]["right"]
    assert row["cells"] == 10 and row["claims"] == 2 and row["failures"] == 0
    assert row["cpu_seconds"] > 0 and row["seconds"] < 60 and 50 < row["peak_mib"] < 2048
    assert status["versions"]["torch"]
    assert status["notebooks"]["false_claim"]["failures"] >= 1
