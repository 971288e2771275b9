"""Who reaches whom: how strongly each output of a layer depends on each input, by autograd.

A layer here is any function or module from [B, N, D] to [B, N, D'] that treats the sequences of a
batch separately. The Jacobian of one sequence has a block [D', D] for every pair of an output
position i and an input position j; the block is zero exactly when i does not read j (at this input:
a dead ReLU also gives zero).
"""

import torch

from labcore.shapes import ShapeError, require

# Numbers held at once: a batch of copies of the sequence is cut into pieces of this size.
_ENTRIES = 2**21


def jacobian(layer, x, outputs=None):
    """Derivatives [n, D', N, D] of the outputs at the positions `outputs` (all N unless given).

    Entry [i, :, j, :] is ∂y_i/∂x_j for x [N, D]. Each row of the Jacobian gets its own copy of the
    sequence, all copies go through the layer as one batch, and one backward pass fills all rows.

    >>> list(jacobian(torch.nn.Linear(3, 2), torch.zeros(5, 3)).shape)
    [5, 2, 5, 3]
    """
    _check_sequence(x)
    N, D = x.shape
    outputs = list(range(N)) if outputs is None else list(outputs)
    inside = all(type(i) is int and -N <= i < N for i in outputs)
    require(inside, "outputs", given=outputs, allowed=f"positions 0 to {N - 1}")
    with torch.no_grad():
        produced = layer(x[None])
    fits = isinstance(produced, torch.Tensor) and produced.shape[:2] == (1, N)
    told = list(produced.shape) if isinstance(produced, torch.Tensor) else type(produced).__name__
    require(fits and produced.ndim == 3, "layer", f"output {told}", f"[B, N={N}, D']", ShapeError)
    width = produced.shape[-1]
    rows = [(i % N, feature) for i in outputs for feature in range(width)]
    piece = max(1, _ENTRIES // (N * max(N, D, width)))
    found = [_rows(layer, x, rows[start : start + piece]) for start in range(0, len(rows), piece)]
    found = torch.cat(found) if found else x.new_zeros(0, N, D)
    return found.reshape(len(outputs), width, N, D)


def influence(layer, x, outputs=None, norm="frobenius"):
    """Map [n, N] of the sizes of ∂y_i/∂x_j, one row per output position, one column per input.

    `norm` is "frobenius" (root of the sum of squares) or "spectral" (largest stretch of any change
    of x_j). A position-wise layer gives a diagonal, global attention a full map.

    >>> (influence(torch.nn.Linear(3, 2), torch.zeros(2, 3)) > 0).tolist()
    [[True, False], [False, True]]
    """
    known = norm in ("frobenius", "spectral")
    require(known, "norm", given=repr(norm), allowed='"frobenius" or "spectral"')
    blocks = jacobian(layer, x, outputs).transpose(1, 2)
    return torch.linalg.matrix_norm(blocks, 2 if norm == "spectral" else "fro")


def off_diagonal_count(blocks):
    """Non-zero numbers in the blocks i ≠ j of a Jacobian [N, D', N, D]: 0 means position-wise.

    >>> off_diagonal_count(jacobian(torch.nn.Linear(3, 2), torch.zeros(5, 3)))
    0
    """
    square = blocks.ndim == 4 and blocks.shape[0] == blocks.shape[2]
    require(square, "blocks", f"shape {list(blocks.shape)}", "[N, D', N, D]", error=ShapeError)
    apart = ~torch.eye(blocks.shape[0], dtype=torch.bool)[:, None, :, None].to(blocks.device)
    return int(((blocks != 0) & apart).sum())


def visible_positions(layer, x, position=None):
    """Input positions with a non-zero derivative at one output, the middle one unless given.

    Their number is the receptive field of that output. Positions that lie beyond an end are not
    there to be counted: take N large enough.

    >>> from labcore.blocks import ConvolutionMixer
    >>> visible_positions(ConvolutionMixer(2, kernel=3), torch.ones(9, 2))
    [3, 4, 5]
    """
    _check_sequence(x)
    position = x.shape[0] // 2 if position is None else position
    blocks = jacobian(layer, x, [position])[0]
    return (blocks != 0).any(0).any(-1).nonzero().flatten().tolist()


def _rows(layer, x, rows):
    copies = x.detach().expand(len(rows), *x.shape).clone().requires_grad_()
    with torch.enable_grad():
        produced = layer(copies)
        picked = [produced[row, i, feature] for row, (i, feature) in enumerate(rows)]
        total = torch.stack(picked).sum()
        # A layer that ignores its input has no graph at all: its derivatives are zeros.
        if not total.requires_grad:
            return torch.zeros_like(copies)
        (found,) = torch.autograd.grad(total, copies, allow_unused=True)
    return torch.zeros_like(copies) if found is None else found


def _check_sequence(x):
    told = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
    ok = isinstance(x, torch.Tensor) and x.is_floating_point()
    require(ok, "x", given=told, allowed="a floating-point tensor [N, D]", error=TypeError)
    allowed = "[N, D], one sequence of at least one position"
    require(x.ndim == 2 and x.shape[0] > 0, "x", f"shape {list(x.shape)}", allowed, ShapeError)
