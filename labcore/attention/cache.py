"""The key-value cache: what a causal decoder need not compute again.

A new token changes no earlier key and no earlier value, because earlier positions cannot see it. So
each layer keeps its keys and values, and a step projects only the new tokens. The price is memory:
2 · L · B · S · G · K numbers (for V = K), which grows with the length and with the batch.

Room for `max_length` tokens is taken once; appending writes into it and hands out views. A cache
that grows by concatenation copies itself at every step.
"""

import contextlib

import torch

from labcore.attention.scores import check_float
from labcore.shapes import ShapeError, require, whole


class LayerCache:
    """Keys [B, G, S, K] and values [B, G, S, V] of one layer, room for `max_length` tokens.

    >>> cache = LayerCache(3, 7, kv_heads=2, key_width=6)
    >>> k, v = cache.append(torch.ones(3, 2, 5, 6), torch.ones(3, 2, 5, 6))
    >>> list(k.shape), cache.length, cache.nbytes
    ([3, 2, 5, 6], 5, 2016)
    """

    def __init__(
        self, batch, max_length, *, kv_heads, key_width, value_width=None, dtype=None, device=None
    ):
        value_width = key_width if value_width is None else value_width
        sizes = {"batch": batch, "max_length": max_length, "kv_heads": kv_heads}
        for name, value in {**sizes, "key_width": key_width, "value_width": value_width}.items():
            whole(name, value)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        real = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        require(real, "dtype", dtype, "a floating-point dtype", TypeError)
        room = {"dtype": dtype, "device": device}
        self.keys = torch.zeros(batch, kv_heads, max_length, key_width, **room)
        self.values = torch.zeros(batch, kv_heads, max_length, value_width, **room)
        self.length = 0

    @property
    def max_length(self):
        return self.keys.shape[2]

    @property
    def nbytes(self):
        """Bytes of both tensors, the room that is still empty included."""
        return self.keys.nbytes + self.values.nbytes

    def append(self, k, v):
        """All keys and values so far, as views, after writing k [B, G, T, K] and v [B, G, T, V].

        Raises ValueError when the room does not suffice, and for tensors that need gradients: what
        is written over is lost to a backward pass, so a cache belongs under `torch.no_grad()`.
        """
        end = self.length + k.shape[-2]
        if not self._plainly_fits(k, v, end):
            self._check(k, v, end)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.view()

    def view(self):
        """Keys [B, G, S, K] and values [B, G, S, V] of the S tokens so far."""
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def _plainly_fits(self, k, v, end):
        """True in the usual case, found in a microsecond: a step must not be spent on checks."""
        keys, values = self.keys, self.values
        return (
            end <= keys.shape[2]
            and k.dtype == v.dtype == keys.dtype
            and k.shape == (*keys.shape[:2], end - self.length, keys.shape[3])
            and v.shape == (*keys.shape[:2], end - self.length, values.shape[3])
            and not torch.is_grad_enabled()
        )

    def _check(self, k, v, end):
        for name, given, room in (("k", k, self.keys), ("v", v, self.values)):
            check_float(given, name)
            B, G, _, width = room.shape
            shape = given.shape
            fits = given.ndim == 4 and (shape[0], shape[1], shape[3]) == (B, G, width)
            fits = fits and shape[2] == k.shape[-2]
            told = f"[{B}, {G}, T, {width}], as in the cache"
            require(fits, name, f"shape {list(shape)}", told, ShapeError)
            same = given.dtype == room.dtype
            require(same, name, given.dtype, f"{room.dtype}, as in the cache", TypeError)
            told = "tensors without gradients: decode under torch.no_grad()"
            free = not (given.requires_grad and torch.is_grad_enabled())
            require(free, name, "a tensor that needs gradients", told)
        most = self.max_length
        require(end <= most, "cache", f"{end} tokens", f"up to max_length {most}")


class KVCache:
    """One `LayerCache` for each of `layers` layers, and what concerns all of them.

    >>> cache = KVCache(12, 1, 1024, kv_heads=12, key_width=64, dtype=torch.float16, device="meta")
    >>> cache.nbytes
    37748736
    """

    def __init__(self, layers, batch, max_length, **sizes):
        whole("layers", layers)
        self.layers = [LayerCache(batch, max_length, **sizes) for _ in range(layers)]
        # Cross-attention keys and values of an encoder-decoder, one pair a layer: computed once.
        self.memory = None
        self.memory_mask = None

    @property
    def length(self):
        """Tokens that every layer holds."""
        return self.layers[-1].length

    @property
    def max_length(self):
        return self.layers[0].max_length

    @property
    def batch(self):
        return self.layers[0].keys.shape[0]

    @property
    def nbytes(self):
        """Bytes of all layers, those of the encoder's keys and values included."""
        memory = sum(part.nbytes for pair in self.memory or () for part in pair)
        return sum(layer.nbytes for layer in self.layers) + memory

    def reorder(self, parents):
        """None; row b becomes a copy of the old row `parents[b]`: what beam search needs.

        The number of rows may change: parents [0, 0, 0] makes three rows of one.
        """
        integers = isinstance(parents, torch.Tensor) and parents.dtype == torch.int64
        given = parents.dtype if isinstance(parents, torch.Tensor) else type(parents).__name__
        require(integers, "parents", given, "an int64 tensor of shape [rows]", TypeError)
        inside = parents.ndim == 1 and bool(((parents >= 0) & (parents < self.batch)).all())
        require(inside, "parents", parents.tolist(), f"rows 0 to {self.batch - 1}")
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[parents], layer.values[parents]
        if self.memory is not None:
            self.memory = [(k[parents], v[parents]) for k, v in self.memory]
        if self.memory_mask is not None and self.memory_mask.shape[0] > 1:
            self.memory_mask = self.memory_mask[parents]

    def cut(self, length):
        """None; forgets all tokens from position `length` on."""
        most = self.length
        require(whole("length", length, 0) <= most, "length", length, f"0 to {most}")
        for layer in self.layers:
            layer.length = length

    @contextlib.contextmanager
    def appending(self):
        """A context for a run through all layers: an error in it leaves every layer as it was.

        Without it the layers before the error would hold tokens that the others never saw.

        >>> cache = KVCache(2, 1, 9, kv_heads=1, key_width=2)
        >>> with contextlib.suppress(RuntimeError), cache.appending():
        ...     _ = cache.layers[0].append(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
        ...     raise RuntimeError
        >>> [layer.length for layer in cache.layers]
        [0, 0]
        """
        before = self.length
        try:
            yield self
        except BaseException:
            for layer in self.layers:
                layer.length = before
            raise
