"""Normalisation: a set of numbers is shifted to mean 0 and scaled to variance 1, then stretched.

LayerNorm(x) = (x - mean) / √(variance + ε) · weight + bias, per vector of width D (Ba et al. 2016,
eq. 4). The variance divides by D, not by D - 1, and ε stands inside the root: with both done the
other way a layer of width 8 is 6.5 % off.

The other norms are the same line over other sets. On images [N, C, ...] "batch" pools a channel of
all images (Ioffe and Szegedy 2015), "layer" one image, "instance" one channel of one image
(Ulyanov et al. 2016), and "group" a few channels of one image (Wu and He 2018). Only BatchNorm
needs a memory: without a batch to pool, it uses the statistics that training has left.
"""

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention.scores import check_alike, check_float, check_input
from labcore.shapes import ShapeError, flag, number, require, whole

KINDS = ("batch", "layer", "instance", "group", "token")


def standardise(x, axes, eps=1e-5):
    """(x - mean) / √(variance + ε), mean and variance pooled over `axes`; of the shape of x.

    With `eps` = 0 a set without any spread gives NaN: 0 / 0.

    >>> standardise(torch.tensor([[1.0, 5.0], [3.0, 7.0]]), (0, 1), eps=0).flatten().tolist()[1:3]
    [0.4472135901451111, -0.4472135901451111]
    """
    number("eps", eps, least=0)
    mean = x.mean(axes, keepdim=True)
    variance = (x - mean).square().mean(axes, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps)


def layer_norm(x, weight=None, bias=None, eps=1e-5, axes=1):
    """Normalised vectors, of the shape of x [..., D]; `weight` and `bias` are [D] or None.

    `axes` is how many of the last axes are pooled: 1 for the features of a token, 3 for a whole
    image [C, H, W]; `weight` and `bias` have their shape.

    >>> x = torch.tensor([[1.0, 2.0, 3.0, 6.0]], dtype=torch.float64)
    >>> layer_norm(x).round(decimals=4).tolist()
    [[-1.069, -0.5345, 0.0, 1.6036]]
    """
    check_float(x, "x")
    shape = list(x.shape)
    pooled = f"[..., {'D' if axes == 1 else f'{axes} axes'}]"
    full = x.ndim >= axes >= 1 and min(shape[-axes:]) >= 1
    require(full, "x", f"shape {shape}", f"{pooled} with sizes of 1 or more")
    _check_affine(weight, bias, shape[-axes:], x)
    return _stretched(standardise(x, tuple(range(-axes, 0)), eps), weight, bias)


def normalise(x, kind, groups=None, eps=1e-5):
    """x [N, C, ...] (or [..., D] for "token") with each set of `kind` at mean 0 and variance 1.

    The sets are `KINDS`: all images and places of a channel ("batch"), everything in an image
    ("layer"), one channel of an image ("instance"), C / `groups` channels of an image ("group"),
    or the last axis ("token").

    >>> x = torch.arange(24.0).reshape(2, 6, 2)
    >>> torch.equal(normalise(x, "group", groups=1), normalise(x, "layer"))
    True
    """
    check_float(x, "x")
    parts, axes = _parted(x, kind, groups)
    return standardise(parts, axes, eps).reshape(x.shape)


def pooled_sets(shape, kind, groups=None):
    """Whole numbers of this shape: which set of `kind` each element is pooled with, from 0 on.

    They come from the very axes that `normalise` reduces, so a picture of them cannot be wrong.

    >>> pooled_sets([2, 3], "batch").tolist(), pooled_sets([2, 3], "layer").tolist()
    ([[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [1, 1, 1]])
    """
    empty = torch.empty(shape)
    parts, axes = _parted(empty, kind, groups)
    sizes = [1 if a in axes or a - parts.ndim in axes else n for a, n in enumerate(parts.shape)]
    numbers = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    return numbers.expand(parts.shape).reshape(empty.shape)


class BatchNorm(nn.Module):
    """x [N, C, ...] normalised per channel: in training by the batch, in evaluation by memory.

    `running_mean` and `running_var` [C] move by `momentum` towards the statistics of each batch in
    training (the variance there divides by n - 1, as in torch); None keeps the plain average of all
    batches. A single number a channel has no variance: that is refused in training.

    >>> layer = BatchNorm(6)
    >>> list(layer(torch.randn(3, 6, 4, 5)).shape), layer.batches.item()
    ([3, 6, 4, 5], 1)
    """

    def __init__(self, channels, eps=1e-5, momentum=0.1, affine=True):
        super().__init__()
        fits = momentum is None or 0 <= momentum <= 1
        require(fits, "momentum", given=momentum, allowed="a number from 0 to 1, or None")
        self.eps, self.momentum = number("eps", eps, above=0), momentum
        whole("channels", channels)
        self.weight, self.bias = _affine((channels,), affine)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("batches", torch.tensor(0))

    def forward(self, x):
        _check_channels(x, self.running_mean.shape[0])
        if self.training:
            pooled = x.numel() // x.shape[1]
            allowed = "at least 2 numbers a channel in training"
            require(pooled >= 2, "x", f"shape {list(x.shape)}", allowed, ShapeError)
            self._remember(x.detach())
            normal = normalise(x, "batch", eps=self.eps)
        else:
            mean, variance = (_by_channel(s, x) for s in (self.running_mean, self.running_var))
            normal = (x - mean) / torch.sqrt(variance + self.eps)
        return _stretched(normal, *(_by_channel(p, x) for p in (self.weight, self.bias)))

    @torch.no_grad()
    def _remember(self, x):
        self.batches += 1
        share = 1 / self.batches.item() if self.momentum is None else self.momentum
        axes = (0, *range(2, x.ndim))
        self.running_mean.lerp_(x.mean(axes), share)
        self.running_var.lerp_(x.var(axes, correction=1), share)


