"""Rotary positions: queries and keys are turned by an angle that grows with their position.

Su et al. 2021, section 3.2: pair i of a vector at position p is turned by p / base^(2i/K). The dot
product of a turned query and a turned key then depends on the distance of their positions only.

Which two numbers form a pair is a convention: "halves" takes (x_i, x_{i + K/2}), as in GPT-NeoX and
Llama in transformers; "interleaved" takes (x_{2i}, x_{2i+1}), as in the paper. Weights trained with
one need their rows put in another order for the other: `to_halves`.
"""

import torch
from torch import nn

from labcore.attention.scores import check_float
from labcore.shapes import ShapeError, check_ids, number, readable, require, whole

LAYOUTS = ("halves", "interleaved")


def rope_angles(positions, width, base=10000.0):
    """Angles [..., K/2] in float64: positions[...] / base^(2i/K), for finite real positions.

    >>> rope_angles(torch.tensor([0, 2]), 4).tolist()
    [[0.0, 0.0], [2.0, 0.02]]
    """
    _check_sizes(width, base)
    _check_positions(positions)
    return _angles(positions, width, base)


def rotate(x, angles, layout="halves"):
    """x [..., T, K] with pair i at position t turned by `angles` [..., T, K/2].

    >>> import math
    >>> quarter = torch.tensor([[math.pi / 2]])
    >>> rotate(torch.tensor([[3.0, 1.0]]), quarter).round(decimals=4).tolist()
    [[-1.0, 3.0]]
    """
    check_float(x, "x")
    check_float(angles, "angles")
    require(layout in LAYOUTS, "layout", repr(layout), " or ".join(map(repr, LAYOUTS)))
    shape = list(x.shape)
    require(x.ndim >= 2, "x", f"shape {shape}", "[..., T, K]", ShapeError)
    fits = angles.shape[-2:] == (x.shape[-2], x.shape[-1] // 2)
    given, allowed = f"shape {list(angles.shape)}", f"[..., {x.shape[-2]}, {x.shape[-1] // 2}]"
    require(fits and x.shape[-1] % 2 == 0, "angles", given, allowed, ShapeError)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if layout == "halves":
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.flatten(-2)


def to_halves(weight, heads):
    """Rows [H·K, ...] of a projection in interleaved order, put in the order of "halves".

    >>> to_halves(torch.arange(8)[:, None], heads=2)[:, 0].tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    tensor = isinstance(weight, torch.Tensor) and weight.ndim >= 1
    require(tensor, "weight", type(weight).__name__, "a tensor [H·K, ...]", TypeError)
    rows = weight.shape[0]
    whole("heads", heads)
    require(
        rows > 0 and rows % (2 * heads) == 0, "weight", f"{rows} rows", f"a multiple of {2 * heads}"
    )
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


class RotaryPositions(nn.Module):
    """x [B, H, T, K] turned to the positions offset, offset + 1, …; no parameters.

    Cosines and sines are computed in float64 once for each length and kept for the next call.

    >>> list(RotaryPositions(6)(torch.ones(3, 4, 5, 6), offset=2).shape)
    [3, 4, 5, 6]
    """

    def __init__(self, width, base=10000.0):
        super().__init__()
        _check_sizes(width, base)
        self.width, self.base = width, base
        self._table = None

    def forward(self, x, offset=0, positions=None):
        """`positions`, ids [T] or [B, T] from 0 on, replace the count offset, offset + 1, …"""
        check_float(x, "x")
        fits = x.ndim == 4 and x.shape[-1] == self.width
        require(fits, "x", f"shape {list(x.shape)}", f"[B, H, T, K={self.width}]", ShapeError)
        return _turned(x, *self._angles(x, x.shape[2], offset, positions))

    def turn(self, x, offset=0, positions=None):
        """A function of queries [B, H, T, K] and keys [B, G, T, K] that gives both of them turned.

        `x` [B, T, D] says how many positions there are, in which dtype and where.
        """
        check_float(x, "x")
        require(x.ndim == 3, "x", f"shape {list(x.shape)}", "[B, T, D]", ShapeError)
        cos, sin = self._angles(x, x.shape[1], offset, positions)

        def turned(q, k):
            _check_turned(q, cos, "q"), _check_turned(k, cos, "k")
            return _turned(q, cos, sin), _turned(k, cos, sin)

        return turned

    def _angles(self, x, T, offset, positions):
        """Cosines and signed sines of T positions, [T, K] or [B, 1, T, K], for x [B, ...]."""
        whole("offset", offset, 0)
        if positions is not None:
            check_ids(positions, "positions")
            shape, rows = list(positions.shape), [x.shape[0], T]
            allowed = f"shape {[T]} or {rows}"
            require(shape in ([T], rows), "positions", f"shape {shape}", allowed, ShapeError)
            cos, sin = _tables(positions, self.width, self.base, x.dtype)
            return (cos, sin) if positions.ndim == 1 else (cos[:, None], sin[:, None])
        kept, end = self._table, offset + T
        made_for = None if kept is None else (kept[0].dtype, kept[0].device)
        if made_for and _only_for_inference(kept[0]):
            made_for = None
        if made_for != (x.dtype, x.device) or kept[0].shape[0] < end:
            places = torch.arange(max(64, 2 * end), device=x.device)
            self._table = kept = _tables(places, self.width, self.base, x.dtype)
        return kept[0][offset:end], kept[1][offset:end]


def _only_for_inference(x):
    """Whether a call in inference mode has made `x`, so that training now could not use it."""
    if torch.compiler.is_compiling():
        return False  # its own graph starts with what it finds
    return x.is_inference() and not torch.is_inference_mode_enabled()


def _tables(positions, width, base, dtype):
    """cos [..., K] for both halves, and sin [..., K] with a minus for the first one."""
    angles = _angles(positions, width, base)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def _angles(positions, width, base):
    """`rope_angles` of checked arguments."""
    steps = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    return positions.double()[..., None] * base**-steps


def _check_sizes(width, base):
    even = whole("width", width, 2) % 2 == 0
    require(even, "width", given=width, allowed="an even whole number of at least 2")
    # Far outside these bounds base^(2i/K) is no longer a finite number above 0.
    number("base", base, least=1e-9, most=1e15)


def _check_positions(positions):
    given = positions.dtype if isinstance(positions, torch.Tensor) else type(positions).__name__
    real = isinstance(positions, torch.Tensor) and not positions.is_complex()
    real = real and positions.dtype != torch.bool
    require(real, "positions", given, "a tensor of real numbers", TypeError)
    # Beyond 2⁵³ float64 skips whole numbers; NaN and infinity fail too.
    exact = not readable(positions) or bool((positions.double().abs() <= 2**53).all())
    require(exact, "positions", "a larger number, NaN or infinity", "finite numbers up to 2⁵³")


def _check_turned(x, cos, name):
    """None, or an error unless the angles fit x [B, H, T, K]: nothing is repeated silently."""
    shape, rows = x.shape, cos.shape
    if len(shape) != 4 or shape[2:] != rows[-2:] or (len(rows) == 4 and shape[0] != rows[0]):
        B = rows[0] if len(rows) == 4 else "B"
        allowed = f"[{B}, H, T={rows[-2]}, K={rows[-1]}]"
        require(False, name, f"shape {list(shape)}", allowed, ShapeError)


def _turned(x, cos, sin):
    """`rotate` in three steps: rolling by half the width puts every number beside its partner."""
    if x.dtype != cos.dtype:  # under autocast projections have another dtype than embeddings
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
