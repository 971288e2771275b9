"""A small chapter that is right in every way: the tests of the tests break copies of it.

It is written here as source and executed when the tests start, so that its outputs are those of
the package as it is. It borrows four entries of the real ledger and two sections of the outline.
"""

import copy
from pathlib import Path

import nbformat
import run_notebooks
from checks.chapters import ledger, outline
from checks.structure import setup_text

TITLE = """# A small chapter

The question, in one sentence.
"""

FIRST = """(A01)=
## A01 · From seq2seq to self-attention（从 Seq2Seq 到自注意力）

The formula is $q^\\top k$.
Two scores came before it {cite}`bahdanau2015`. <!-- A01-06 -->
Its two notations are old {cite}`bahdanau2015`. <!-- A01-02 -->

:::{admonition} Two ways to write it
:class: note
<!-- erratum A01-02 --> Columns or rows: both are right.
:::
"""

SCORES = """import torch

query = torch.tensor([1.0, -1.0], dtype=torch.float64)
keys = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
scores = keys @ query
claim("A01-03", scores=scores, total=scores.sum())"""

DIAL = """def frame(n):
    return heat_table(torch.eye(n).tolist())

explore(frame, title="Identity", n=[2, 3, 4])"""

SECOND = """(A02)=
## A02 · Normalised weights and summing the values（归一化权重与 Value 汇总）

The weights add up to one.
"""

WEIGHTS = """weights = torch.tensor([2.0, 1.0, 0.0, -1.0], dtype=torch.float64).softmax(0)
claim("A02-01", weights=weights)"""

FIGURE = """import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(2, 1))
axes.bar(range(4), weights)
plt.show()"""

SECOND_DIAL = """def bars(first):
    row = torch.tensor([first, 1.0]).softmax(0)
    return heat_table([[round(float(x), 2) for x in row]])

explore(bars, start={"first": 2}, first=[0, 1, 2])"""

EXERCISE = """```{exercise} Compute
:label: sample-%d

How many weights are there?
```

```{solution-start} sample-%d
:class: dropdown
```
"""

ANSWER = """print(len(weights) + %d)"""

IMPORTS = """from labcore import claims
from labcore.viz import explore, heat_table

claim = claims.claim"""


def cells(url):
    """Cells of the sample as (kind, source, metadata)."""
    alt = {"mystnb": {"image": {"alt": "Bars of four weights, the first the tallest"}}}
    parts = [
        ("markdown", TITLE, {}),
        ("code", setup_text(url), {"tags": ["remove-cell"]}),
        ("code", IMPORTS, {}),
        ("markdown", FIRST, {}),
        ("code", SCORES, {}),
        ("code", DIAL, {}),
        ("markdown", SECOND, {}),
        ("code", WEIGHTS, {}),
        ("code", FIGURE, alt),
        ("code", SECOND_DIAL, {}),
        ("markdown", "## Exercises", {}),
    ]
    for n in range(3):
        parts += [("markdown", EXERCISE % (n, n), {}), ("code", ANSWER % n, {})]
        parts += [("markdown", "```{solution-end}\n```", {})]
    return parts


def executed(path, url):
    """The path of the sample, executed and written in canonical form."""
    nb = nbformat.v4.new_notebook()
    for kind, source, metadata in cells(url):
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        nb.cells.append(make(source.rstrip("\n"), metadata=metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    path.write_text(run_notebooks.canonical(run_notebooks.execute(path, 60)), encoding="utf-8")
    return Path(path)


def sample_outline():
    """The two sections that the sample holds, each with the one dial it has."""
    pair = [copy.deepcopy(s) for s in outline() if s["section"] in ("A01", "A02")]
    for section in pair:
        section["dials"] = section["dials"][:1]
    return pair


def sample_ledger():
    """The four entries that the sample holds: two claims, a citation, and an erratum's claim."""
    picked = {name: copy.deepcopy(ledger()[name]) for name in ("A01-03", "A01-06", "A02-01")}
    picked["A01-02"] = {**copy.deepcopy(ledger()["A01-02"]), "decide": "cited"}
    return picked
