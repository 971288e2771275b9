"""The shipped CJK font: every character of the book, in a small file, under its licence."""

import pytest

from labcore.viz import subset_font
from labcore.viz.style import FONT, FONT_NAME, register_font


def test_every_chinese_character_of_the_book_has_a_glyph():
    missing = subset_font.missing()
    assert missing == [], f"no glyph for {' '.join(missing)}: run python -m labcore.viz.subset_font"


def test_font_is_small_and_its_licence_lies_beside_it():
    assert FONT.stat().st_size < 120_000
    licence = (FONT.parent / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert FONT.name in licence


def test_font_carries_its_own_name():
    from matplotlib import ft2font

    assert ft2font.FT2Font(str(FONT)).family_name == FONT_NAME == register_font()


@pytest.mark.skipif(not subset_font.SOURCE.exists(), reason="fonts-noto-cjk is not installed")
def test_making_the_font_anew_gives_the_same_bytes(tmp_path, monkeypatch):
    pytest.importorskip("fontTools")
    monkeypatch.setattr(subset_font, "FONT", tmp_path / "made.otf")
    sizes = [subset_font.build(also="注意力") for _ in range(2)]
    first = (tmp_path / "made.otf").read_bytes()
    subset_font.build(also="注意力")
    assert sizes[0] == sizes[1] == len(first)
    assert (tmp_path / "made.otf").read_bytes() == first
    assert set("注意力A") <= subset_font.covered(tmp_path / "made.otf")


def test_characters_are_found_in_plain_and_in_escaped_text():
    assert subset_font.characters("a（头）b") == set("（头）")
    assert subset_font.characters(r'"\u5934 \u00e9"') == {"头"}
