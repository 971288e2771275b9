"""Greedy decoding: take the most probable next token, append it, ask again, stop at EOS.

A model enters as a function `score(prefix_BT) -> logits_BY`: scores of the next token after each
row's prefix. What a row has already said is all that it is conditioned on, so a wrong token stays.
"""

import torch

from labcore.decode.cut import check_rows
from labcore.shapes import require


@torch.no_grad()
def greedy(score, start, *, eos, pad, max_new_tokens, forbidden=(), forced=None):
    """Ids [B, T + n] of `start` [B, T] continued by n ≤ `max_new_tokens` most probable tokens.

    y_t = argmax_y score(y_<t), row by row. A row that has written `eos` is finished: it gets `pad`
    from then on, and the loop ends when all rows are. `eos=None` means that nothing ends a row but
    the limit. Equal scores go to the smaller id.
    `forbidden` ids are never chosen. `forced` maps a step (from 0) to the id that every unfinished
    row writes there instead of its own choice: the error that an experiment plants.

    >>> following = torch.tensor([1, 2, 3, 0])  # after token i comes i + 1; 3 ends
    >>> score = lambda ids: torch.nn.functional.one_hot(following[ids[:, -1]], 4).double()
    >>> greedy(score, torch.tensor([[0], [2]]), eos=3, pad=0, max_new_tokens=5).tolist()
    [[0, 1, 2, 3], [2, 3, 0, 0]]
    """
    check_rows(start, "start")
    require(start.shape[1] >= 1, "start", f"shape {list(start.shape)}", "[B, T] with T ≥ 1")
    check_limit(max_new_tokens)
    forced = _checked_steps(forced, max_new_tokens)
    ids = start
    finished = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    for step in range(max_new_tokens):
        if bool(finished.all()):
            break
        logits = next_scores(score, ids, eos, forbidden)
        if step in forced:
            chosen = torch.full_like(finished, forced[step], dtype=torch.int64)
            given, allowed = forced[step], f"an id from 0 to {logits.shape[1] - 1}"
            require(0 <= given < logits.shape[1], "forced", given, allowed)
        else:
            chosen = logits.argmax(-1)
        chosen = chosen.masked_fill(finished, pad)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        if eos is not None:
            finished = finished | (chosen == eos)
    return ids


def next_scores(score, ids, eos=None, forbidden=()):
    """Logits [B, Y] of `score(ids)`, checked, with -∞ at the `forbidden` ids.

    NaN is refused (its argmax would be a token all the same), and so are an `eos` outside the
    vocabulary and a row in which no token is left.
    """
    logits = score(ids)
    fits = isinstance(logits, torch.Tensor) and logits.ndim == 2 and len(logits) == len(ids)
    told = f"shape {list(logits.shape)}" if hasattr(logits, "shape") else type(logits).__name__
    require(fits, "score", f"scores of {told}", f"[B={len(ids)}, Y]")
    Y = logits.shape[1]
    if eos is not None:
        require(0 <= eos < Y, "eos", eos, f"an id from 0 to {Y - 1}, or None")
    if len(forbidden):
        inside = all(0 <= token < Y for token in forbidden)
        require(inside, "forbidden", list(forbidden), f"ids from 0 to {Y - 1}")
        logits = logits.clone()
        logits[:, list(forbidden)] = -torch.inf
    require(not bool(logits.isnan().any()), "score", "NaN", "numbers")
    alive = bool((logits > -torch.inf).any(-1).all())
    require(alive, "score", "a row of -∞ only", "a token that may be chosen in every row")
    return logits


def check_limit(max_new_tokens):
    """None, or an error unless the limit is a whole number of at least 0."""
    given = max_new_tokens
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    require(whole, "max_new_tokens", repr(given), "a whole number of at least 0")


def _checked_steps(forced, most):
    forced = dict(forced or {})
    inside = all(isinstance(step, int) and 0 <= step < most for step in forced)
    require(inside, "forced", f"steps {sorted(forced)}", f"steps from 0 to {most - 1}")
    return forced
