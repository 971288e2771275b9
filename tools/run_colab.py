#!/usr/bin/env python3
"""Execute notebooks with the widget and plotting versions that a hosted notebook carries.

A second environment, `.venv-colab`, holds those versions and the package as a reader installs it.
Every notebook must run without an error, the versions must stay, and each dial must be live: its
sliders stand in the widget state of the run.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import lanes

CARRIED = {
    "numpy": "2.1.3",
    "matplotlib": "3.10.0",
    "ipywidgets": "7.7.1",
    "ipython": "7.34.0",
    "ipykernel": "6.17.1",
    "tiktoken": "0.14.0",
    "scikit-learn": "1.6.1",
}
STATE = "application/vnd.jupyter.widget-state+json"
# Runs inside the second environment: executes each notebook and keeps the widget state.
RUN = """
import sys
import nbformat
from nbclient import NotebookClient
for path in sys.argv[1:]:
    nb = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": path.rpartition("/")[0]}}
    NotebookClient(nb, timeout=600, kernel_name="python3", resources=folder).execute()
    nbformat.write(nb, path)
"""


def dials(notebook):
    """How many dials the `explore` calls of a notebook have."""
    count = 0
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "explore(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "explore":
                names = [k.arg for k in node.keywords if k.arg not in ("start", "title", "live")]
                count += len(names)
    return count


def sliders(notebook):
    """How many sliders the widget state of an executed notebook holds."""
    state = notebook["metadata"].get("widgets", {}).get(STATE, {}).get("state", {})
    return sum(model["model_name"] == "SelectionSliderModel" for model in state.values())


def faults(path):
    """What is wrong with an executed notebook: errors, dials that are not live."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", ())]
    found = [f"an error: {out['ename']}" for out in outputs if out["output_type"] == "error"]
    live, wanted = sliders(notebook), dials(notebook)
    if live < wanted:
        found.append(f"{live} live sliders for {wanted} dials")
    print(f"{path.name}: {len(outputs)} outputs, {live} live sliders", flush=True)
    return [f"{path.name}: {fault}" for fault in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable, help="makes the environment")
    args = parser.parse_args()
    packages = [f"{name}=={version}" for name, version in CARRIED.items()]
    python = lanes.environment(lanes.ROOT / ".venv-colab", args.python, packages + lanes.EXECUTOR)
    lanes.pip(python, "install", "--force-reinstall", "--no-deps", str(lanes.ROOT))
    lanes.pip(python, "install", str(lanes.ROOT))
    moved = {n: v for n, v in lanes.versions(python, CARRIED).items() if v != CARRIED[n]}
    if moved:
        sys.exit(f"installing the package changed what the host carries: {moved}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path in lanes.copied(args.notebooks, folder):
            command = [str(python), "-c", RUN, str(path)]
            if subprocess.run(command, env=lanes.clean_environment()).returncode:
                found.append(f"{path.name}: does not execute")
            else:
                found += faults(path)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
