"""The tool that sets the public address, on a copy: every derived place follows, nothing else."""

import shutil
import subprocess
import sys

import pytest
from checks import address, structure
from checks.notebook import Notebook

# Never in one piece in this file: the copy of it is searched for stray addresses, too.
SLUG = "/".join(["somebody-else", "our-book"])
NEW = f"https://github.com/{SLUG}"


@pytest.fixture
def moved(tmp_path, root, notebooks):
    """A copy of the repository's text files after its address was changed."""
    for name, _ in address.texts(root):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target)
    tool = str(root / "tools" / "set_repository.py")
    command = [sys.executable, tool, NEW, "--root", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path


def test_every_place_follows(moved, root, notebooks):
    old = "/".join(address.slug(address.repository(root)))
    assert address.repository(moved) == NEW
    assert address.addresses(moved) == [] and address.launches(moved) == []
    assert [name for name, text in address.texts(moved) if old in text] == []
    for path in notebooks:
        book = Notebook(moved / path.relative_to(root))
        assert structure.setup_cell(book, NEW) == []


def test_notebooks_stay_canonical(moved, root, notebooks):
    import run_notebooks

    for path in notebooks:
        book = Notebook(moved / path.relative_to(root))
        assert run_notebooks.canonical(book.nb) == book.text


def test_a_forgotten_place_is_caught(moved):
    other = NEW.replace("somebody-else", "another")
    (moved / "README.md").write_text(f"pip install git+{other}\n")
    assert "another/our-book" in address.addresses(moved)[0]
    link = f"https://colab.research.google.com/github/{SLUG}/blob/main/notebooks/gone.ipynb"
    (moved / "README.md").write_text(f"[open]({link})\n")
    assert "gone.ipynb" in address.launches(moved)[0]


@pytest.mark.parametrize(
    "url", ["", "github.com/a/b", "https://example.org/a/b", "https://github.com/a"]
)
def test_a_bad_address_is_refused(root, url, tmp_path):
    tool = str(root / "tools" / "set_repository.py")
    done = subprocess.run([sys.executable, tool, url], capture_output=True, text=True)
    assert done.returncode and "allowed: https://github.com/NAME/REPOSITORY" in done.stderr
