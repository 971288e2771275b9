"""The source of a function of the package, on the page: shown, never retyped."""

import ast
import inspect
import textwrap

from labcore.shapes import require

LONGEST = 25  # lines that a reader takes in at once


class Source:
    """Python source that a cell ends in; made by `show_source`."""

    def __init__(self, text):
        self.text = text

    def _repr_markdown_(self):
        return f"```python\n{self.text}\n```"

    def __repr__(self):
        return self.text


def show_source(obj, *, strip_docstring=True, signature_only=False, limit=LONGEST):
    """`Source` of a function, method or class of the package, without docstrings.

    With `signature_only` the body is left out. More than `limit` lines are an error: show a part
    of it, or a smaller function. Objects without Python source are errors too.

    >>> from labcore.shapes import require
    >>> show_source(require)
    def require(ok, argument, given, allowed, error=ValueError):
        if not ok:
            raise error(f"{argument}: got {given}; allowed: {allowed}")
    """
    obj = inspect.unwrap(obj) if callable(obj) else obj
    kinds = (inspect.isfunction, inspect.ismethod, inspect.isclass)
    told = f"{type(obj).__name__} {obj!r}"[:60]
    allowed = "a function, method or class written in Python"
    require(any(kind(obj) for kind in kinds), "obj", told, allowed, error=TypeError)
    try:
        text = textwrap.dedent(inspect.getsource(obj)).rstrip()
    except (OSError, TypeError):
        require(False, "obj", given=told, allowed=allowed, error=TypeError)
    if signature_only:
        text = _signature(text)
    elif strip_docstring:
        text = _without_docstrings(text)
    count = len(text.splitlines())
    name = getattr(obj, "__qualname__", "obj")
    require(count <= limit, "obj", f"{name} of {count} lines", f"at most {limit} lines")
    return Source(text)


def _without_docstrings(text):
    """Source without the docstrings of the object and of what it holds."""
    lines = text.splitlines()
    drop = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if ast.get_docstring(node, clean=False) is None or len(node.body) == 1:
            continue  # a body that is only a docstring stays: without it nothing would be left
        first, last = node.body[0].lineno, node.body[0].end_lineno
        drop |= set(range(first, last + 1))
        if last < len(lines) and not lines[last].strip():
            drop.add(last + 1)
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in drop)


def _signature(text):
    """Decorators and `def` or `class` line, with a body of three dots."""
    node = ast.parse(text).body[0]
    if node.body[0].lineno == node.lineno:  # all on one line: there is no body to leave out
        return text
    lines = text.splitlines()[: node.body[0].lineno - 1]
    while lines and not lines[-1].rstrip().endswith(":"):  # comments above the body
        lines.pop()
    return "\n".join([*lines, "    ..."])
