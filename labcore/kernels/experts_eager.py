"""The grouped matrix product in plain torch, and the gradient of its weights, on any device.

Three ways, the first that fits: torch's own `grouped_mm`; on a CPU, where reading the offsets
costs nothing, one product per expert; elsewhere the kernel's row tiles as batched products, with
every index computed on the device. In none of them does the host wait for a GPU.
Half precision is multiplied and summed in float32 and rounded once.
"""

import torch
import torch.nn.functional as F

from labcore.shapes import require

HALF = (torch.float16, torch.bfloat16)
# Weights gathered for batched products at a time, in elements.
GATHERED = 2**26


def forward(x, w, offsets):
    """y [N, F] of x [N, D], w [E, D, F], offsets [E]; see `labcore.kernels.expert_gemm`."""
    with torch.autocast(x.device.type, enabled=False):
        spans = bounds(offsets, x.shape[0]) if x.device.type == "cpu" else None
        if x.numel() == 0 or w.numel() == 0:
            return x.new_zeros(x.shape[0], w.shape[2])
        if _grouped_fits(x, w):
            y = F.grouped_mm(x, w, offs=_held(offsets, x.shape[0], spans))
            if spans is None:
                return y.masked_fill_(_past(offsets, x), 0)
            y[spans[-1][1] :] = 0  # grouped_mm leaves the rows of nobody as they were
            return y
        return _tiled_forward(x, w, offsets) if spans is None else _looped_forward(x, w, spans)


def weight_gradient(x, dy, offsets):
    """dW [E, D, F] of x [N, D] and dy [N, F]: x_eᵀ dy_e for the rows of each expert e."""
    with torch.autocast(x.device.type, enabled=False):
        spans = bounds(offsets, x.shape[0]) if x.device.type == "cpu" else None
        if x.numel() == 0 or dy.numel() == 0 or len(offsets) == 0:
            return x.new_zeros(len(offsets), x.shape[1], dy.shape[1])
        if _grouped_fits(x.t(), dy):
            ends = _held(offsets, x.shape[0], spans)
            dw = F.grouped_mm(x.t(), dy, offs=ends)
            if spans is None:
                empty = torch.diff(ends, prepend=ends.new_zeros(1)) == 0
                return dw.masked_fill_(empty[:, None, None], 0)
            for expert, (first, end) in enumerate(spans):
                if first == end:
                    dw[expert] = 0
            return dw
        return _tiled_gradient(x, dy, offsets) if spans is None else _looped_gradient(x, dy, spans)


def bounds(offsets, N):
    """The pairs (first row, end row) of the experts, from offsets on a CPU.

    Raises ValueError where they decrease, are negative or pass N.

    >>> bounds(torch.tensor([2, 2, 5]), 6)
    [(0, 2), (2, 2), (2, 5)]
    """
    ends = offsets.tolist()
    starts = [0, *ends][: len(ends)]
    fits = all(a <= b for a, b in zip(starts, ends, strict=True)) and (not ends or ends[-1] <= N)
    require(fits, "offsets", ends, f"whole numbers from 0 to the {N} rows of x, not decreasing")
    return list(zip(starts, ends, strict=True))


def _looped_forward(x, w, spans):
    y = x.new_zeros(x.shape[0], w.shape[2])
    for expert, (first, end) in enumerate(spans):
        if first < end:
            y[first:end] = _product(x[first:end], w[expert])
    return y


def _looped_gradient(x, dy, spans):
    dw = x.new_zeros(len(spans), x.shape[1], dy.shape[1])
    for expert, (first, end) in enumerate(spans):
        if first < end:
            dw[expert] = _product(x[first:end].t(), dy[first:end])
    return dw


def _product(a, b):
    """The matrix product, or a batch of them, summed in float32 for half precision."""
    if a.dtype not in HALF:
        return a @ b
    if a.device.type == "cuda" and a.ndim == 3:
        return torch.bmm(a, b, out_dtype=torch.float32)  # the matrix unit adds in float32
    return a.float() @ b.float()


