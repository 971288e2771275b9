#!/usr/bin/env python3
"""Run the kernel tests with Triton 3.6, the release that hosted notebooks carry with torch 2.11.

A second environment, `.venv-triton36`, holds it with the NumPy that its interpreter can use.
"""

import argparse
import subprocess
import sys

import lanes

# With NumPy 2.4 this release's interpreter fails on ranges with tensor bounds.
PACKAGES = ["numpy<2.4", "pytest==9.2.0", "pytest-xdist==3.8.0", "matplotlib", "ipywidgets"]
PACKAGES += ["tiktoken", "scikit-learn"]
TRITON = "triton==3.6.0"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="makes the environment")
    parser.add_argument("--quick", action="store_true", help="the smoke set only")
    args = parser.parse_args()
    python = lanes.environment(lanes.ROOT / ".venv-triton36", args.python, PACKAGES)
    # torch's CPU build carries no Triton, and nothing that this one requires is missing.
    lanes.pip(python, "install", "--no-deps", TRITON)
    failed = []
    for folder, variables in [
        ("interpreted", {"TRITON_INTERPRET": "1"}),
        ("compiled", {"TRITON_CACHE_DIR": str(lanes.ROOT / "build" / "triton36")}),
    ]:
        print(f"== Triton 3.6: {folder}", flush=True)
        command = [str(python), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
        command += ["-m", "not slow"] if args.quick else []
        # The package is the one beside this script, not an installed one.
        variables |= {"PYTHONPATH": str(lanes.ROOT), "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run(
            [*command, f"tests/kernels/{folder}"],
            cwd=lanes.ROOT,
            env=lanes.clean_environment() | {"OMP_NUM_THREADS": "1"} | variables,
        )
        if ran.returncode:
            failed.append(folder)
    if failed:
        sys.exit(f"Triton 3.6 fails: {', '.join(failed)}")


if __name__ == "__main__":
    main()
