#!/usr/bin/env python3
"""Set the public address of the repository everywhere it is derived from `_config.yml`.

python tools/set_repository.py https://github.com/NAME/REPOSITORY
python tools/set_repository.py URL --root FOLDER    work in another copy
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import run_notebooks
import yaml

ENDINGS = {".md", ".yml", ".yaml", ".toml", ".cff", ".ipynb", ".py", ".html", ".js", ".txt"}
SHAPE = re.compile(r"https://github\.com/([\w-]+)/([\w.-]+?)(?:\.git)?/?$")


def slug(url):
    """Owner and name of a repository's address, or an end of the program with a sentence."""
    match = SHAPE.match(url)
    if not match:
        sys.exit(f"URL: got {url!r}; allowed: https://github.com/NAME/REPOSITORY")
    return match[1], match[2]


def replaced(text, old, new):
    """`text` with every address of the old repository, and of its pages, made the new one's."""
    (old_owner, old_name), (owner, name) = old, new
    end = r"(?![\w-])"
    text = re.sub(rf"\b{re.escape(old_owner)}/{re.escape(old_name)}{end}", f"{owner}/{name}", text)
    pages = rf"\b{re.escape(old_owner)}\.github\.io/{re.escape(old_name)}{end}"
    return re.sub(pages, f"{owner}.github.io/{name}", text, flags=re.I)


def files(root):
    """Text files in git below `root`, or all of them where it is no repository."""
    if (root / ".git").exists():
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
        )
        paths = [root / name for name in done.stdout.split("\0") if name]
    else:
        paths = sorted(root.rglob("*"))
    kept = [p for p in paths if p.suffix in ENDINGS or p.name == "Makefile"]
    return [p for p in kept if p.is_file() and "vendor" not in p.parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    new = slug(args.url)
    config = yaml.safe_load((args.root / "_config.yml").read_text(encoding="utf-8"))
    old = slug(config["repository"]["url"])
    changed = 0
    for path in files(args.root):
        before = path.read_text(encoding="utf-8")
        after = replaced(before, old, new)
        if after != before:
            if path.suffix == ".ipynb":  # cell ids follow the set-up cell's text
                after = run_notebooks.canonical(nbformat.reads(after, as_version=4))
            path.write_text(after, encoding="utf-8")
            changed += 1
            print(path.relative_to(args.root))
    if changed:
        print(f"{changed} files changed")
    else:
        print("nothing to change")


if __name__ == "__main__":
    main()
