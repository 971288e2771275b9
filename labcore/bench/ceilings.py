"""What a device can do at most: operations and bytes in a second, stated or measured."""

import functools
import time

import torch

UNITS = {"flops": "TFLOP/s", "bytes": "TB/s"}
# The device for which rates are asked for. Elsewhere a rate is reported and not judged.
ASKED_ON = "NVIDIA H200"
# Dense bfloat16 with float32 sums, and reading plus writing device memory: measured, not the data
# sheet's 989 TFLOP/s and 4.8 TB/s, which no program reaches.
STATED = {ASKED_ON: {"flops": 790e12, "bytes": 4.3e12}}


def ceilings(device="cpu"):
    """Operations and bytes per second that `device` reaches at most, and where they are from.

    A device of `STATED` by name; any other is measured now: a large matrix product and a large
    copy, in bfloat16 on a GPU and float32 on the CPU.
    """
    device = torch.device(device)
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for known, found in STATED.items():
            if name.startswith(known):
                return {**found, "from": "stated"}
    return measured_ceilings(device.type)


@functools.cache
def measured_ceilings(device="cpu"):
    """The same, measured on this device once a process.

    >>> found = measured_ceilings("cpu")
    >>> found["flops"] > 1e8, found["bytes"] > 1e7, found["from"]
    (True, True, 'measured')
    """
    on_gpu = torch.device(device).type == "cuda"
    side, size = (8192, 2**30) if on_gpu else (512, 2**25)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(a)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    return {
        "flops": 2 * side**3 / _shortest(lambda: torch.mm(a, b, out=product), device),
        "bytes": 2 * size / _shortest(lambda: copy.copy_(source), device),
        "from": "measured",
    }


def asked_here(device):
    """True on the device for which rates are asked for."""
    device = torch.device(device)
    return device.type == "cuda" and torch.cuda.get_device_name(device).startswith(ASKED_ON)


def _shortest(function, device, tries=10):
    """The shortest of some runs in seconds: a ceiling is the best that a device does."""
    best = float("inf")
    for _ in range(tries):
        _wait(device)
        begun = time.perf_counter()
        function()
        _wait(device)
        best = min(best, time.perf_counter() - begun)
    return best


def _wait(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
