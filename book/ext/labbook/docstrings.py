"""House docstrings on API pages: plain words with `code` in single backticks, no markup else."""

import re

CODE = re.compile(r"(`+)(.+?)\1")
SPECIAL = re.compile(r"([*|\\])")


def setup(app):
    app.connect("autodoc-process-docstring", plain, priority=300)


def plain(app, what, name, thing, options, lines):
    """Rewrite the lines in place so that reStructuredText reads them as words and code."""
    example = False
    for index, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            example = True
        elif not line.strip():
            example = False
        if not example:
            lines[index] = escaped(line)


def escaped(line):
    """One line with code as literals and everything else taken literally.

    >>> escaped("`q` times k_ and |x|")
    '``q`` times k\\\\_ and \\\\|x\\\\|'
    """
    parts, last = [], 0
    for found in CODE.finditer(line):
        parts += [words(line[last : found.start()]), f"``{found[2]}``"]
        last = found.end()
    return "".join([*parts, words(line[last:])])


def words(text):
    text = SPECIAL.sub(r"\\\1", text)
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text)
