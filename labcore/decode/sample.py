"""Sampling: draw the next token instead of taking the best, from a distribution one has shaped.

The order is temperature, then top-k, then top-p, as in most generators. What is left is normalised
again. Of equal probabilities the smaller id counts as the larger one, so exactly k tokens stay.
"""

import math

import torch

from labcore.shapes import require


def next_probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    """Probabilities [..., Y] in float64 after temperature, top-k and top-p.

    p_i ∝ exp(z_i / τ); top-k keeps the k largest (Fan et al. 2018, section 5.4); top-p keeps the
    smallest set of largest probabilities whose sum reaches p (Holtzman et al. 2020, eq. 2), so
    never fewer than one. Raises ValueError for a temperature that is not positive, a top_k below
    1, a top_p outside (0, 1], NaN, and rows without a finite logit.

    >>> next_probabilities(torch.tensor([1.0, 1.0, 0.0]), top_k=2).tolist()
    [0.5, 0.5, 0.0]
    """
    require(_positive(temperature), "temperature", repr(temperature), "a number above 0")
    whole = top_k is None or (isinstance(top_k, int) and not isinstance(top_k, bool) and top_k > 0)
    require(whole, "top_k", repr(top_k), "None, or a whole number of at least 1")
    require(_positive(top_p) and top_p <= 1, "top_p", repr(top_p), "above 0 and at most 1")
    logits = logits.double()
    good = bool((logits < math.inf).all()) and bool((logits > -math.inf).any(-1).all())
    require(good, "logits", "NaN, +inf or a row of -inf", "a finite logit in each row")
    p = (logits / temperature).softmax(-1)
    if top_k is not None and top_k < p.shape[-1]:
        p = keep_top_k(p, top_k)
    return keep_top_p(p, top_p) if top_p < 1 else p


def keep_top_k(p, k):
    """Probabilities [..., Y] with all but the k largest set to 0, normalised again.

    >>> keep_top_k(torch.tensor([0.5, 0.25, 0.25]), 2).tolist()
    [0.6666666865348816, 0.3333333432674408, 0.0]
    """
    order = p.sort(dim=-1, descending=True, stable=True).indices
    keep = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order[..., :k], True)
    return _normalised(p * keep)


def keep_top_p(p, top_p):
    """Probabilities [..., Y] of the smallest set whose sum reaches `top_p`, normalised again.

    A token stays when the larger ones before it sum to less than `top_p`.

    >>> keep_top_p(torch.tensor([0.5, 0.25, 0.25]), 0.6).tolist()
    [0.6666666865348816, 0.3333333432674408, 0.0]
    """
    ranked, order = p.sort(dim=-1, descending=True, stable=True)
    before = torch.cat([torch.zeros_like(ranked[..., :1]), ranked.cumsum(-1)[..., :-1]], -1)
    keep = torch.zeros_like(p, dtype=torch.bool).scatter(-1, order, before < top_p)
    return _normalised(p * keep)


def draw(p, generator=None):
    """One id [...] for each row of probabilities [..., Y]: inversion of the running sum.

    With u ~ U(0, 1) it is the first id whose running sum is above u.

    An id of probability 0 is never drawn.

    >>> draw(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [1, 2]
    """
    u = torch.rand(p.shape[:-1], generator=generator, dtype=torch.float64, device=p.device)
    running = p.double().cumsum(-1)
    running = running / running[..., -1:]  # the last sum may miss 1 by a rounding
    return torch.searchsorted(running, u[..., None], right=True)[..., 0]


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
    shape = list(start_BT.shape)
    require(len(shape) == 2 and shape[0] > 0, "start", f"shape {shape}", "[B, T] with B ≥ 1")
    good = isinstance(max_new_tokens, int) and max_new_tokens >= 1
    require(good, "max_new_tokens", repr(max_new_tokens), "a whole number of at least 1")
    ids, done = start_BT, torch.zeros(shape[0], dtype=torch.bool, device=start_BT.device)
    for _ in range(max_new_tokens):
        logits = score(ids)
        Y = logits.shape[-1]
        inside = eos is None or 0 <= eos < Y
        require(inside, "eos", eos, f"an id below the vocabulary size {Y}, from 0")
        p = next_probabilities(logits, temperature, top_k, top_p)
        token = draw(p, generator).masked_fill(done, pad)
        ids = torch.cat([ids, token[:, None]], 1)
        if eos is not None:
            done = done | (token == eos)
            if done.all():
                break
    return ids


def _normalised(p):
    return p / p.sum(-1, keepdim=True)


def _positive(value):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0
