"""Sampling: draw the next token instead of taking the best, from a distribution one has shaped.

The order is temperature, then top-k, then top-p, as in most generators. What is left is normalised
again. Of equal probabilities the smaller id counts as the larger one, so exactly k tokens stay.
"""

import math

import torch

from labcore.attention.scores import check_float
from labcore.decode.checks import CheckedScore, check_generator, check_prefix, check_top
from labcore.shapes import number, require, whole


def next_probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    """Probabilities [..., Y] in float64 after temperature, top-k and top-p.

    p_i ∝ exp(z_i / τ); top-k keeps the k largest (Fan et al. 2018, section 5.4); top-p keeps the
    smallest set of largest probabilities whose sum reaches p (Holtzman et al. 2020, eq. 2), so
    never fewer than one. Raises ValueError for a temperature that is not positive, a top_k below
    1, a top_p outside (0, 1], NaN, and rows without a finite logit.

    >>> next_probabilities(torch.tensor([1.0, 1.0, 0.0]), top_k=2).tolist()
    [0.5, 0.5, 0.0]
    """
    _check_shape(temperature, top_k, top_p)
    check_float(logits, "logits")
    require(logits.ndim >= 1 and logits.shape[-1] >= 1, "logits", list(logits.shape), "[..., Y]")
    check_top(logits.amax(-1), "logits")
    return _shaped(logits, temperature, top_k, top_p)


def keep_top_k(p, k):
    """Probabilities [..., Y] with all but the k largest set to 0, normalised again.

    >>> keep_top_k(torch.tensor([0.5, 0.25, 0.25]), 2).tolist()
    [0.6666666865348816, 0.3333333432674408, 0.0]
    """
    check_shares(p)
    whole("k", k)
    order = p.sort(dim=-1, descending=True, stable=True).indices
    keep = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order[..., :k], True)
    return _normalised(p * keep)


def keep_top_p(p, top_p):
    """Probabilities [..., Y] of the smallest set whose sum reaches `top_p`, normalised again.

    A token stays when the larger ones before it sum to less than `top_p`.

    >>> keep_top_p(torch.tensor([0.5, 0.25, 0.25]), 0.6).tolist()
    [0.6666666865348816, 0.3333333432674408, 0.0]
    """
    check_shares(p)
    number("top_p", top_p, above=0, most=1)
    ranked, order = p.sort(dim=-1, descending=True, stable=True)
    before = torch.cat([torch.zeros_like(ranked[..., :1]), ranked.cumsum(-1)[..., :-1]], -1)
    keep = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order, before < top_p)
    return _normalised(p * keep)


def draw(p, generator=None):
    """One id [...] for each row of probabilities [..., Y]: inversion of the running sum.

    With u ~ U(0, 1) it is the first id whose running sum is above u. An id of probability 0 is
    never drawn.

    >>> draw(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [1, 2]
    """
    check_shares(p), check_generator(generator)
    return _inverted(p, generator)


@torch.no_grad()
def sample(
    score, start_BT, *, max_new_tokens, eos=None, pad=0, temperature=1.0, top_k=None, top_p=1.0,
    generator=None,
):  # fmt: skip
    """Ids [B, T + new] of `start_BT` continued by ancestral sampling, one draw a step.

    y_t ~ p(· | y_<t), shaped by `next_probabilities`. A row that drew `eos` is filled with `pad`;
    the loop ends when every row has, or after `max_new_tokens`. `score(prefix_BT)` gives logits
    [B, Y]. Raises ValueError for an `eos` outside the vocabulary and whatever
    `next_probabilities` refuses.

    >>> score = lambda prefix: torch.zeros(len(prefix), 7)
    >>> start = torch.zeros(3, 1, dtype=torch.long)
    >>> list(sample(score, start, max_new_tokens=5, generator=torch.Generator()).shape)
    [3, 6]
    """
    check_prefix(start_BT, "start")
    require(len(start_BT) > 0, "start", f"shape {list(start_BT.shape)}", "[B, T] with B ≥ 1")
    whole("max_new_tokens", max_new_tokens), check_generator(generator)
    _check_shape(temperature, top_k, top_p)
    ask = CheckedScore(score, eos=eos, pad=whole("pad", pad, 0))
    ids, done = start_BT, torch.zeros(len(start_BT), dtype=torch.bool, device=start_BT.device)
    for _ in range(max_new_tokens):
        p = _shaped(ask(ids), temperature, top_k, top_p)
        token = _inverted(p, generator).masked_fill(done, pad)
        ids = torch.cat([ids, token[:, None]], 1)
        if eos is not None:
            done = done | (token == eos)
            if done.all():
                break
    return ids


def check_shares(p):
    """None, or an error unless `p` holds probabilities [..., Y]: none below 0, rows that sum to 1.

    >>> check_shares(torch.tensor([0.2, 0.2]))
    Traceback (most recent call last):
    ValueError: p: got rows that sum to 0.4 to 0.4; allowed: rows that sum to 1
    """
    check_float(p, "p")
    require(p.ndim >= 1 and p.shape[-1] >= 1, "p", f"shape {list(p.shape)}", "[..., Y] with Y ≥ 1")
    if not p.numel():
        return
    least, most = (end.item() for end in p.double().sum(-1).aminmax())
    allowed = "probabilities: finite numbers of at least 0"
    require(p.min().item() >= 0 and most < math.inf, "p", "NaN, +inf or a negative number", allowed)
    slack = 1e-2 if p.element_size() < 4 else 1e-3
    near = 1 - slack <= least and most <= 1 + slack
    require(near, "p", f"rows that sum to {least:g} to {most:g}", "rows that sum to 1")


def _check_shape(temperature, top_k, top_p):
    number("temperature", temperature, above=0), number("top_p", top_p, above=0, most=1)
    if top_k is not None:
        whole("top_k", top_k)


def _shaped(logits, temperature, top_k, top_p):
    """`next_probabilities` of checked arguments."""
    logits = logits.double()
    # The largest becomes 0 first: divided by a small temperature, it alone would overflow.
    p = ((logits - logits.amax(-1, keepdim=True)) / temperature).softmax(-1)
    if top_k is not None and top_k < p.shape[-1]:
        p = keep_top_k(p, top_k)
    return keep_top_p(p, top_p) if top_p < 1 else p


def _inverted(p, generator):
    """`draw` from checked probabilities."""
    u = torch.rand(p.shape[:-1], generator=generator, dtype=torch.float64, device=p.device)
    running = p.double().cumsum(-1)
    running = running / running[..., -1:]  # the last sum may miss 1 by a rounding
    return torch.searchsorted(running, u[..., None], right=True)[..., 0]


def _normalised(p):
    return p / p.sum(-1, keepdim=True)
