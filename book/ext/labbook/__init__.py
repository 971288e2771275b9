"""The book's own Sphinx extension: pages that are generated from data while the book builds.

Each directive reads the ledger, the notebooks and the measured files at build time, so no page
that lists claims, corrections or measurements can fall behind them.
"""

from labbook import (
    address,
    anchors,
    api,
    claims,
    docstrings,
    errata,
    forward,
    links,
    measured,
    notation,
    search,
    speed,
    status,
)

PARTS = (address, anchors, api, claims, docstrings, errata, forward, links)
PARTS += (measured, notation, search, speed, status)


def setup(app):
    for part in PARTS:
        part.setup(app)
    app.connect("env-get-outdated", generated_pages)
    app.connect("env-updated", citing_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def generated_pages(app, env, added, changed, removed):
    """Pages with a directive of ours or the list of sources, which are read again at each build."""
    lists = {key.docname for key in env.get_domain("cite").bibliographies}
    names = {*getattr(env, "labbook_generated", ()), *lists}
    return [name for name in sorted(names) if name in env.found_docs]


def citing_pages(app, env):
    """Pages that cite, written again: the places in the list move when another page cites more."""
    return sorted({ref.docname for ref in env.get_domain("cite").citation_refs})
