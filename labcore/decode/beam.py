"""Beam search: expand every kept prefix, prune over all of them together, backtrack.

`score(prefix_BT)` gives next-token logits [B, Y] of prefixes. A score that keeps a cache may have a
method `reorder(rows)`: it is called after each pruning with the old row of each new row.

Our choices, where implementations differ: a candidate that ends in `eos` is finished when it is
among the best k of its round, and it then frees its place, so k prefixes stay alive; lengths count
generated tokens, `eos` included; prefixes still alive after `max_new_tokens` compete as unfinished
hypotheses; of equal scores the earlier prefix, then the smaller token id comes first.
"""

import math
from typing import NamedTuple

import torch

from labcore.decode.checks import CheckedScore, check_prefix, check_top
from labcore.shapes import ShapeError, flag, number, require, whole

PENALTIES = ("gnmt", "power")
STOPS = ("bound", "count")


class Hypothesis(NamedTuple):
    """One result: generated ids, Σ log p, the value it is ranked by, whether it ends in `eos`."""

    ids: list
    score: float
    value: float
    finished: bool


class Round(NamedTuple):
    """One round: scores of all candidates [B, k, Y]; of the kept ones score, parent, token."""

    candidates_BKY: torch.Tensor
    scores_BK: torch.Tensor
    parents_BK: torch.Tensor
    tokens_BK: torch.Tensor


class BeamResult(NamedTuple):
    """Hypotheses of each sequence, best first; the rounds; prefixes expanded per sequence."""

    hypotheses: list
    rounds: list
    expanded: list


def log_probabilities(logits, normalise=True):
    """Log-probabilities [..., Y] in float64; a row of nothing but -∞ stays as it is.

    With `normalise=False` the numbers are log-probabilities already, and must not be above 0.

    >>> log_probabilities(torch.tensor([0.0, 0.0])).exp().tolist()
    [0.5, 0.5]
    """
    told = type(logits).__name__
    require(isinstance(logits, torch.Tensor), "score", told, "a tensor [..., Y]", TypeError)
    logits = logits.double()
    top = logits.amax(-1) if logits.numel() else logits.flatten()
    check_top(top, "score", dead=True)
    if flag("normalise", normalise):
        dead = (logits == -math.inf).all(-1, keepdim=True)
        return logits.masked_fill(dead, 0.0).log_softmax(-1).masked_fill(dead, -math.inf)
    most = top.max().item() if top.numel() else 0.0
    require(most <= 0, "score", given=f"a log-probability of {most:g}", allowed="at most 0")
    return logits


def beam_step(candidates_BKY, k):
    """Best k scores [B, k] over all prefixes together, and each one's parent and token [B, k].

    >>> scores, parents, tokens = beam_step(torch.tensor([[[-1.7, -2.9], [-1.6, -1.8]]]), 2)
    >>> parents.tolist(), tokens.tolist()
    ([[1, 0]], [[0, 0]])
    """
    _check_candidates(candidates_BKY, k)
    Y = candidates_BKY.shape[-1]
    ranked, places = candidates_BKY.flatten(1).sort(descending=True, stable=True)
    return ranked[:, :k], places[:, :k] // Y, places[:, :k] % Y


def length_penalty(length, alpha, kind="gnmt"):
    """Divisor of a score: ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14), or length^alpha.

    >>> round(length_penalty(6, 0.6), 4), length_penalty(4, 1.0, "power"), length_penalty(9, 0.0)
    (1.4386, 4.0, 1.0)
    """
    require(kind in PENALTIES, "penalty", repr(kind), " or ".join(PENALTIES))
    number("alpha", alpha, least=0)
    whole("length", length)
    base = (5 + length) / 6 if kind == "gnmt" else length
    try:
        return float(base) ** alpha
    except OverflowError:
        allowed = f"a number whose penalty of length {length} is finite"
        require(False, "alpha", alpha, allowed)


def backtrack(rounds, slot, sequence=0):
    """Generated ids of the prefix kept in `slot` of the last of `rounds`, from the parents alone.

    >>> first = Round(None, None, torch.tensor([[0, 0]]), torch.tensor([[7, 8]]))
    >>> second = Round(None, None, torch.tensor([[1, 0]]), torch.tensor([[3, 4]]))
    >>> backtrack([first, second], slot=0)
    [8, 3]
    """
    _check_place(rounds, slot, sequence)
    ids = []
    for entry in reversed(rounds):
        ids.append(int(entry.tokens_BK[sequence, slot]))
        slot = int(entry.parents_BK[sequence, slot])
    return ids[::-1]


