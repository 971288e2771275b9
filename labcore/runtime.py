"""The same start for every notebook: seed, threads, device, and what computed the numbers."""

import functools
import os
import platform
import random
import subprocess
import sys
from importlib import metadata

from labcore.shapes import require


def setup(seed=0):
    """None; one thread, plain float32, seeded generators and the book's figure style.

    One thread makes outputs repeat: a sum split over threads is added in another order, and the
    last digits of a trained model follow. `LABCORE_THREADS` asks for more where speed matters.
    """
    import torch

    from labcore.viz import theme

    torch.set_num_threads(int(os.environ.get("LABCORE_THREADS", "1")))
    torch.set_default_dtype(torch.float32)
    seed_everything(seed)
    theme()


def seed_everything(seed):
    """A CPU `torch.Generator` with this seed, after seeding Python, NumPy and torch with it too.

    >>> import torch
    >>> bool((torch.rand(2, generator=seed_everything(3)) == torch.rand(2)).all())
    True
    """
    import numpy
    import torch

    whole = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32
    require(whole, "seed", given=repr(seed), allowed="a whole number from 0 to 2**32 - 1")
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def device(prefer="auto"):
    """The `torch.device` to train on: CUDA when there is one, else the CPU.

    `prefer` is "auto", "cpu" or "cuda"; "cuda" without a GPU is an error, not a silent CPU run.
    """
    import torch

    require(prefer in ("auto", "cpu", "cuda"), "prefer", repr(prefer), '"auto", "cpu" or "cuda"')
    there = torch.cuda.is_available()
    require(prefer != "cuda" or there, "prefer", '"cuda" on a machine without CUDA', '"cpu"')
    return torch.device("cuda" if there and prefer != "cpu" else "cpu")


def versions():
    """Versions of Python and of what computes here, by name."""
    names = ("torch", "triton", "numpy", "matplotlib", "ipywidgets", "transformer-labcore")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine():
    """What computes here, in words that name no host: processor, cores, GPU, driver, memory."""
    import torch

    facts = {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()}
    facts["threads"] = torch.get_num_threads()
    facts["instructions"] = torch.backends.cpu.get_cpu_capability()
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        facts["gpu"] = gpu.name
        facts["compute_capability"] = f"{gpu.major}.{gpu.minor}"
        facts["gpu_gib"] = round(gpu.total_memory / 2**30)
        facts["cuda"] = torch.version.cuda
        facts["driver"] = _driver()
    return facts


def describe():
    """One sentence per line: device, precision support and versions, for a reader to print."""
    import torch

    facts, lines = machine(), []
    if "gpu" in facts:
        # A T4 emulates bfloat16: is_bf16_supported() alone would say yes.
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        capability = facts["compute_capability"]
        lines.append(f"GPU: {facts['gpu']}, {facts['gpu_gib']} GiB, compute {capability}")
        lines.append(f"bfloat16 in hardware: {'yes' if native else 'no'}")
    else:
        lines.append("GPU: none; everything in the book runs on the CPU")
    lines.append(f"CPU: {facts['processor']}, {facts['threads']} of {facts['cores']} threads used")
    lines.append(", ".join(f"{k} {v}" for k, v in versions().items() if v))
    return "\n".join(lines)


@functools.cache
def _driver():
    """Version of the GPU's driver, or None where its program cannot be asked."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.stdout.split()), None)


def _processor():
    """The processor's own name; Linux hides it in /proc/cpuinfo."""
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
