"""Layer normalisation: every vector is shifted to mean 0 and scaled to variance 1, then stretched.

LayerNorm(x) = (x - mean) / √(variance + ε) · weight + bias, per vector of width D (Ba et al. 2016,
eq. 4). The variance divides by D, not by D - 1, and ε stands inside the root: with both done the
other way a layer of width 8 is 6.5 % off.
"""

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention.scores import check_float
from labcore.shapes import ShapeError, require


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Normalised vectors, of the shape of x [..., D]; `weight` and `bias` are [D] or None.

    >>> x = torch.tensor([[1.0, 2.0, 3.0, 6.0]], dtype=torch.float64)
    >>> layer_norm(x).round(decimals=4).tolist()
    [[-1.069, -0.5345, 0.0, 1.6036]]
    """
    check_float(x, "x")
    shape = list(x.shape)
    require(x.ndim >= 1 and shape[-1] >= 1, "x", f"shape {shape}", "[..., D] with D of 1 or more")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            fits = list(given.shape) == shape[-1:]
            require(fits, name, f"shape {list(given.shape)}", f"shape [{shape[-1]}]", ShapeError)
    require(eps >= 0, "eps", given=eps, allowed="a number of at least 0")
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    normal = (x - mean) / torch.sqrt(variance + eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


class LayerNorm(nn.Module):
    """`layer_norm` with a learned weight (ones at first) and bias (zeros at first).

    It calls torch's fused kernel, which computes the same formula in one pass.

    >>> list(LayerNorm(6)(torch.randn(3, 5, 6)).shape)
    [3, 5, 6]
    """

    def __init__(self, width, eps=1e-5, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        check_float(x, "x")
        width = self.weight.shape[0]
        fits = x.ndim >= 1 and x.shape[-1] == width
        require(fits, "x", f"shape {list(x.shape)}", f"[..., D={width}]", ShapeError)
        return F.layer_norm(x, (width,), self.weight, self.bias, self.eps)


def rms_norm(x, weight=None, eps=1e-6):
    """x / √(mean of x² + ε) · weight, of the shape of x [..., D] (Zhang and Sennrich 2019, eq. 4).

    Half of layer normalisation: the length is set to √D, the mean stays where it is, and there is
    no bias. T5 and Llama take it.

    >>> x = torch.tensor([[1.0, 2.0, 3.0, 6.0]], dtype=torch.float64)
    >>> rms_norm(x).round(decimals=4).tolist()
    [[0.2828, 0.5657, 0.8485, 1.6971]]
    """
    check_float(x, "x")
    shape = list(x.shape)
    require(x.ndim >= 1 and shape[-1] >= 1, "x", f"shape {shape}", "[..., D] with D of 1 or more")
    if weight is not None:
        fits = list(weight.shape) == shape[-1:]
        require(fits, "weight", f"shape {list(weight.shape)}", f"shape [{shape[-1]}]", ShapeError)
    require(eps >= 0, "eps", given=eps, allowed="a number of at least 0")
    normal = x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


class RMSNorm(nn.Module):
    """`rms_norm` with a learned weight, ones at first, through torch's own function.

    >>> list(RMSNorm(6)(torch.randn(3, 5, 6)).shape)
    [3, 5, 6]
    """

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        check_float(x, "x")
        width = self.weight.shape[0]
        fits = x.ndim >= 1 and x.shape[-1] == width
        require(fits, "x", f"shape {list(x.shape)}", f"[..., D={width}]", ShapeError)
        return F.rms_norm(x, (width,), self.weight, self.eps)