@torch.no_grad()
def beam_search(
    score, start_BT, *, beam, max_new_tokens, eos=None, alpha=0.0, penalty="gnmt", stop="bound",
    normalise=True,
):  # fmt: skip
    """`BeamResult` of searching the best continuation of each prefix in `start_BT`.

    score(y) = Σ_t log p(y_t | y_<t); hypotheses are ranked by score / `length_penalty`. `stop`
    says when a sequence is done: with "bound" when it has `beam` finished hypotheses that no
    living prefix can overtake any more, with "count" as soon as it has `beam` of them. The start
    may have no column at all. Rows reach `score` as b·beam + slot.

    Raises ValueError for a beam or length below 1, an `eos` outside the vocabulary, a negative
    alpha, NaN or +∞ among the scores, and a sequence of which no path is left.

    >>> def score(prefix):  # token 0 looks better, token 1 leads further
    ...     last = [[0.6, 0.4]] if prefix.shape[1] == 0 else [[0.4, 0.6], [0.1, 0.9]]
    ...     table = torch.tensor(last).log()
    ...     return table[prefix[:, 0]] if prefix.shape[1] else table.expand(len(prefix), -1)
    >>> start = torch.zeros(1, 0, dtype=torch.long)
    >>> best = beam_search(score, start, beam=2, max_new_tokens=3).hypotheses[0][0]
    >>> best.ids, round(math.exp(best.score), 3)
    ([1, 1, 1], 0.324)
    """
    _check(start_BT, beam, max_new_tokens, alpha, penalty, stop, normalise)
    ask, B = CheckedScore(score, dead=True, eos=eos), len(start_BT)
    prefix = start_BT.repeat_interleave(beam, 0)
    scores_BK = torch.full((B, beam), -math.inf, dtype=torch.float64, device=start_BT.device)
    scores_BK[:, 0] = 0.0  # one prefix to begin with: k equal ones would stay equal
    pools, rounds, expanded = [[] for _ in range(B)], [], [0] * B
    for length in range(1, max_new_tokens + 1):
        logp = log_probabilities(ask(prefix), normalise)
        expanded = [n + int(s.isfinite().sum()) for n, s in zip(expanded, scores_BK, strict=True)]
        candidates = scores_BK[..., None] + logp.view(B, beam, -1)
        _finish(candidates, beam, eos, length, rounds, pools, (alpha, penalty))
        scores_BK, parents, tokens = _living(candidates, beam, eos)
        rounds.append(Round(candidates, scores_BK, parents, tokens))
        limits = (length, max_new_tokens, alpha, penalty, stop)
        scores_BK = _close(scores_BK, rounds, pools, beam, limits)
        if not scores_BK.isfinite().any():
            break
        rows = (torch.arange(B, device=parents.device)[:, None] * beam + parents).flatten()
        prefix = torch.cat([prefix[rows], tokens.reshape(-1, 1)], 1)
        if hasattr(score, "reorder"):
            score.reorder(rows)
    require(all(pools), "score", "-inf on every path", "at least one path for each sequence")
    return BeamResult([_ranked(pool, beam) for pool in pools], rounds, expanded)


def _living(candidates, beam, eos):
    """The best k candidates that do not end in `eos`, padded with dead ones where fewer exist."""
    open_ = candidates.clone()
    if eos is not None:
        open_[..., eos] = -math.inf
    scores, parents, tokens = beam_step(open_, beam)
    if scores.shape[1] < beam:
        missing = (0, beam - scores.shape[1])
        pad = torch.nn.functional.pad
        scores = pad(scores, missing, value=-math.inf)
        parents, tokens = pad(parents, missing), pad(tokens, missing)
    return scores, parents, tokens


def _finish(candidates, beam, eos, length, rounds, pools, rule):
    """Nothing; moves candidates among the best k that end in `eos` into their pools."""
    if eos is None:
        return
    scores, parents, tokens = beam_step(candidates, beam)
    for b, slot in (scores.isfinite() & (tokens == eos)).nonzero().tolist():
        ids = [*backtrack(rounds, int(parents[b, slot]), b), eos]
        found = scores[b, slot].item()
        pools[b].append(Hypothesis(ids, found, found / length_penalty(length, *rule), True))


def _close(scores_BK, rounds, pools, beam, limits):
    """Scores of the prefixes that go on: those of sequences that are done become -∞."""
    length, most, alpha, penalty, stop = limits
    scores_BK = scores_BK.clone()
    for b, pool in enumerate(pools):
        alive = scores_BK[b].isfinite()
        if length == most:
            for slot in alive.nonzero().flatten().tolist():
                found = scores_BK[b, slot].item()
                value = found / length_penalty(length, alpha, penalty)
                pool.append(Hypothesis(backtrack(rounds, slot, b), found, value, False))
            scores_BK[b] = -math.inf
        elif len(pool) >= beam and alive.any():
            # log p ≤ 0: a score only falls, and the largest divisor brings it closest to 0.
            bound = scores_BK[b].max().item() / length_penalty(most, alpha, penalty)
            if stop == "count" or bound <= _ranked(pool, beam)[-1].value:
                scores_BK[b] = -math.inf
    return scores_BK


def _ranked(pool, beam):
    return sorted(pool, key=lambda h: -h.value)[:beam]


def _check(start_BT, beam, max_new_tokens, alpha, penalty, stop, normalise):
    check_prefix(start_BT, "start")
    require(len(start_BT) > 0, "start", f"shape {list(start_BT.shape)}", "[B, T] with B ≥ 1")
    whole("beam", beam), whole("max_new_tokens", max_new_tokens), flag("normalise", normalise)
    require(stop in STOPS, "stop", repr(stop), " or ".join(STOPS))
    length_penalty(max_new_tokens, alpha, penalty)  # the largest that will be asked for


def _check_candidates(candidates, k):
    whole("k", k)
    fits = isinstance(candidates, torch.Tensor) and candidates.ndim == 3
    given = f"shape {list(candidates.shape)}" if hasattr(candidates, "shape") else candidates
    require(fits, "candidates", given, "scores [B, k, Y]", ShapeError)
    require(not bool(candidates.isnan().any()), "candidates", "NaN", "numbers and -inf")


def _check_place(rounds, slot, sequence):
    if not len(rounds):
        return
    for name, value, size in zip(
        ("sequence", "slot"), (sequence, slot), rounds[-1].tokens_BK.shape, strict=True
    ):
        require(whole(name, value, 0) < size, name, value, f"0 to {size - 1}")
