"""The program of a recorded file: what a model said once, kept beside the module that shows it."""

import argparse
import json
import pathlib

from labcore.models.pretrained import available, install_line


def entries(file):
    """The entries of a recorded file, a list."""
    return json.loads(file.read_text(encoding="utf-8"))["entries"]


def record_program(program, weights, file, record, arguments=None, *, opened=None):
    """0 when `file` was written, or with --check is up to date; 1 when it is not.

    `record()` computes what the file must say from the installed `weights`, a name of
    `pretrained.SOURCES`. Two contents are compared by `opened(content)`, if that is given.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=record.__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--to", type=pathlib.Path, default=file, help="the file (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    if not available(weights):
        parser.error(f"needs the weights; run: {install_line(weights)}")
    found = record()
    if chosen.check:
        if not chosen.to.is_file():
            return 1
        pair = [found, json.loads(chosen.to.read_text(encoding="utf-8"))]
        mine, kept = map(opened, pair) if opened else pair
        return int(mine != kept)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    chosen.to.write_text(text + "\n", encoding="utf-8")
    return 0
