"""Triton's interpreter, made to see what a GPU would punish.

The interpreter runs a kernel in NumPy, one program after the other. By itself it forgives: it
reads beside the tensors it was given, leaves zeros where a masked load named no value, lets two
programs write one element, always runs the programs in the same order, and multiplies the bit
patterns of bfloat16 instead of the numbers. Inside `strict` each of these is an error, a NaN or
the right product.

This is the one module that touches the interpreter's insides; it runs in processes that were
started with TRITON_INTERPRET=1.
"""

import contextlib
import itertools
import random

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from labcore.shapes import flag, require

_BUILDER_PARTS = ("create_dot", "create_masked_load", "create_masked_store", "set_grid_idx")


class MemoryFault(Exception):
    """An address outside every tensor of the launch, or an element that is stored twice."""


@contextlib.contextmanager
def strict(seed=None, write_once=True):
    """A `with` block in which launches are checked; it gives the counts {"loads", "stores"}.

    Programs run in an order drawn from `seed`, a whole number (None keeps Triton's). With
    `write_once` an element may be stored once per launch. Raises `MemoryFault` where a kernel
    leaves its tensors or stores twice.
    """
    flag("write_once", write_once)
    whole = seed is None or (isinstance(seed, int) and not isinstance(seed, bool))
    require(whole, "seed", repr(seed), "a whole number or None")
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    saved = {name: getattr(builder, name) for name in _BUILDER_PARTS}
    saved_arguments = executor._init_args_hst
    watch = _Watch(saved, saved_arguments, seed, write_once)
    builder.create_dot = watch.dot()
    builder.create_masked_load = watch.load()
    builder.create_masked_store = watch.store()
    builder.set_grid_idx = watch.order()
    executor._init_args_hst = watch.arguments()
    try:
        yield watch.counts
    finally:
        for name, function in saved.items():
            setattr(builder, name, function)
        executor._init_args_hst = saved_arguments


class _Watch:
    """The replacements for the interpreter's parts, and what they remember of one launch."""

    def __init__(self, saved, saved_arguments, seed, write_once):
        self.saved, self.saved_arguments = saved, saved_arguments
        self.draw = None if seed is None else random.Random(seed)
        self.write_once = write_once
        self.counts = {"loads": 0, "stores": 0}
        self.ranges, self.written, self.order_of = [], set(), {}

    def arguments(self):
        """Called once a launch, with the tensors as the interpreter sees them."""

        def replacement(executor, args, kwargs):
            host = self.saved_arguments(executor, args, kwargs)
            tensors = [a for a in (*host[0], *host[1].values()) if hasattr(a, "data_ptr")]
            self.ranges = [_range(a) for a in tensors if a.numel()]
            self.written, self.order_of = set(), {}
            return host

        return replacement

    def load(self):
        def replacement(builder, pointers, mask, other, *rest):
            element = pointers.get_element_ty()
            self._check(pointers, mask, element, "load")
            self.counts["loads"] += 1
            if other is None and element.is_floating():
                other = _nan_like(pointers, element)
            return self.saved["create_masked_load"](builder, pointers, mask, other, *rest)

        return replacement

    def store(self):
        def replacement(builder, pointers, value, mask, *rest):
            touched = self._check(pointers, mask, pointers.get_element_ty(), "store").tolist()
            self.counts["stores"] += 1
            if self.write_once:
                fresh = set(touched)
                if len(fresh) != len(touched) or not self.written.isdisjoint(fresh):
                    raise MemoryFault("store: an element is written twice in one launch")
                self.written |= fresh
            return self.saved["create_masked_store"](builder, pointers, value, mask, *rest)

        return replacement

    def dot(self):
        def replacement(builder, a, b, total, *rest):
            return self.saved["create_dot"](builder, _as_float32(a), _as_float32(b), total, *rest)

        return replacement

    def order(self):
        def replacement(builder, x, y, z):
            if self.draw is not None:
                grid = builder.grid_dim
                if grid not in self.order_of:
                    places = list(itertools.product(*map(range, grid)))
                    shuffled = self.draw.sample(places, len(places))
                    self.order_of[grid] = dict(zip(places, shuffled, strict=True))
                x, y, z = self.order_of[grid][x, y, z]
            return self.saved["set_grid_idx"](builder, x, y, z)

        return replacement

    def _check(self, pointers, mask, element, what):
        """The addresses that are touched, as int64 [n], once all lie inside a tensor."""
        size = interpreter._get_np_dtype(element).itemsize
        address, seen = np.broadcast_arrays(pointers.data, mask.data)
        address = address[seen.astype(bool)].astype(np.int64)
        inside = np.zeros(address.shape, bool)
        for low, high in self.ranges:
            inside |= (address >= low) & (address + size <= high)
        if not inside.all():
            lost = int((~inside).sum())
            raise MemoryFault(f"{what}: {lost} of {address.size} addresses are outside its tensors")
        return address


def _range(tensor):
    """First address of a tensor, and the one behind its last element; strides may be any."""
    pairs = list(zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    last = first + sum((size - 1) * stride for size, stride in pairs) * tensor.element_size()
    return first, last + tensor.element_size()


def _nan_like(pointers, element):
    kind = interpreter._get_np_dtype(element)
    # bfloat16 travels as bits in an unsigned integer: 0x7FC0 is its NaN.
    nan = 0x7FC0 if element == tl.bfloat16 else np.nan
    return interpreter.TensorHandle(np.full(pointers.data.shape, nan, dtype=kind), element)


def _as_float32(handle):
    """bfloat16 widened to the float32 it stands for; anything else as it is."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    wide = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return interpreter.TensorHandle(wide, tl.float32)
