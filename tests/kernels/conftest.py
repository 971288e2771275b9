"""Interpreted, compiled and GPU tests each need a process of their own; elsewhere they skip."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HERE = Path(__file__).parent


def _obstacle(folder):
    """Why the tests of this folder cannot run in this process, or None."""
    if folder == "gpu":
        return None if torch.cuda.is_available() else "needs a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "needs Triton"
    if folder == "interpreted" and not INTERPRETED:
        return "interprets kernels: run `make test-kernels-quick`"
    if folder == "compiled" and INTERPRETED:
        return "compiles kernels: run `make test-kernels-quick`"
    return None


def pytest_ignore_collect(collection_path, config):
    """The modules of a folder that cannot run here would fail at their imports."""
    folder = collection_path.relative_to(HERE).parts[:1] if collection_path != HERE else ()
    if folder and folder[0] in ("interpreted", "compiled") and collection_path.suffix == ".py":
        return True if _obstacle(folder[0]) else None
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        folder = item.path.parent.name
        if folder in ("interpreted", "compiled", "gpu") and (told := _obstacle(folder)):
            item.add_marker(pytest.mark.skip(reason=told))
