"""Tile sizes by compute capability, precision and width: a table, chosen before the run.

A table instead of tuning at run time: the first call is as fast as the others, two runs pick the
same tiles and so add in the same order, and a test can compile every entry for every GPU.
"""

import contextlib
import contextvars
from typing import NamedTuple

import torch

from labcore.shapes import require

# Compute capability x.y as 10·x + y: what the tables are written for.
CAPABILITIES = (75, 80, 86, 89, 90)
# Kernels are also run where no GPU is: in the interpreter, and compiled from meta tensors.
_assumed = contextvars.ContextVar("labcore_kernels_capability", default=90)


class Tile(NamedTuple):
    """What one program works on at a time: a block of `rows` queries or tokens, of `cols` keys or
    outputs, `depth` of the inner axis where it is cut as well; with warps and pipeline stages."""

    rows: int
    cols: int
    depth: int = 0
    warps: int = 4
    stages: int = 2


class Table:
    """The tiles of one kernel: {(capability, bits, width): Tile}, bits 16 or 32.

    >>> table = Table("example", {(80, 16, 64): Tile(128, 64), (90, 16, 64): Tile(128, 128)})
    >>> table.find(89, 16, 64).cols
    64
    """

    def __init__(self, name, tiles):
        self.name, self.tiles = name, dict(tiles)
        self._forced = contextvars.ContextVar(f"labcore_kernels_{name}", default=None)

    def find(self, capability, bits, width):
        """The `Tile` for a GPU: of its own capability, or of the nearest older one in the table."""
        if forced := self._forced.get():
            return forced
        for known in sorted(CAPABILITIES, reverse=True):
            if known <= capability and (known, bits, width) in self.tiles:
                return self.tiles[known, bits, width]
        there = ", ".join(map(str, sorted(self.tiles)))
        told = f"capability {capability}, {bits} bits, width {width}"
        require(False, self.name, told, f"capability, bits, width of {there}", KeyError)

    def has(self, capability, bits, width):
        """Whether `find` would find a tile."""
        return any(c <= capability and (b, w) == (bits, width) for c, b, w in self.tiles)

    def entries(self):
        """All (capability, bits, width, Tile), in order."""
        for key in sorted(self.tiles):
            yield (*key, self.tiles[key])

    @contextlib.contextmanager
    def override(self, tile):
        """A `with` block in which `find` gives `tile` whatever is asked: for measuring others."""
        token = self._forced.set(Tile(*tile))
        try:
            yield
        finally:
            self._forced.reset(token)


def capability(x):
    """Compute capability of the device of `x` as 10·major + minor: 90 for 9.0.

    >>> capability(torch.zeros(1))
    90
    """
    if x.device.type != "cuda":
        return _assumed.get()
    major, minor = torch.cuda.get_device_capability(x.device)
    return 10 * major + minor


@contextlib.contextmanager
def assume(found):
    """A `with` block in which tensors that are on no GPU count as being on one of this capability.

    >>> with assume(75):
    ...     capability(torch.zeros(1))
    75
    """
    allowed = ", ".join(map(str, CAPABILITIES))
    require(found in CAPABILITIES, "capability", repr(found), allowed)
    token = _assumed.set(found)
    try:
        yield
    finally:
        _assumed.reset(token)


def bits(x):
    """16 for float16 and bfloat16, 32 for float32: the second key of the tables.

    >>> bits(torch.zeros(1, dtype=torch.bfloat16))
    16
    """
    known = {torch.float16: 16, torch.bfloat16: 16, torch.float32: 32}
    require(x.dtype in known, "dtype", x.dtype, "float16, bfloat16 or float32", TypeError)
    return known[x.dtype]


def precision(x):
    """How `tl.dot` multiplies float32: three tf32 products where there are tensor cores for them.

    One tf32 product, Triton's default, keeps 10 bits of the 23: an error of 3e-4. For 16-bit
    tensors the word has no effect.
    """
    from labcore.kernels.dispatch import interpreting

    return "ieee" if capability(x) < 80 or interpreting() else "tf32x3"