def _grouped_fits(a, b):
    """Whether torch has the grouped product of these two and runs it without asking the host."""
    if not hasattr(F, "grouped_mm") or a.dtype not in (torch.bfloat16, torch.float32):
        return False
    if a.device.type == "cuda":
        # Elsewhere it falls back to a loop that copies the offsets to the host.
        fast = torch.cuda.get_device_capability(a.device)[0] in (9, 10)
        if a.dtype != torch.bfloat16 or not fast:
            return False
    elif a.device.type != "cpu" or a.dtype != torch.float32:
        return False
    return all(_rows_on_16_bytes(m) for m in (a, b))


def _rows_on_16_bytes(m):
    step = 16 // m.element_size()
    *outer, near, last = m.stride()
    far, side = (near, m.shape[-1]) if last == 1 else (last, m.shape[-2])
    return (
        1 in (near, last)
        and far >= max(side, 1)  # a stride that torch's check of overlaps accepts
        and all(s % step == 0 for s in (*outer, far))
        and m.data_ptr() % 16 == 0
    )


def _held(offsets, N, spans=None):
    """int32 offsets within 0 … N that do not decrease, as the kernels read them.

    Where `spans` were made from them, they have been found to be so.
    """
    if spans is not None:
        return offsets.to(torch.int32)
    return offsets.clamp(0, N).cummax(0).values.to(torch.int32)


def _past(offsets, x):
    """[N, 1], True for the rows that no expert owns."""
    return torch.arange(x.shape[0], device=x.device)[:, None] >= offsets.amax()


def row_tiles(offsets, N, rows):
    """The expert [n] and the rows [n, rows] of each tile, and which rows count; on the device.

    As in the kernel, the number of tiles is that of the worst distribution, tiles do not cross
    from one expert to the next, and offsets are held within 0 … N without decreasing.

    >>> expert, row, counts = row_tiles(torch.tensor([3, 3, 4]), 5, 2)
    >>> expert.tolist(), (row * counts).tolist(), counts.sum().item()
    ([0, 0, 2, 2], [[0, 1], [2, 0], [3, 0], [0, 0]], 4)
    """
    E = len(offsets)
    ends = _held(offsets, N).long()
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    tiles = (ends - starts + rows - 1) // rows
    upto = tiles.cumsum(0)
    tile = torch.arange((N + min(E, N) * (rows - 1)) // rows, device=offsets.device)
    expert = torch.searchsorted(upto, tile, right=True).clamp(max=E - 1)
    first = starts[expert] + (tile - upto[expert] + tiles[expert]) * rows
    row = first[:, None] + torch.arange(rows, device=offsets.device)
    counts = row < ends[expert][:, None]
    return expert, torch.where(counts, row, 0), counts


def _tiles_of(offsets, N, E, size):
    """The row tiles in portions whose gathered weights are not too many."""
    rows = min(max(N // max(E, 1), 1), 128)
    expert, row, counts = row_tiles(offsets, N, rows)
    portion = max(GATHERED // size, 1)
    return zip(expert.split(portion), row.split(portion), counts.split(portion), strict=True)


def _tiled_forward(x, w, offsets):
    (N, D), (E, _, width) = x.shape, w.shape
    y = x.new_zeros(N + 1, width)
    for expert, row, counts in _tiles_of(offsets, N, E, D * width):
        part = _product(x[row], w[expert]).to(x.dtype)
        y[torch.where(counts, row, N)] = part  # places that do not count meet in the last row
    return y[:N]


def _tiled_gradient(x, dy, offsets):
    (N, D), width, E = x.shape, dy.shape[1], len(offsets)
    dw = x.new_zeros(E, D, width, dtype=torch.float32 if x.dtype in HALF else x.dtype)
    for expert, row, counts in _tiles_of(offsets, N, E, D * width):
        mine, theirs = (m[row].masked_fill(~counts[:, :, None], 0) for m in (x, dy))
        # index_put_ sorts on a GPU: the sums come in the same order every time.
        dw.index_put_((expert,), _product(mine.transpose(1, 2), theirs), accumulate=True)
    return dw.to(x.dtype)
