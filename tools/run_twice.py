#!/usr/bin/env python3
"""Execute notebooks again, in another folder, and compare every byte with what is stored.

nbval compares texts; this compares pictures too. Where a byte differs, a third execution in yet
another folder tells what is unstable (it differs from itself) from what was stored elsewhere.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import lanes
import run_notebooks


def executed(path, folder):
    """Canonical text of the notebook after an execution in `folder`."""
    copy = lanes.copied([path], folder)[0]
    return run_notebooks.canonical(run_notebooks.execute(copy, 300))


def differing(before, after):
    """Counts of the code cells whose outputs differ between two notebooks' texts."""
    pairs = zip(json.loads(before)["cells"], json.loads(after)["cells"], strict=True)
    return [a.get("execution_count") for a, b in pairs if a != b]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    args = parser.parse_args()
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for path in args.notebooks:
            stored = path.read_text(encoding="utf-8")
            second = executed(path, Path(folder) / "second")
            if second == stored:
                print(f"{path.name}: the same {len(stored.encode())} bytes", flush=True)
                continue
            third = executed(path, Path(folder) / "a third folder")
            if third != second:
                told = f"not stable, cells {differing(second, third)}"
            else:
                told = f"stable, but not what is stored, cells {differing(stored, second)}"
            print(f"{path.name}: {told}", flush=True)
            faults.append(path.name)
    if faults:
        sys.exit(f"differ: {', '.join(faults)}")


if __name__ == "__main__":
    main()
