#!/usr/bin/env python3
"""Say what the environment computes with; exit 1 when it is not the one the book is verified in.

An installer that resolves torch a second time may replace it, and torchvision drags another one in.
"""

import importlib.metadata
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pins():
    """Exact pins of requirements.txt that hold on this system, by name."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if "==" in line and ";" not in line]
    return dict(line.strip().split("==") for line in plain)


def installed(name):
    """Version of a package without its local part (`+cpu`), or None."""
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    wanted = pins()
    wrong = [f"{n}: {installed(n)}, not {v}" for n, v in wanted.items() if installed(n) != v]
    if installed("torchvision"):
        wrong.append("torchvision: installed, but nothing here needs it")
    if wrong:
        sys.exit("the environment is not the pinned one: " + "; ".join(wrong))
    torch = importlib.metadata.version("torch")
    print(f"Python {sys.version.split()[0]}, torch {torch}, {len(wanted)} pins hold")


if __name__ == "__main__":
    main()
