#!/usr/bin/env python3
"""Execute notebooks and write them in canonical form, so that a second run changes no byte.

python tools/run_notebooks.py notebooks/a_transformer/a01_self_attention.ipynb …
python tools/run_notebooks.py --form-only NB …    rewrite without executing
python tools/run_notebooks.py --check NB …        exit 1 when a file is not in canonical form
"""

import argparse
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_METADATA = ("tags", "mystnb")
# The instruction sets that stored outputs are computed with; rounding carries them elsewhere.
ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


def digest(text):
    return hashlib.sha1(text.encode()).hexdigest()[:8]


def merged(outputs):
    """Outputs with neighbouring chunks of one stream joined: how they arrive is chance."""
    kept = []
    for out in outputs:
        last = kept[-1] if kept else None
        streams = last and out.output_type == last.output_type == "stream"
        if streams and out.name == last.name:
            last.text += out.text
        else:
            kept.append(out)
    return kept


def canonical(notebook):
    """The one text of a notebook: stable ids, counts 1..n, no widget state, minimal metadata."""
    nb = nbformat.from_dict(json.loads(json.dumps(notebook)))
    seen, models, count = {}, {}, 0
    book_key = digest("".join(cell.source for cell in nb.cells))
    for cell in nb.cells:
        key = digest(f"{cell.cell_type}\n{cell.source}")
        seen[key] = seen.get(key, 0) + 1
        cell.id = key if seen[key] == 1 else f"{key}-{seen[key]}"
        cell.metadata = {k: cell.metadata[k] for k in KEPT_METADATA if cell.metadata.get(k)}
        if cell.cell_type != "code":
            continue
        count += 1
        cell.outputs = merged(cell.outputs)
        cell.execution_count = count
        for out in cell.outputs:
            if out.output_type == "execute_result":
                out.execution_count = count
            if out.output_type == "error":  # a traceback holds paths and colours
                out.traceback = [f"{out.ename}: {out.evalue}"]
            view = out.get("data", {}).get(VIEW)
            if view:
                models.setdefault(view["model_id"], f"{book_key}{len(models):04d}")
            for kind in [k for k in out.get("metadata", {}) if not out["metadata"][k]]:
                del out["metadata"][kind]
    nb.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    nb.nbformat, nb.nbformat_minor = 4, 5
    text = json.dumps(nb, ensure_ascii=False)
    if models:  # rename first: sorting keys afterwards must see the final names
        names = "|".join(map(re.escape, models))
        text = re.sub(names, lambda m: models[m.group()], text)
    return nbformat.writes(nbformat.from_dict(json.loads(text))).rstrip("\n") + "\n"


def execute(path, timeout):
    """The notebook at `path` after a run of all its cells in its own folder."""
    nb = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        nb, timeout=timeout, kernel_name="python3", resources=folder, store_widget_state=False
    )
    client.execute()
    return nb


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--form-only", action="store_true", help="do not execute")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 on a difference")
    parser.add_argument("--timeout", type=int, default=300, help="seconds a cell may take")
    args = parser.parse_args()
    missing = [str(p) for p in args.notebooks if not p.is_file()]
    if missing:
        parser.error(f"no such notebook: {', '.join(missing)}")
    os.environ.update({k: os.environ.get(k, v) for k, v in ENVIRONMENT.items()})
    stale = []
    for path in args.notebooks:
        start = time.monotonic()
        if args.form_only or args.check:
            nb = nbformat.read(path, as_version=4)
        else:
            nb = execute(path, args.timeout)
        text = canonical(nb)
        if args.check:
            if path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {len(text) / 1e3:.0f} kB, {time.monotonic() - start:.1f} s")
    if stale:
        sys.exit(f"not in canonical form: {', '.join(stale)}")


if __name__ == "__main__":
    main()
