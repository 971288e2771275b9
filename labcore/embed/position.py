"""Vectors that say where a token stands, to be added to the vectors that say what it is.

Attention alone cannot tell order: shuffled inputs give shuffled outputs. Adding a vector e_p to the
input at position p breaks the tie. Positions count from 0.
"""

import numbers

import torch
from torch import nn

from labcore.attention.scores import check_float, check_input
from labcore.shapes import ShapeError, check_ids, number, readable, require, whole


def sinusoidal(positions, width, base=10000.0, *, dtype=torch.float64, device=None):
    """Codes [n, D]: PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i + 1) = cos of the same angle.

    Vaswani et al. 2017, section 3.5. `positions` is a whole number n (for 0 … n - 1), a list or a
    tensor [n] of finite numbers, fractions and negative ones too. D must be even. The angles are
    computed in float64 whatever `dtype` is: in float32, codes near position 100,000 would be wrong
    from the third decimal on.

    >>> sinusoidal(2, 4).round(decimals=3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    whole("width", width, 2)
    require(width % 2 == 0, "width", given=width, allowed="an even whole number of at least 2")
    # Far outside these bounds base^(2i/D) is no longer a finite number above 0.
    number("base", base, least=1e-9, most=1e15)
    real = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    require(real, "dtype", given=dtype, allowed="a floating-point dtype", error=TypeError)
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

    def forward(self, x, offset=0, positions=None):
        """`positions`, ids [T] or [B, T], replace the count offset, offset + 1, …"""
        check_inputs(x, self.width)
        whole("offset", offset, 0)
        if positions is not None:
            check_places(positions, x)
            codes = sinusoidal(positions.flatten(), self.width, self.base, dtype=x.dtype)
            return x + codes.unflatten(0, positions.shape)
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
        whole("max_length", max_length), whole("width", width)
        self.weight = nn.Parameter(torch.empty(max_length, width).normal_(std=0.02))

    def forward(self, x, offset=0, positions=None):
        """`positions`, ids [T] or [B, T], replace the count offset, offset + 1, …"""
        check_inputs(x, self.weight.shape[1])
        check_input(x, "x", self.weight)
        whole("offset", offset, 0)
        longest = self.weight.shape[0]
        if positions is not None:
            check_places(positions, x, longest)
            return x + nn.functional.embedding(positions, self.weight)
        end = offset + x.shape[-2]
        require(end <= longest, "x", f"positions up to {end - 1}", f"positions 0 to {longest - 1}")
        return x + self.weight[offset:end]


def check_inputs(x, width):
    """None, or an error unless x is a floating-point tensor [..., T, D] of this width."""
    check_float(x, "x")
    fits = x.ndim >= 2 and x.shape[-1] == width
    require(fits, "x", f"shape {list(x.shape)}", f"[..., T, D={width}]", error=ShapeError)


def check_places(positions, x, count=None):
    """None, or an error unless `positions` are ids [T] or [..., T] (below `count`) that fit x."""
    check_ids(positions, "positions", count)
    fits = positions.ndim >= 1 and x.shape[-1 - positions.ndim : -1] == positions.shape
    given, allowed = f"shape {list(positions.shape)}", f"shape {list(x.shape[:-1])} or its end"
    require(fits, "positions", given, allowed, error=ShapeError)


def _places(positions, device):
    """Positions as a float64 tensor [n], checked."""
    if isinstance(positions, numbers.Integral):
        return torch.arange(whole("positions", positions, 0), dtype=torch.float64, device=device)
    if isinstance(positions, (list, tuple, range)):
        positions = [number("positions", place) for place in positions]
        positions = torch.tensor(positions, dtype=torch.float64)
    given, allowed = type(positions).__name__, "a count, a list or a tensor [n]"
    tensor = isinstance(positions, torch.Tensor)
    require(tensor, "positions", given=given, allowed=allowed, error=TypeError)
    places = positions.to(device) if device is not None else positions
    real = places.dtype != torch.bool and not places.is_complex()
    require(real, "positions", places.dtype, "numbers", error=TypeError)
    shape = list(places.shape)
    require(places.ndim == 1, "positions", f"shape {shape}", "a count or shape [n]")
    places = places.double()
    exact = not readable(places) or bool((places.abs() <= 2**53).all())  # NaN fails too
    allowed = "finite numbers up to 2⁵³, beyond which float64 skips whole numbers"
    require(exact, "positions", given="a larger number, NaN or infinity", allowed=allowed)
    return places
