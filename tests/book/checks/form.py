"""The form of a notebook: what nbval does not see, and what the budget allows.

nbval passes a cell without a count, never compares pictures and widget state, and cannot judge
prose. Every function takes a `Notebook` and returns its faults, a sentence each.
"""

import ast
import io
import json
import re
import tokenize

import run_notebooks
from bs4 import BeautifulSoup

from checks.notebook import called, calls, plain_python, tree

MOST_CELLS, MOST_LINES, MOST_BYTES, MOST_DECIMALS = 60, 25, 1_200_000, 4
PICTURES = ("image/png", "image/jpeg", "image/svg+xml")
PRINTS = ("claim", "print", "display")
RETURNS_A_VIEW = ("show", "show_source", "explore", "describe", "heat_table", "table")
FORBIDDEN = {
    "interact",
    "interact_manual",
    "interactive",
    "interactive_output",
    "Output",
    "clear_output",
    "display_id",
    "update_display",
    "Play",
    "Stack",
}
# Tags and comments that switch nbval off; a notebook that needs one is listed here by name.
UNCHECKED = ("nbval-ignore-output", "nbval-skip", "nbval-raises-exception", "raises-exception")
ALLOWED_UNCHECKED = ()
LONG_NUMBER = re.compile(rf"(?<![\w.])-?\d+\.\d{{{MOST_DECIMALS + 1},}}|\d\.\d+e-\d+")


def counts(book):
    """Faults of cells that were not executed, or not in order."""
    return [
        f"{book.name}, cell [{number}]: count {cell.execution_count}, not {number}"
        for number, cell in book.code
        if cell.execution_count != number
    ]


def outputs(book):
    """Faults of cells that show something but have no output, that warn, or that fail."""
    faults = []
    for number, cell in book.code:
        where = f"{book.name}, cell [{number}]"
        if shows(cell.source) and not cell.outputs:
            faults.append(f"{where}: shows something, but no output is stored")
        for out in cell.outputs:
            if out.output_type == "error":
                faults.append(f"{where}: an error is stored: {out.ename}")
            if out.output_type == "stream" and out.name == "stderr":
                faults.append(f"{where}: text on stderr: {out.text.strip()[:60]!r}")
    return faults


def shows(source):
    """Whether a cell must have an output: a call that prints, or an expression at its end.

    >>> shows("x = 3\\nx"), shows("def f():\\n    print(1)"), shows("items.append(3)")
    (True, False, False)
    """
    body = tree(source).body
    if any(called(node) in PRINTS for statement in body for node in _run(statement)):
        return True
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Constant):
        return False
    return not isinstance(last.value, ast.Call) or called(last.value) in RETURNS_A_VIEW


