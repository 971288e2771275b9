"""Source on the page: complete, without docstrings, and short."""

import ast

import pytest

from labcore import shapes
from labcore.viz import explore, show_source


def decorate(function):
    return function


@decorate
def documented(x, *, y="#: 3"):
    """Doc of one line."""

    # a comment that stays
    def inner():
        """Inner doc."""
        return x

    return inner() if y else '''"""not a docstring"""'''


def only_doc():
    """Nothing but words."""


class Holder:
    """A class.

    With two paragraphs.
    """

    size = 3

    def method(self):
        """Size."""
        return self.size


# fmt: off
def one_line(x): return x
# fmt: on


def test_docstrings_go_and_everything_else_stays():
    text = repr(show_source(documented))
    assert text.splitlines() == [
        "@decorate",
        'def documented(x, *, y="#: 3"):',
        "    # a comment that stays",
        "    def inner():",
        "        return x",
        "",
        "    return inner() if y else '''\"\"\"not a docstring\"\"\"'''",
    ]


def test_source_behaves_as_the_function_does():
    names = {}
    exec(repr(show_source(documented)), {"decorate": decorate}, names)
    assert names["documented"](5) == 5


def test_body_that_is_only_a_docstring_stays():
    assert "Nothing but words." in repr(show_source(only_doc))


def test_classes_and_methods():
    assert repr(show_source(Holder)).splitlines() == [
        "class Holder:",
        "    size = 3",
        "",
        "    def method(self):",
        "        return self.size",
    ]
    assert repr(show_source(Holder().method)) == "def method(self):\n    return self.size"


def test_docstrings_can_be_kept():
    assert "Doc of one line." in repr(show_source(documented, strip_docstring=False))


def test_signature_only():
    shown = repr(show_source(documented, signature_only=True))
    assert shown == '@decorate\ndef documented(x, *, y="#: 3"):\n    ...'
    ast.parse(repr(show_source(explore, signature_only=True)))
    assert repr(show_source(one_line, signature_only=True)) == "def one_line(x): return x"


def test_markdown_is_one_block_of_python():
    shown = show_source(shapes.require)
    assert shown._repr_markdown_() == f"```python\n{shown!r}\n```"


@pytest.mark.parametrize("wrong", [3, "text", None, len, int, shapes])
def test_what_has_no_python_source_is_refused(wrong):
    with pytest.raises(TypeError, match="^obj: got .*; allowed: a function, method or class"):
        show_source(wrong)


def test_too_long_a_function_is_refused():
    with pytest.raises(ValueError, match="^obj: got documented of 7 lines; allowed: at most 5"):
        show_source(documented, limit=5)