class InstanceNorm(nn.Module):
    """x [N, C, ...] normalised per image and channel, alike in training and evaluation.

    >>> list(InstanceNorm(6)(torch.randn(3, 6, 4, 5)).shape)
    [3, 6, 4, 5]
    """

    def __init__(self, channels, eps=1e-5, affine=False):
        super().__init__()
        self.channels, self.eps = whole("channels", channels), number("eps", eps, above=0)
        self.weight, self.bias = _affine((channels,), affine)

    def forward(self, x):
        _check_channels(x, self.channels)
        places = x[0, 0].numel() if x.shape[0] else 2
        require(
            places >= 2, "x", f"shape {list(x.shape)}", "at least 2 places a channel", ShapeError
        )
        normal = normalise(x, "instance", eps=self.eps)
        return _stretched(normal, *(_by_channel(p, x) for p in (self.weight, self.bias)))


class GroupNorm(nn.Module):
    """x [N, C, ...] normalised per image and group of C / `groups` neighbouring channels.

    >>> list(GroupNorm(2, 6)(torch.randn(3, 6, 4, 5)).shape)
    [3, 6, 4, 5]
    """

    def __init__(self, groups, channels, eps=1e-5, affine=True):
        super().__init__()
        _check_groups(groups, whole("channels", channels))
        self.groups, self.channels, self.eps = groups, channels, number("eps", eps, above=0)
        self.weight, self.bias = _affine((channels,), affine)

    def forward(self, x):
        _check_channels(x, self.channels)
        normal = normalise(x, "group", self.groups, self.eps)
        return _stretched(normal, *(_by_channel(p, x) for p in (self.weight, self.bias)))


class LayerNorm(nn.Module):
    """`layer_norm` with a learned weight (ones at first) and bias (zeros at first).

    `width` is D, or a shape such as (C, H, W) whose axes are pooled together. It calls torch's
    fused kernel, which computes the same formula in one pass.

    >>> list(LayerNorm(6)(torch.randn(3, 5, 6)).shape)
    [3, 5, 6]
    """

    def __init__(self, width, eps=1e-5, bias=True):
        super().__init__()
        self.eps = number("eps", eps, above=0)
        sizes = width if isinstance(width, (tuple, list)) else (width,)
        shape = tuple(whole("width", size) for size in sizes)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if flag("bias", bias) else None

    def forward(self, x):
        shape = tuple(self.weight.shape)
        if len(shape) > 1:
            check_float(x, "x")
            fits, told = x.shape[-len(shape) :] == shape, ", ".join(map(str, shape))
            require(fits, "x", f"shape {list(x.shape)}", f"[..., {told}]", ShapeError)
        check_input(x, "x", self.weight)
        return F.layer_norm(x, shape, self.weight, self.bias, self.eps)


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
    _check_affine(weight, None, shape[-1:], x)
    number("eps", eps, least=0)
    normal = x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


class RMSNorm(nn.Module):
    """`rms_norm` with a learned weight, ones at first, through torch's own function.

    >>> list(RMSNorm(6)(torch.randn(3, 5, 6)).shape)
    [3, 5, 6]
    """

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = number("eps", eps, above=0)
        self.weight = nn.Parameter(torch.ones(whole("width", width)))

    def forward(self, x):
        check_input(x, "x", self.weight)
        return F.rms_norm(x, tuple(self.weight.shape), self.weight, self.eps)


def _parted(x, kind, groups):
    """x with its channels split into groups where `kind` needs it, and the axes to pool."""
    require(kind in KINDS, "kind", given=repr(kind), allowed=", ".join(map(repr, KINDS)))
    if kind == "token":
        return x, (-1,)
    least = 3 if kind == "instance" else 2
    allowed = "[N, C, ...] with at least one place" if kind == "instance" else "[N, C, ...]"
    require(x.ndim >= least, "x", f"shape {list(x.shape)}", allowed, ShapeError)
    inside = tuple(range(2, x.ndim))
    if kind == "group":
        _check_groups(groups, x.shape[1])
        parts = x.unflatten(1, (groups, x.shape[1] // groups))
        return parts, tuple(range(2, parts.ndim))
    return x, {"batch": (0, *inside), "layer": (1, *inside), "instance": inside}[kind]


def _affine(shape, learned):
    if not learned:
        return None, None
    return nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))


def _stretched(normal, weight, bias):
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def _by_channel(vector_C, x):
    """A vector over channels shaped so that it meets axis 1 of x; None stays None."""
    return None if vector_C is None else vector_C.reshape(-1, *[1] * (x.ndim - 2))


def _check_affine(weight, bias, shape, x):
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            check_alike(given, name, x, "x")
            fits = list(given.shape) == list(shape)
            require(fits, name, f"shape {list(given.shape)}", f"shape {list(shape)}", ShapeError)


def _check_channels(x, channels):
    check_float(x, "x")
    fits = x.ndim >= 2 and x.shape[1] == channels
    require(fits, "x", f"shape {list(x.shape)}", f"[N, C={channels}, ...]", ShapeError)


def _check_groups(groups, channels):
    fits = channels % whole("groups", groups) == 0
    require(fits, "groups", given=repr(groups), allowed=f"a divisor of {channels} channels")
