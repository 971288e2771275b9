"""The repository's address: one place says it, everything else derives from it."""

import re
import subprocess
from pathlib import Path

import yaml

TEXT = {".md", ".yml", ".yaml", ".toml", ".cff", ".ipynb", ".py", ".cfg", ".ini", ".html", ".js"}
TEXT |= {".css", ".bib", ".txt", ".rst", ".json"}
HOSTS = (
    r"(?:github\.com|raw\.githubusercontent\.com|img\.shields\.io/\w+/\w+/status"
    r"|colab\.research\.google\.com/github|mybinder\.org/v2/gh)"
)


def repository(root):
    """`repository.url` of the book's configuration, without a slash at its end."""
    config = yaml.safe_load((Path(root) / "_config.yml").read_text(encoding="utf-8"))
    return config["repository"]["url"].rstrip("/").removesuffix(".git")


def slug(url):
    """Owner and name in a repository's address.

    >>> slug("https://github.com/somebody/a-book")
    ('somebody', 'a-book')
    """
    owner, name = url.rstrip("/").removesuffix(".git").split("/")[-2:]
    return owner, name


def tracked(root):
    """Files in git, as paths relative to `root`; every file where `root` is no repository."""
    root = Path(root)
    if (root / ".git").exists():
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
        )
        return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file()]


def texts(root):
    """Tracked text files with their contents; vendored scripts are left out."""
    for name in tracked(root):
        path = Path(root) / name
        if (path.suffix in TEXT or path.name == "Makefile") and "vendor/" not in name:
            yield name, path.read_text(encoding="utf-8")


def addresses(root):
    """Faults of addresses that put our repository under another owner than the configuration."""
    owner, name = slug(repository(root))
    end = r"(?=\.git\b|[^\w.-]|$)"
    hosted = rf"{HOSTS}/([\w.-]+)/{re.escape(name)}{end}"
    pages_of = rf"([\w-]+)\.github\.io/{re.escape(name)}{end}"
    ours = re.compile(f"{hosted}|{pages_of}")
    faults = []
    for file, text in texts(root):
        for number, line in enumerate(text.splitlines(), start=1):
            for host, pages in ours.findall(line):
                if (host or pages).lower() != owner.lower():
                    faults.append(f"{file}:{number}: {host or pages}/{name}, not {owner}/{name}")
    return faults


def launches(root):
    """Faults of links that open a notebook elsewhere but name no file of this repository."""
    faults, files = [], set(tracked(root))
    owner, name = slug(repository(root))
    colab = rf"colab\.research\.google\.com/github/{owner}/{name}/blob/\w+/([^\s\"')>\]]+)"
    binder = (
        rf"mybinder\.org/v2/gh/{owner}/{name}/\w+\?[^\s\"')>\]]*(?:tree/|path=)([^\s\"')>\]&]+)"
    )
    blob = rf"github\.com/{owner}/{name}/(?:blob|edit|raw)/\w+/([^\s\"')>\]#]+)"
    for file, text in texts(root):
        for pattern in (colab, binder, blob):
            for target in re.findall(pattern, text):
                if target.removeprefix("tree/") not in files:
                    faults.append(f"{file}: a launch link opens {target}, which is not in git")
    return faults
