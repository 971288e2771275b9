"""Views that a cell makes and nobody sees.

`show(…)`, `show_source(…)`, `explore(…)` and the figures of `labcore.viz` only return an object.
A notebook displays a cell's last expression, and no other: a view that stands in a line of its own
before it, inside a loop, or in a tuple is made and thrown away, and nbval sees nothing missing.
"""

import ast

from checks.notebook import called, tree
from labcore import viz

# Functions of labcore.viz that return no view: one draws into axes, one sets the style.
NO_VIEWS = {"attention_lines", "theme"}
VIEWS = {name for name in viz.__all__ if name[0].islower()} - NO_VIEWS
COLLECTIONS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.GeneratorExp)


def dropped_views(book):
    """Faults of calls whose view is neither displayed nor used."""
    return [
        f"{book.name}, cell [{number}]: {name}(…) is not the last expression: use display(…)"
        for number, cell in book.code
        for name in dropped(cell.source)
    ]


def dropped(source):
    """Names of the view-making calls of a cell whose result is lost.

    >>> dropped("show(a)\\nshow(b)"), dropped("display(show(a))\\nshow(b)")
    (['show'], [])
    >>> dropped("for x in y:\\n    show_source(x)"), dropped("show(a), show(b)")
    (['show_source'], ['show', 'show'])
    """
    found, module = [], tree(source)
    makers = VIEWS | _own_makers(module)
    shown = module.body[-1] if module.body else None
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and (
            node is not shown or isinstance(node.value, COLLECTIONS)
        ):
            found += [called(call) for call in _results(node.value) if called(call) in makers]
    return found


def _own_makers(module):
    """Names of the cell's own functions that return a view."""
    return {
        function.name
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and any(called(call) in VIEWS for call in _results(node.value))
    }


def _results(node):
    """Calls whose result is that of an expression, or a part of it: not their arguments."""
    if isinstance(node, ast.Call):
        return [node]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _results(node.elt)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BoolOp)):
        return [call for part in ast.iter_child_nodes(node) for call in _results(part)]
    if isinstance(node, ast.IfExp):
        return _results(node.body) + _results(node.orelse)
    return []