def _run(statement):
    """Calls that a statement makes when it runs: not those inside functions it defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(statement, ast.Call):
        yield statement
    for child in ast.iter_child_nodes(statement):
        yield from _run(child)


def semicolons(book):
    """Faults of cells that end in `;`: IPython would not show what nbval then misses."""
    return [
        f"{book.name}, cell [{number}]: ends in a semicolon"
        for number, cell in book.code
        if _last_token(cell.source) == ";"
    ]


def _last_token(source):
    idle = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(plain_python(source)).readline))
    except (tokenize.TokenError, SyntaxError):
        return source.rstrip()[-1:]
    words = [token.string for token in tokens if token.type not in idle]
    return words[-1] if words else ""


def alt_texts(book):
    """Faults of pictures without words for readers who do not see them."""
    faults = []
    for number, cell in book.code:
        where = f"{book.name}, cell [{number}]"
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        pictures = [k for out in cell.outputs for k in out.get("data", {}) if k in PICTURES]
        if pictures and len(alt.split()) < 3:
            faults.append(f"{where}: {pictures[0]} without an alt text (mystnb.image.alt)")
        for html in html_of(cell):
            faults += [f"{where}: {fault}" for fault in _unnamed(html)]
    for cell in book.cells:
        if cell.cell_type == "markdown":
            bare = re.findall(r"!\[\s*\]\([^)]*\)", cell.source)
            faults += [f"{book.name}: picture without an alt text: {mark}" for mark in bare]
            faults += [f"{book.name}: {fault}" for fault in _unnamed(cell.source)]
    return faults


def _unnamed(html):
    """Pictures and drawings of an HTML text that have no name."""
    soup = BeautifulSoup(html, "html.parser")
    for image in soup.find_all("img"):
        if not (image.get("alt") or "").strip():
            yield f"<img> without an alt text: {image.get('src', '')[:40]}"
    for drawing in soup.find_all("svg"):
        named = drawing.get("aria-label") or drawing.get("aria-hidden") or drawing.find("title")
        if not named:
            yield "<svg> without aria-label or <title>"


def html_of(cell):
    """HTML outputs of a cell, with the frames of its explorers beside them."""
    found = []
    for out in cell.outputs:
        html = out.get("data", {}).get("text/html")
        if html:
            found += [html, *frames_of(html)]
    return found


def frames_of(html):
    """Frames of the explorers in an HTML text, as Python wrote them."""
    soup = BeautifulSoup(html, "html.parser")
    stores = soup.select('.labx-player script[type="application/json"]')
    return [frame for store in stores for frame in json.loads(store.string)["frames"]]


def unchecked(book):
    """Faults of cells whose output nbval would not compare."""
    marks = [tag.replace("-", "_").upper() for tag in UNCHECKED] + ["PYTEST_VALIDATE_IGNORE_OUTPUT"]
    faults = []
    for number, cell in book.code:
        used = [tag for tag in cell.metadata.get("tags", ()) if tag in UNCHECKED]
        lines = [line.strip().lstrip("# ") for line in cell.source.splitlines()]
        used += [line for line in lines if line in marks]
        if used and book.name not in ALLOWED_UNCHECKED:
            faults.append(f"{book.name}, cell [{number}]: {used[0]} switches the comparison off")
    return faults


def canonical(book):
    """Faults of a file that is not in its one form, or that carries widget state."""
    faults = []
    if "widgets" in book.nb.metadata:
        faults.append(f"{book.name}: widget state in the metadata")
    if run_notebooks.canonical(book.nb) != book.text:
        faults.append(f"{book.name}: not in canonical form: run make notebook NB={book.path.name}")
    return faults


def forbidden(book):
    """Faults of widgets and display calls that break on a page, in nbval or in Colab."""
    faults = []
    for number, cell in book.code:
        for node in ast.walk(tree(cell.source)):
            words = [getattr(node, "attr", None), getattr(node, "id", None)]
            words += [node.arg] if isinstance(node, ast.keyword) else []
            words += [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else []
            faults += [
                f"{book.name}, cell [{number}]: {word} does not work on every page"
                for word in words
                if word in FORBIDDEN
            ]
    return faults


def sizes(book):
    """Faults of notebooks and cells that are too long."""
    faults = []
    if len(book.code) > MOST_CELLS:
        faults.append(f"{book.name}: {len(book.code)} code cells; at most {MOST_CELLS}")
    size = len(book.text.encode())
    if size > MOST_BYTES:
        faults.append(f"{book.name}: {size / 1e6:.2f} MB; at most {MOST_BYTES / 1e6} MB")
    for number, cell in book.code:
        lines = len(cell.source.splitlines())
        if lines > MOST_LINES:
            faults.append(f"{book.name}, cell [{number}]: {lines} lines; at most {MOST_LINES}")
    return faults


def decimals(book):
    """Faults of printed numbers that another processor would print differently."""
    faults = []
    for number, cell in book.code:
        for text in printed(cell):
            found = LONG_NUMBER.search(text)
            if found:
                told = f"{found.group()} is printed; at most {MOST_DECIMALS} decimals, no residuals"
                faults.append(f"{book.name}, cell [{number}]: {told}")
    return faults


def printed(cell):
    """Texts that a reader sees in a cell's outputs: streams, results, tables and frames."""
    texts = []
    for out in cell.outputs:
        data = out.get("data", {})
        texts += [out.get("text", ""), data.get("text/plain", "")]
    for html in html_of(cell):
        soup = BeautifulSoup(html, "html.parser")
        for hidden in soup(["script", "style"]):
            hidden.decompose()
        texts.append(soup.get_text(" "))
    return texts


def pictures_in_frames(book):
    """Faults of explorers whose frames hold photographs or files instead of tables and lines."""
    faults = []
    for number, cell in book.code:
        for html in html_of(cell):
            if re.search(r"<img\b|data:image/|\.png\b", html) and "labx" in html:
                faults.append(f"{book.name}, cell [{number}]: a picture inside an explorer")
    return faults


def explorers(book):
    """Faults of `explore` calls whose output is no page face, or more than 40 frames."""
    faults = []
    for number, cell in book.code:
        made = len(calls(cell.source, "explore"))
        html = "".join(out.get("data", {}).get("text/html", "") for out in cell.outputs)
        shown = html.count('class="labx labx-player"')
        where = f"{book.name}, cell [{number}]"
        if made and shown < made:
            faults.append(f"{where}: {made} explore() calls, {shown} explorers shown")
        if len(frames_of(html)) > 40 * max(shown, 1):
            faults.append(f"{where}: more than 40 frames in an explorer")
    return faults


ALL = (
    counts, outputs, semicolons, alt_texts, unchecked, canonical, forbidden, sizes, decimals,
    pictures_in_frames, explorers,
)  # fmt: skip
