"""Environments beside the book's own, and notebooks executed in them outside the repository."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXECUTOR = ["nbclient>=0.8", "nbformat>=5.7"]


def pinned(name):
    """The line `name==version` of requirements.txt."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(rf"^{name}==[\w.+]+", text, flags=re.M)[0]


def environment(folder, python, packages):
    """Path of the Python of a virtual environment with `packages`, torch first; reused when equal.

    The book's torch is installed on its own: a CPU build that is there already is then kept.
    """
    folder = Path(folder)
    inside = folder / "bin" / "python"
    wanted = hashlib.sha256("\n".join([python, *packages]).encode()).hexdigest()
    stamp = folder / ".packages"
    if inside.exists() and stamp.exists() and stamp.read_text() == wanted:
        return inside
    print(f"== environment: {folder.name}, torch first, then {', '.join(packages)}", flush=True)
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip(inside, "install", pinned("torch"))
    pip(inside, "install", *packages, pinned("torch"))
    stamp.write_text(wanted)
    return inside


def pip(python, *arguments):
    """Nothing; runs pip of that Python, quietly, and ends the program when it fails."""
    command = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    if subprocess.run(command).returncode:
        sys.exit(f"pip failed: {' '.join(arguments)}")


def versions(python, names):
    """Installed versions by name in that Python's environment."""
    code = "import sys; from importlib.metadata import version\n"
    code += "for name in sys.argv[1:]: print(version(name))"
    done = subprocess.run(
        [str(python), "-c", code, *names], capture_output=True, text=True, check=True
    )
    return dict(zip(names, done.stdout.split(), strict=True))


def copied(notebooks, folder):
    """Paths of copies of the notebooks in `folder`, which is emptied first."""
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    paths = []
    for path in map(Path, notebooks):
        target = folder / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        paths.append(target)
    return paths


def clean_environment():
    """This process's variables without what would let a kernel find the repository by accident."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
