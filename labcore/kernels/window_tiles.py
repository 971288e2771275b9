"""Which tiles the window kernels use, and which calls they refuse: no Triton is needed to ask.

A window of at most 64 tokens in half precision is one tile, its side padded to 16, 32 or 64, and
one program takes it whole. Longer windows, and float32, go in blocks of queries and keys. No entry
of these tables spills registers: a test compiles every one.
"""

import torch

from labcore.kernels.config import Table, Tile, bits, capability

MOST_TOKENS, MOST_WIDTH = 144, 64


def refusal(q):
    """Why no window kernel takes tensors like q [windows, H, MM, K], or None.

    >>> refusal(torch.zeros(1, 3, 49, 32)) is None
    True
    >>> refusal(torch.zeros(1, 3, 196, 32))
    'windows of 196 tokens; the kernels take up to 144'
    """
    MM, K = q.shape[-2:]
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"{q.dtype}; the kernels take float16, bfloat16 and float32"
    if q.dtype == torch.bfloat16 and capability(q) < 80:
        return "bfloat16 before compute capability 8.0"
    if MM > MOST_TOKENS:
        return f"windows of {MM} tokens; the kernels take up to {MOST_TOKENS}"
    if K > MOST_WIDTH:
        return f"heads of width {K}; the kernels take up to {MOST_WIDTH}"
    return None


def padded(size):
    """The side of the tile that holds `size` tokens or channels: a power of two from 16 on.

    >>> [padded(size) for size in (9, 16, 30, 49, 144)]
    [16, 16, 32, 64, 256]
    """
    return max(16, 1 << (size - 1).bit_length())


# Programs worth starting at once: about sixteen for each of the 132 processors of a large GPU.
PROGRAMS = 2048


def split(images, groups):
    """Windows for one program and the number of programs, `images` windows in each of `groups`.

    Enough programs to fill a GPU, and not more: what a program loads once, bias and mask, and the
    partial sum of dBias that it writes once, then serve several windows. It depends on the sizes
    alone, so that sums are made in the same order everywhere.

    >>> split(64, 192)
    (6, 2112)
    """
    parts = min(images, max(1, -(-PROGRAMS // groups)))
    share = -(-images // parts)
    return share, groups * -(-images // share)


def whole_tile(tables, q):
    """The `Tile` that holds a window of q [windows, H, MM, K] whole, or None: blocks.

    >>> whole_tile(FORWARD_WHOLE, torch.zeros(1, 3, 49, 32, dtype=torch.float16)).rows
    64
    >>> whole_tile(FORWARD_WHOLE, torch.zeros(1, 3, 49, 32)) is None
    True
    """
    key, table = (capability(q), bits(q), padded(q.shape[-1])), tables.get(padded(q.shape[-2]))
    return table.find(*key) if table is not None and table.has(*key) else None


def readable(x):
    """x itself, where its rows can be read 16 bytes at a time, else a copy of which that is true.

    Triton reads so where it can prove it: the channels lie side by side and come in groups of 16,
    the first byte and the strides are multiples of 16. Everything else, a width of 30 or a view
    that starts one number late, would be read number by number, each with an address of its own.
    The copy is [windows, H, MM, K], its width padded to a multiple of 16 with zeros.

    >>> x = torch.zeros(6, 49, 3, 4, 32)[:, :, 0].transpose(1, 2)
    >>> readable(x) is x, readable(x[..., :30]).shape[-1], readable(x[..., 1:31]).shape[-1]
    (True, 32, 32)
    """
    *strides, last = x.stride()
    K = x.shape[-1]
    even = K % 16 == 0 and all(stride % 16 == 0 for stride in strides) and x.data_ptr() % 16 == 0
    if last == 1 and even:
        return x
    copy = x.new_zeros(*x.shape[:-1], -(-K // 16) * 16)
    copy[..., :K] = x
    return copy


def _tiles(bits, *entries):
    """{(capability, bits, width): Tile} of (capability, widths, tile) entries."""
    return {(since, bits, width): tile for since, widths, tile in entries for width in widths}


_NARROW, _ALL = (16, 32), (16, 32, 64)
# One tile a window, by its side: cols are its keys. Before 9.0 the operands of all five products of
# the backward pass stay in registers: there is no room for a window loaded ahead, nor for width 64.
FORWARD_WHOLE = {
    16: Table("window_forward_16", _tiles(16, (75, _ALL, Tile(16, 16, warps=1, stages=3)))),
    32: Table("window_forward_32", _tiles(16, (75, _ALL, Tile(32, 32, warps=2, stages=3)))),
    64: Table("window_forward_64", _tiles(16, (75, _ALL, Tile(64, 64, warps=4, stages=3)))),
}
BACKWARD_WHOLE = {
    16: Table("window_backward_16", _tiles(16, (75, _ALL, Tile(16, 16, warps=1, stages=2)))),
    32: Table("window_backward_32", _tiles(16, (75, _ALL, Tile(32, 32, warps=4, stages=2)))),
    64: Table(
        "window_backward_64",
        _tiles(
            16,
            (75, _NARROW, Tile(64, 64, warps=4, stages=1)),
            (90, _NARROW, Tile(64, 64, warps=4, stages=2)),
            (90, (64,), Tile(64, 64, warps=8, stages=2)),
        ),
    ),
}
# In blocks; three tf32 products for one of float32 take three times the registers.
FORWARD = Table(
    "window_forward_blocks",
    _tiles(16, (75, _ALL, Tile(64, 32))) | _tiles(32, (75, _ALL, Tile(32, 32))),
)
ROWS = Table(
    "window_backward_rows",
    _tiles(16, (75, _ALL, Tile(32, 32)), (80, _NARROW, Tile(64, 32)), (90, _ALL, Tile(64, 32)))
    | _tiles(32, (75, _NARROW, Tile(16, 32)), (75, (64,), Tile(16, 16))),
)
COLS = Table(
    "window_backward_cols",
    _tiles(
        16,
        (75, _NARROW, Tile(64, 64)),
        (75, (64,), Tile(32, 32)),
        (90, (64,), Tile(64, 64, warps=8)),
    )
    | _tiles(32, (75, _NARROW, Tile(32, 16)), (75, (64,), Tile(16, 16))),
)
BIAS = Table(
    "window_backward_bias",
    _tiles(16, (75, _ALL, Tile(64, 32)))
    | _tiles(32, (75, _NARROW, Tile(16, 32)), (75, (64,), Tile(16, 64, warps=8, stages=1))),
)


def tile_of(table, q):
    """The `Tile` of a table for the device, precision and padded width of q."""
    return table.find(capability(q), bits(q), padded(q.shape[-1]))
