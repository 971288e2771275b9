"""Makes the small CJK font of the figures: only the glyphs that the book's own texts use.

`python -m labcore.viz.subset_font` rewrites the file in `fonts/` (needs fontTools and the Debian
package fonts-noto-cjk); `--check` only says which characters are missing. The font is renamed: it
is no longer the Noto font, and a system that has that one keeps using it.
"""

import argparse
import pathlib
import re

from labcore.viz.style import FONT, FONT_NAME

SOURCE = pathlib.Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
FACE = "Noto Sans CJK SC"
ROOT = pathlib.Path(__file__).parents[2]
# Where figures can take Chinese words from. A notebook that is new brings its characters along.
TEXTS = ("labcore/shapes.py", "notebooks/**/*.ipynb", "book/ledger/*.yml", "book/**/*.md")
CHINESE = re.compile(r"[\u2e80-\u2fdf\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")
# ASCII comes along so that a word mixed from both scripts can be set in this font alone.
ALWAYS = "".join(chr(code) for code in range(0x20, 0x7F))


def used(root=ROOT):
    """Set of the Chinese characters and full-width signs in the book's texts.

    >>> "头" in used()
    True
    """
    found = set()
    for pattern in TEXTS:
        for path in sorted(root.glob(pattern)):
            found |= characters(path.read_text(encoding="utf-8"))
    return found


def characters(text):
    r"""Set of the characters of a text that need this font, also where JSON escapes them.

    >>> sorted(characters("heads（头）"))
    ['头', '（', '）']
    >>> characters(r"\u5934")
    {'头'}
    """
    escaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m.group(1), 16)), text)
    return set(CHINESE.findall(escaped))


def covered(font=FONT):
    """Set of the characters that the font file has a glyph for."""
    from matplotlib import ft2font

    return {chr(code) for code in ft2font.FT2Font(str(font)).get_charmap()}


def missing(root=ROOT):
    """Characters of the book's texts, sorted, that the shipped font has no glyph for."""
    return sorted(used(root) - covered())


def build(root=ROOT, keep=True, also=""):
    """Size in bytes of the font file it writes, with the glyphs of all texts of the book.

    With `keep` the glyphs that the file already has stay, so that two people who write at the same
    time do not take each other's glyphs away. `also` is a text that the book does not hold yet.
    """
    from fontTools import subset
    from fontTools.ttLib import TTCollection

    kept = covered() if keep and FONT.exists() else set()
    wanted = sorted(used(root) | characters(also) | set(ALWAYS) | kept)
    faces = TTCollection(str(SOURCE)).fonts
    font = next(face for face in faces if face["name"].getDebugName(1) == FACE)
    options = subset.Options(layout_features=[], hinting=False, desubroutinize=True)
    options.name_IDs, options.notdef_outline = [0, 1, 2, 4, 6, 13, 14], True
    options.drop_tables += ["vhea", "vmtx", "VORG", "BASE", "GPOS", "GSUB", "DSIG"]
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(wanted))
    cutter.subset(font)
    rename(font)
    # The time of making would be the only thing in which two runs differ.
    font.recalcTimestamp = False
    font["head"].created = font["head"].modified = 0
    FONT.parent.mkdir(exist_ok=True)
    font.save(str(FONT))
    return FONT.stat().st_size


def rename(font):
    """None; gives the font the name that the book uses for it."""
    new = {1: FONT_NAME, 4: FONT_NAME, 6: FONT_NAME.replace(" ", "") + "-Regular"}
    table = font["name"]
    table.names = [row for row in table.names if (row.platformID, row.langID) == (3, 0x409)]
    for row in table.names:
        if row.nameID in new:
            row.string = new[row.nameID]
    cff = font["CFF "].cff
    cff.fontNames = [new[6]]
    for name, value in (("FullName", FONT_NAME), ("FamilyName", FONT_NAME)):
        setattr(cff.topDictIndex[0], name, value)


def main():
    """None; rewrites the font, or with `--check` lists what it lacks and fails if it does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    parser.add_argument("--fresh", action="store_true", help="drop glyphs that no text uses")
    parser.add_argument("--also", nargs="*", default=[], type=pathlib.Path, help="more texts")
    arguments = parser.parse_args()
    if arguments.check:
        raise SystemExit(f"missing: {' '.join(missing())}" if missing() else 0)
    also = "".join(path.read_text(encoding="utf-8") for path in arguments.also)
    size = build(keep=not arguments.fresh, also=also)
    print(f"{FONT.name}: {len(covered())} characters, {size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
