"""How well a query matches a key: three scoring functions and the softmax that makes weights.

Shapes: queries [..., T, K], keys [..., S, K] with the same leading axes, scores [..., T, S].
"""

import math

import torch
from torch import nn

from labcore.attention.masks import check_mask
from labcore.shapes import ShapeError, number, require, whole


def dot_scores(q, k):
    """Scores [..., T, S]: score(t, s) = q_t · k_s (Luong et al. 2015, section 3.1, "dot").

    >>> keys = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> dot_scores(torch.tensor([[1.0, -1.0]]), keys).tolist()
    [[2.0, 0.0, -2.0]]
    """
    check_pair(q, k)
    return q @ k.transpose(-1, -2)


def scaled_dot_scores(q, k, scale=None):
    """Scores [..., T, S]: q_t · k_s times `scale`, 1/√K by default (Vaswani et al. 2017, eq. 1).

    >>> scaled_dot_scores(torch.ones(5, 4), torch.ones(7, 4))[0, 0].item()
    2.0
    """
    check_pair(q, k)
    # Scaling q costs T·K products, scaling the scores would cost T·S.
    return (q * checked_scale(scale, q.shape[-1])) @ k.transpose(-1, -2)


def additive_scores(q, k, w):
    """Scores [..., T, S]: score(t, s) = w · tanh(q_t + k_s) (Bahdanau et al. 2015, appendix A.1.2).

    `q` and `k` are already projected to one width K; `w` is [K]. The sum of every query with every
    key is held in memory, [..., T, S, K]: the price that the dot product does not pay.

    >>> keys = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> scores = additive_scores(torch.tensor([[1.0, -1.0]]), keys, torch.ones(2))
    >>> [round(x, 4) for x in scores[0].tolist()]
    [0.2335, 0.964, 1.5232]
    """
    check_pair(q, k)
    check_alike(w, "w", q)
    fits = tuple(w.shape) == (q.shape[-1],)
    require(fits, "w", given=f"shape {list(w.shape)}", allowed=f"shape [{q.shape[-1]}]")
    return torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ w


def softmax(scores, mask=None):
    """Weights over the last axis: exp(s_i) / Σ_j exp(s_j) over what `mask` allows, else zeros.

    The largest visible score is subtracted first, which changes nothing in exact arithmetic and
    keeps exp from overflowing. A row that sees nothing, or only scores of -∞, gives zeros with
    zero gradients. Half precision is summed in float32. NaN among the visible scores makes its row
    NaN, and so does +∞; hidden scores may be anything.

    >>> [round(x, 3) for x in softmax(torch.tensor([2.0, 1.0, 0.0, -1.0])).tolist()]
    [0.644, 0.237, 0.087, 0.032]
    >>> softmax(torch.zeros(1, 2), torch.tensor([[False, False]])).tolist()
    [[0.0, 0.0]]
    """
    check_float(scores, "scores")
    require(scores.ndim >= 1, "scores", given="a single number", allowed="at least one axis")
    if mask is not None:
        check_mask(mask, scores.shape, scores.device)
        scores = scores.masked_fill(~mask, -math.inf)
    if scores.shape[-1] == 0:
        return scores
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    top = wide.detach().amax(-1, keepdim=True)
    grown = (wide - top.masked_fill(top == -math.inf, 0)).exp()
    total = grown.sum(-1, keepdim=True)
    return (grown / total.masked_fill(total == 0, 1)).to(scores.dtype)


class AdditiveScore(nn.Module):
    """Scores [..., T, S] of raw inputs [..., T, D] and [..., S, D']: w · tanh(W_q x_t + W_k y_s).

    >>> list(AdditiveScore(5, 7, hidden=6)(torch.ones(3, 2, 5), torch.ones(3, 4, 7)).shape)
    [3, 2, 4]
    """

    def __init__(self, query_width, key_width=None, *, hidden):
        super().__init__()
        key_width = query_width if key_width is None else key_width
        hidden = whole("hidden", hidden)
        self.q_proj = nn.Linear(whole("query_width", query_width), hidden, bias=False)
        self.k_proj = nn.Linear(whole("key_width", key_width), hidden, bias=False)
        self.w = nn.Parameter(torch.empty(hidden).normal_(std=hidden**-0.5))

    def forward(self, x, memory=None):
        check_input(x, "x", self.q_proj.weight)
        memory = x if memory is None else memory
        check_input(memory, "memory", self.k_proj.weight)
        return additive_scores(self.q_proj(x), self.k_proj(memory), self.w)


def checked_scale(scale, width):
    """The factor on the scores: `scale` if it is a finite number, 1/√width if it is None."""
    if scale is None:
        return 1 / math.sqrt(width)
    return number("scale", scale)


def check_float(x, name):
    """None, or a TypeError unless `x` is a tensor of real floating-point numbers."""
    given = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
    ok = isinstance(x, torch.Tensor) and x.is_floating_point()
    require(ok, name, given=given, allowed="a floating-point tensor", error=TypeError)


def check_input(x, name, weight):
    """None, or an error unless x [..., D] has the width, dtype and device of a weight [..., D].

    Under autocast another dtype is fine: torch casts it.
    """
    plain = type(x) is torch.Tensor and x.dtype == weight.dtype and x.device == weight.device
    if plain and x.is_floating_point() and x.shape[-1:] == weight.shape[-1:]:
        return  # found in 2 µs: a layer must not spend its time on words that nobody reads
    check_float(x, name)
    width, shape = weight.shape[-1], list(x.shape)
    require(shape[-1:] == [width], name, f"shape {shape}", f"[..., D={width}]", ShapeError)
    there = x.device == weight.device
    require(there, name, f"device {x.device}", f"{weight.device}, as the weights")
    same = x.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type)
    require(same, name, x.dtype, f"{weight.dtype}, as the weights", error=TypeError)


def check_alike(x, name, reference, like="q"):
    """None, or an error unless `x` has the dtype and device of `reference`, called `like`."""
    check_float(x, name)
    same = x.dtype == reference.dtype
    require(same, name, given=x.dtype, allowed=f"{reference.dtype}, as {like}", error=TypeError)
    there = x.device == reference.device
    require(there, name, given=f"device {x.device}", allowed=f"{reference.device}, as {like}")


def check_pair(q, k):
    """None, or an error unless q [..., T, K] and k [..., S, K] share leading axes, with K ≥ 1."""
    check_float(q, "q")
    check_alike(k, "k", q)
    shape = list(q.shape)
    require(q.ndim >= 2, "q", given=f"shape {shape}", allowed="at least two axes, [..., T, K]")
    require(shape[-1] >= 1, "q", given=f"shape {shape}", allowed="a width K of at least 1")
    wanted = f"[{', '.join([*map(str, shape[:-2]), 'S', str(shape[-1])])}]"
    fits = k.ndim == q.ndim and k.shape[:-2] == q.shape[:-2] and k.shape[-1] == q.shape[-1]
    require(fits, "k", given=f"shape {list(k.shape)}", allowed=wanted)
