"""What the compiler makes of each kernel, for any GPU, on a machine that has none.

Triton compiles on the CPU; it only asks the driver which GPU there is. `launches` puts a driver in
its place that names one, runs the operators' own launch functions on meta tensors, and hands back
the compiled kernels; `report` reads from them what decides whether a kernel is any good: shared
memory, registers, spills, and whether the matrix unit does the products.
"""

import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from labcore.kernels.config import assume
from labcore.shapes import require

# KiB of shared memory that one program may ask for.
SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227}
# The instruction that multiplies 16-bit tiles: four warps together from 9.0 on.
MATRIX = {80: "HMMA", 86: "HMMA", 89: "HMMA", 90: "HGMMA"}
REGISTERS = 65536

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class _NoGpu:
    """Stands in for the CUDA driver; the number of the device is its compute capability."""

    def __init__(self, capability):
        self.capability = capability

    def get_current_device(self):
        return self.capability  # a kernel is compiled once for each device: here, each capability

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)


class Launch(NamedTuple):
    """One launch: the kernel's name, what was compiled, the grid, and the arguments by name."""

    name: str
    kernel: object
    grid: tuple
    arguments: dict


class Report(NamedTuple):
    """Shared memory in bytes, registers a thread, stack in bytes, whether it spills, matrix
    instructions by name and number, warps and stages."""

    shared: int
    registers: int
    stack: int
    spills: bool
    matrix: dict
    warps: int
    stages: int


@contextlib.contextmanager
def pretend(capability):
    """A `with` block in which kernels are compiled for this capability; gives the list of them."""
    require(capability in SHARED_KIB, "capability", capability, ", ".join(map(str, SHARED_KIB)))
    compiling = os.environ.get("TRITON_INTERPRET") != "1"
    require(compiling, "TRITON_INTERPRET", "1", "not set, in a process that compiles")
    found, run = [], JITFunction.run
    saved = getattr(driver, "_active", None)  # its own reset would look for a GPU

    def record(kernel, *args, grid, warmup, **kwargs):
        made = run(kernel, *args, grid=grid, warmup=True, **kwargs)
        named = dict(zip((p.name for p in kernel.params), args, strict=False)) | kwargs
        sizes = grid(named) if callable(grid) else grid
        found.append(Launch(kernel.__name__, made, tuple(sizes), named))
        return made

    JITFunction.run = record
    driver.set_active(_NoGpu(capability))
    try:
        with assume(capability):
            yield found
    finally:
        JITFunction.run = run
        driver.set_active(saved)


def launches(capability, function):
    """The list of `Launch` that `function()` makes on meta tensors, compiled for `capability`."""
    with pretend(capability) as found:
        function()
    return found


def report(kernel):
    """The `Report` of one compiled kernel, from its machine code."""
    usage, code = (_read(kernel, option) for option in ("-res-usage", "-sass"))
    registers, stack = (int(re.search(name + r":(\d+)", usage)[1]) for name in ("REG", "STACK"))
    names = re.findall(r"\b(HGMMA|HMMA|IMMA|FFMA)\b", code)
    return Report(
        shared=kernel.metadata.shared,
        registers=registers,
        stack=stack,
        spills=stack > 0 or re.search(r"\b(LDL|STL)\b", code) is not None,
        matrix={name: names.count(name) for name in sorted(set(names))},
        warps=kernel.metadata.num_warps,
        stages=kernel.metadata.num_stages,
    )


def faults(capability, kernel, matrix=None):
    """What is wrong with a compiled kernel on this GPU: a list of sentences, empty when nothing is.

    `matrix` names the instruction that must be there: "HMMA", "HGMMA"; None asks for none.
    """
    found, limit = report(kernel), SHARED_KIB[capability] * 1024
    wrong = []
    if found.shared > limit:
        wrong.append(f"{found.shared} bytes of shared memory, there are {limit}")
    if (asked := found.registers * 32 * found.warps) > REGISTERS:
        wrong.append(f"{asked} registers, there are {REGISTERS}")
    if found.spills:
        wrong.append(f"spills, {found.stack} bytes of stack")
    if matrix and matrix not in found.matrix:
        wrong.append(f"no {matrix}; it has {found.matrix or 'no matrix instruction'}")
    return wrong


def _read(kernel, option):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        ran = subprocess.run(
            [_TOOLS / "cuobjdump", option, file.name], capture_output=True, text=True, check=True
        )
    return ran.stdout
