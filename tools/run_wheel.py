#!/usr/bin/env python3
"""Build the wheel, install it alone with the lowest versions it allows, run the notebooks there.

Everything a notebook needs must travel inside the wheel: ledger, fonts, recorded data. The copies
of the notebooks lie outside the repository. torch alone is the book's own version: its older
builds are large, and one CPU build is there already.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import lanes

# Code, ledger, fonts and recorded data of all chapters: a second's download on a hosted machine.
MOST_BYTES = 1_000_000
# Newer kernels refuse the old IPython, and setuptools was once part of every environment.
BESIDE = ["ipykernel<7", "setuptools<81"]
RUN = """
import sys, nbformat, labcore
from nbclient import NotebookClient
assert "site-packages" in labcore.__file__, f"not the installed wheel: {labcore.__file__}"
for path in sys.argv[1:]:
    nb = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": path.rpartition("/")[0]}}
    NotebookClient(nb, timeout=600, kernel_name="python3", resources=folder).execute()
    print(path.rpartition("/")[2] + ": executed", flush=True)
"""


def lowest():
    """The package's dependencies, each at the lowest version that pyproject.toml allows."""
    with open(lanes.ROOT / "pyproject.toml", "rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    parts = [line.partition(">=") for line in wanted]
    return [f"{name}=={rest.split(',')[0]}.*" for name, _, rest in parts if name != "torch"]


def wheel(folder):
    """Path of the wheel, built without its dependencies; ends the program when it is too large."""
    lanes.pip(sys.executable, "wheel", "--no-deps", "-w", str(folder), str(lanes.ROOT))
    path = next(Path(folder).glob("*.whl"))
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e3:.0f} kB", flush=True)
    if size > MOST_BYTES:
        sys.exit(f"the wheel has {size / 1e3:.0f} kB; at most {MOST_BYTES / 1e3:.0f} kB")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable, help="makes the environment")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = wheel(folder)
        packages = lowest() + BESIDE + lanes.EXECUTOR
        python = lanes.environment(lanes.ROOT / ".venv-wheel", args.python, packages)
        lanes.pip(python, "install", "--force-reinstall", "--no-deps", str(built))
        lanes.pip(python, "check")
        paths = lanes.copied(args.notebooks, Path(folder) / "notebooks")
        command = [str(python), "-c", RUN, *map(str, paths)]
        if subprocess.run(command, env=lanes.clean_environment(), cwd=folder).returncode:
            sys.exit("a notebook does not run from the wheel")


if __name__ == "__main__":
    main()
