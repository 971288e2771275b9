"""Kernels run from a notebook, each time in a process of its own.

Triton decides at import whether it interprets kernels or compiles them, so a page that does both
needs two processes, neither of them its own. A function of the page goes there as source and comes
back as the text that it printed and the value that it returned.

Without Triton the result that was recorded for the same source is shown, with a line that says so.
"""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import types
from pathlib import Path
from typing import NamedTuple

import torch

from labcore.shapes import require

RECORDS = Path(__file__).with_name("recorded.json")
# "write" keeps each result, "check" compares it with the one that is kept.
RECORD = "LABCORE_RECORD"

_HEAD = """\
import json, sys
import torch
import triton
import triton.language as tl
torch.set_num_threads(1)
"""
_TAIL = """
if __name__ == "__main__":
    _given = json.loads(sys.argv[1])
    _value = {name}(*_given)
    with open(sys.argv[2], "w", encoding="utf-8") as _file:
        json.dump(_value, _file)
"""


def interpret(function, *arguments, using=()):
    """What `function(*arguments)` returns in a process that interprets kernels, on the CPU.

    Its source must stand alone: it may use `torch`, `triton`, `tl`, what it imports itself, and
    the functions in `using`, which become Triton kernels there. Arguments and value travel as JSON;
    what it prints is printed here. Raises RuntimeError with the process's own last words.
    """
    return _elsewhere(function, arguments, using, "interpret")


def compiled(function, *arguments, using=()):
    """As `interpret`, in a process that compiles kernels; that alone needs no GPU."""
    return _elsewhere(function, arguments, using, "compile")


def run(function, *arguments, using=()):
    """`function(device, *arguments)`: compiled on "cuda" where there is one, else interpreted."""
    there = torch.cuda.is_available()
    where = ("cuda", "compile") if there else ("cpu", "interpret")
    return _elsewhere(function, (where[0], *arguments), using, where[1])


def __getattr__(name):
    """`tl`, for the annotations of kernels that a page defines: Triton's, or a stand-in."""
    if name != "tl":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("triton") is None:
        return types.SimpleNamespace(constexpr=object)
    return importlib.import_module("triton.language")


def _elsewhere(function, arguments, using, mode):
    require(inspect.isfunction(function), "function", repr(function), "a function with source")
    parts = [_source(kernel, kernel=True) for kernel in using] + [_source(function)]
    body, given = "\n\n".join(parts), json.dumps(arguments)
    call = _Call(f"{mode} {function.__name__} {given}", _digest(body))
    if importlib.util.find_spec("triton") is None:
        return _from_record(call)
    text = _HEAD + body + _TAIL.format(name=function.__name__)
    printed, value = _process(text, given, mode)
    _compare(call, {"source": call.digest, "printed": printed, "value": value})
    print(printed, end="")
    return value


class _Call(NamedTuple):
    """What a record is found by, mode, name and arguments, and the digest of its source."""

    key: str
    digest: str


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source(function, kernel=False):
    text = textwrap.dedent(inspect.getsource(function))
    return f"@triton.jit\n{text}" if kernel else text


def _process(text, given, mode):
    """(printed, value) of the program `text`, run with `given` in a clean process."""
    with tempfile.TemporaryDirectory() as folder:
        program, answer = Path(folder) / "program.py", Path(folder) / "answer.json"
        program.write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, str(program), given, str(answer)],
            capture_output=True,
            text=True,
            env=_environment(mode),
        )
        if ran.returncode:
            last = "\n".join(ran.stderr.strip().splitlines()[-6:])
            raise RuntimeError(f"the kernel's process ended with {ran.returncode}:\n{last}")
        return ran.stdout, json.loads(answer.read_text(encoding="utf-8"))


def _environment(mode):
    found = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if mode == "interpret":
        found["TRITON_INTERPRET"] = "1"
    # The package that this process uses, also when it is not an installed one.
    home = str(Path(__file__).resolve().parents[3])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [home, found.get("PYTHONPATH")]))
    # Many small products: a second thread of NumPy costs up to twenty times what it gives.
    found["OPENBLAS_NUM_THREADS"] = "1"
    return found


@functools.cache
def _records():
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}


def _from_record(call):
    found = _records().get(call.key)
    if found is None or found["source"] != call.digest:
        raise RuntimeError("Triton is not installed here, and no result of this code is recorded")
    print("(recorded: Triton is not installed here)")
    print(found["printed"], end="")
    return found["value"]


def _compare(call, found):
    """Keeps a result, or compares it with the kept one, where the environment asks for it."""
    asked = os.environ.get(RECORD)
    if asked == "write":
        text = json.dumps(
            dict(sorted((_records() | {call.key: found}).items())), indent=1, ensure_ascii=False
        )
        RECORDS.write_text(text + "\n", encoding="utf-8")
        _records.cache_clear()
    elif asked == "check":
        kept = _records().get(call.key)
        require(kept == found, call.key, f"{found}", f"what is recorded, {kept}: execute it again")
