"""The check of sections that no outline lists, on headings that break it one by one."""

import types

import pytest
from checks import structure
from checks.notebook import headings_in

RIGHT = """# Title

(K03.1)=
## K03.1 · The law（规律）

(K03.2)=
## K03.2 · The tiles（行块）
"""


def faults(source):
    book = types.SimpleNamespace(name="k03_example", headings=headings_in(source, 0))
    return structure.own_sections(book)


def test_a_right_chapter_has_no_faults():
    assert faults(RIGHT) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(K03.2)=\n", "", "no label"),
        ("K03.2 ·", "K03.4 ·", "sections K03.1, K03.4"),
        ("K03.1 ·", "K02.1 ·", "sections K02.1"),
        ("（规律）", "", "then the Chinese"),
        ("The law（", "（", "English words"),
        ("## K03.2", "### K03.2", "depth 3"),
        ("K03.1 · ", "", "sections K03.2"),
    ],
)
def test_each_fault_is_told(old, new, words):
    assert any(words in fault for fault in faults(RIGHT.replace(old, new)))


def test_a_chapter_without_sections_is_a_fault():
    assert faults("# Title") != []
