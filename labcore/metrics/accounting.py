"""What a layer costs: multiply-adds, parameters, steps in a row, and calls.

One multiply-add is one product added to a running sum: two floating-point operations in torch's
counter, one in the usual tables.
"""

import contextlib
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from labcore.blocks.mixers import longest_path
from labcore.shapes import flag, whole


class Cost(NamedTuple):
    """One layer type: its leading term in multiply-adds, its steps in a row, its longest path."""

    layer: str
    multiply_adds: int
    sequential_steps: int
    longest_path: float


def multiply_adds(function, *inputs):
    """Multiply-adds of matrix products and convolutions in `function(*inputs)`, by torch's counter.

    Additions, softmax and norms are not counted: they grow slower than the products.

    >>> multiply_adds(torch.matmul, torch.zeros(5, 3), torch.zeros(3, 7))
    105
    """
    # The fused kernels have no entry in the counter on every device; the plain form always has.
    counter = FlopCounterMode(display=False, custom_mapping=_VECTOR_PRODUCTS)
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        function(*inputs)
    return counter.get_total_flops() // 2


def cost_table(n, d, k=3, *, dilated=True):
    """Costs of self-attention, recurrence and convolution, for n positions of width d, kernel k.

    Vaswani et al. 2017, table 1. The leading terms are counted on the products themselves, run
    without data: one n²d term of attention (QKᵀ; the weights times V cost another one, and the four
    projections 4nd²), the n products W h of a recurrence (its inputs U x cost another nd²), one
    convolution with k taps.

    >>> [cost.multiply_adds for cost in cost_table(64, 512)]
    [2097152, 16777216, 50331648]
    """
    for name, value, least in (("n", n, 1), ("d", d, 1), ("k", k, 2)):
        whole(name, value, least)
    # An odd kernel keeps the length with (k - 1)/2 zeros a side; an even one is padded for itself.
    rows, state, matrix = (torch.empty(s, device="meta") for s in ((n, d), (d,), (d, d)))
    padded, kernel = torch.empty(1, d, n + k - 1, device="meta"), matrix.new_empty(d, d, k)
    steps = [multiply_adds(torch.mv, matrix, state)] * n
    paths = [longest_path(kind, n, kernel=k, dilated=dilated) for kind in _KINDS]
    counts = (multiply_adds(torch.mm, rows, rows.T), sum(steps))
    counts += (multiply_adds(F.conv1d, padded, kernel),)
    return [Cost(*row) for row in zip(_KINDS, counts, (1, len(steps), 1), paths, strict=True)]


def parameters(module, trainable=False):
    """Numbers that a module holds as parameters, shared ones once; only those that train, if asked.

    >>> parameters(torch.nn.Linear(3, 2))
    8
    """
    flag("trainable", trainable)
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)


def parameter_shares(module):
    """Parameters by direct child, in order; those that the module holds itself under "(own)".

    >>> parameter_shares(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    {'0': 8, '1': 0}
    """
    shares = {name: parameters(child) for name, child in module.named_children()}
    own = sum(p.numel() for p in module.parameters(recurse=False))
    return shares | ({"(own)": own} if own else {})


class Calls:
    """How often a module ran, and the input shapes of each run."""

    def __init__(self):
        self.shapes = []

    @property
    def count(self):
        return len(self.shapes)


@contextlib.contextmanager
def count_calls(module):
    """A context that gives a `Calls`: it counts the forward calls of `module` while it is open.

    >>> layer = torch.nn.Linear(3, 2)
    >>> with count_calls(layer) as calls:
    ...     _ = layer(torch.zeros(5, 3)), layer(torch.zeros(1, 3))
    >>> calls.count, calls.shapes
    (2, [[5, 3], [1, 3]])
    """
    calls = Calls()

    def note(_module, inputs):
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        calls.shapes.append(list(tensors[0].shape) if tensors else None)

    hook = module.register_forward_pre_hook(note)
    try:
        yield calls
    finally:
        hook.remove()


def kv_cache_bytes(
    layers, length, kv_heads, key_width, *, value_width=None, batch=1, number_bytes=2, window=None
):
    """Bytes of a key-value cache: L · B · S · G · (K + V) · bytes a number.

    `window` W caps the tokens that are worth keeping; the full cache keeps all of them.

    >>> kv_cache_bytes(12, 1024, 12, 64)
    37748736
    """
    value_width = key_width if value_width is None else value_width
    sizes = {"layers": layers, "length": length, "kv_heads": kv_heads, "key_width": key_width}
    sizes |= {"value_width": value_width, "batch": batch, "number_bytes": number_bytes}
    sizes |= {} if window is None else {"window": window}
    for name, value in sizes.items():
        whole(name, value)
    kept = length if window is None else min(length, window)
    return layers * batch * kept * kv_heads * (key_width + value_width) * number_bytes


def _shape_flops(first_shape, *_, **__):
    """Two operations for each number of the matrix (or vector) that meets a vector."""
    return 2 * math.prod(first_shape)


# Products that torch's counter leaves out: a matrix times a vector, a vector times a vector.
_VECTOR_PRODUCTS = {torch.ops.aten.mv: _shape_flops, torch.ops.aten.dot: _shape_flops}
_KINDS = ("attention", "recurrence", "convolution")
