"""Greedy decoding: take the most probable next token, append it, ask again, stop at EOS.

A model enters as a function `score(prefix_BT) -> logits_BY`: scores of the next token after each
row's prefix. What a row has already said is all that it is conditioned on, so a wrong token stays.
"""

import torch

from labcore.decode.checks import CheckedScore, check_prefix
from labcore.shapes import require, whole


@torch.no_grad()
def greedy(score, start, *, eos, pad, max_new_tokens, forbidden=(), forced=None):
    """Ids [B, T + n] of `start` [B, T] continued by n ≤ `max_new_tokens` most probable tokens.

    y_t = argmax_y score(y_<t), row by row. A row that has written `eos` is finished: it gets `pad`
    from then on, and the loop ends when all rows are. `eos=None` means that nothing ends a row but
    the limit. Equal scores go to the smaller id.
    `forbidden` ids are never chosen. `forced` maps a step (from 0) to the id that every unfinished
    row writes there instead of its own choice: the error that an experiment plants. `CheckedScore`
    says which scores and ids are refused.

    >>> following = torch.tensor([1, 2, 3, 0])  # after token i comes i + 1; 3 ends
    >>> score = lambda ids: torch.nn.functional.one_hot(following[ids[:, -1]], 4).double()
    >>> greedy(score, torch.tensor([[0], [2]]), eos=3, pad=0, max_new_tokens=5).tolist()
    [[0, 1, 2, 3], [2, 3, 0, 0]]
    """
    check_prefix(start, "start", least=1)
    forced = _checked_steps(forced, whole("max_new_tokens", max_new_tokens, 0))
    named = {"eos": eos, "pad": whole("pad", pad, 0)}
    ask = CheckedScore(score, forbidden=forbidden, forced=forced.values(), **named)
    ids = start
    finished = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    for step in range(max_new_tokens):
        if bool(finished.all()):
            break
        chosen = ask(ids).argmax(-1)
        if step in forced:
            chosen = torch.full_like(chosen, forced[step])
        chosen = chosen.masked_fill(finished, pad)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        if eos is not None:
            finished = finished | (chosen == eos)
    return ids


def _checked_steps(forced, most):
    forced = {} if forced is None else forced
    given, allowed = type(forced).__name__, "a dict from steps to ids"
    require(isinstance(forced, dict), "forced", given, allowed, TypeError)
    for step in forced:
        whole("forced", step, 0)
        require(step < most, "forced", f"step {step}", f"steps from 0 to {most - 1}")
    return forced
