"""Vectors that say where a token stands, to be added to the vectors that say what it is.

Attention alone cannot tell order: shuffled inputs give shuffled outputs. Adding a vector e_p to the
input at position p breaks the tie. Positions count from 0.
"""

import math

import torch
from torch import nn

from labcore.attention.scores import check_float
from labcore.embed.token import check_ids
from labcore.shapes import ShapeError, require


def sinusoidal(positions, width, base=10000.0, *, dtype=torch.float64, device=None):
    """Codes [n, D]: PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i + 1) = cos of the same angle.

    Vaswani et al. 2017, section 3.5. `positions` is a whole number n (for 0 … n - 1), a list or a
    tensor [n] of finite numbers, fractions and negative ones too. D must be even. The angles are
    computed in float64 whatever `dtype` is: in float32, codes near position 100,000 would be wrong
    from the third decimal on.

    >>> sinusoidal(2, 4).round(decimals=3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    even = isinstance(width, int) and not isinstance(width, bool) and width >= 2 and width % 2 == 0
    require(even, "width", given=repr(width), allowed="an even whole number of at least 2")
    finite = isinstance(base, (int, float)) and math.isfinite(base) and base > 0
    require(finite, "base", given=repr(base), allowed="a finite number above 0")
    places = _places(positions, device)
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=places.device) / width
    angles = places[:, None] / base**exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(dtype)


class SinusoidalPositions(nn.Module):
    """x + codes: inputs [..., T, D] with the sinusoidal code of `offset` + t added at position t.

    It has no parameters and no longest length.

    >>> x = torch.zeros(3, 2, 4, dtype=torch.float64)
    >>> SinusoidalPositions(4)(x)[0].round(decimals=3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """

    def __init__(self, width, base=10000.0):
        super().__init__()
        sinusoidal(0, width, base)  # refuses a bad width or base now, not at the first batch
        self.width, self.base = width, base

    def forward(self, x, offset=0):
        check_inputs(x, self.width)
        _check_offset(offset)
        places = torch.arange(offset, offset + x.shape[-2], device=x.device)
        return x + sinusoidal(places, self.width, self.base, dtype=x.dtype)


class LearnedPositions(nn.Module):
    """x + rows of a learned table: inputs [..., T, D] with row `offset` + t added at position t.

    The table [max_length, D] ends somewhere: a position beyond it is an error, not a guess.

    >>> LearnedPositions(9, 6).weight.shape
    torch.Size([9, 6])
    """

    def __init__(self, max_length, width):
        super().__init__()
        for name, value in (("max_length", max_length), ("width", width)):
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, name, given=repr(value), allowed="a whole number of at least 1")
        self.weight = nn.Parameter(torch.empty(max_length, width).normal_(std=0.02))

    def forward(self, x, offset=0, positions=None):
        """`positions`, an int tensor [T] or [B, T], replaces the count offset, offset + 1, …"""
        check_inputs(x, self.weight.shape[1])
        _check_offset(offset)
        longest = self.weight.shape[0]
        if positions is not None:
            check_ids(positions, "positions", longest)
            fits = positions.ndim >= 1 and x.shape[-1 - positions.ndim : -1] == positions.shape
            given, allowed = (
                f"shape {list(positions.shape)}",
                f"shape {list(x.shape[:-1])} or its end",
            )
            require(fits, "positions", given, allowed, error=ShapeError)
            return x + nn.functional.embedding(positions, self.weight)
        end = offset + x.shape[-2]
        require(end <= longest, "x", f"positions up to {end - 1}", f"positions 0 to {longest - 1}")
        return x + self.weight[offset:end]


def check_inputs(x, width):
    """None, or an error unless x is a floating-point tensor [..., T, D] of this width."""
    check_float(x, "x")
    fits = x.ndim >= 2 and x.shape[-1] == width
    require(fits, "x", f"shape {list(x.shape)}", f"[..., T, D={width}]", error=ShapeError)


def _check_offset(offset):
    ok = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
    require(ok, "offset", given=repr(offset), allowed="a whole number of at least 0")


def _places(positions, device):
    """Positions as a float64 tensor [n], checked."""
    if isinstance(positions, int) and not isinstance(positions, bool):
        require(positions >= 0, "positions", given=positions, allowed="a count of at least 0")
        return torch.arange(positions, dtype=torch.float64, device=device)
    places = torch.as_tensor(positions, device=device)
    numbers = places.dtype != torch.bool and not places.is_complex()
    require(numbers, "positions", places.dtype, "numbers", error=TypeError)
    shape = list(places.shape)
    require(places.ndim == 1, "positions", f"shape {shape}", "a count or shape [n]")
    places = places.double()
    finite = bool(places.isfinite().all())
    require(finite, "positions", given="NaN or infinity", allowed="finite numbers")
    return places
