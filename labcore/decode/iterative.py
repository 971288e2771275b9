"""Filling slots: all at once, or in a few rounds that keep what is sure and ask again for the rest.

One round is plain non-autoregressive generation (Gu et al. 2018): every slot is chosen without a
look at what the other slots choose. More rounds are Mask-Predict (Ghazvininejad et al. 2019,
section 3): after round r of R the n·(R - r)/R least certain of a row's n tokens become MASK again,
and the next round chooses them with the kept ones in view.
"""

import torch

from labcore.decode.checks import check_generator, check_prefix, check_tokens, check_top
from labcore.shapes import ShapeError, flag, require, whole


@torch.no_grad()
def fill(score, slots, *, mask, rounds=1, forbidden=(), generator=None, history=False):
    """Ids [B, T]: `slots` [B, T] with a token in place of every `mask` id, after `rounds` rounds.

    `score(ids_BT) -> logits [B, T, Y]`, called once a round. Slots that do not hold `mask` at the
    start (a PAD behind the end, a word that is known) are never touched. A token is the most
    probable one, or with a `generator` drawn from the softmax, each slot on its own; its certainty
    is its probability in the round that chose it. Equal certainties go to the earlier slot.
    `mask` and the `forbidden` ids are never chosen. With `history` the ids after each round as a
    list, in which what will be asked again stands as `mask`; the last entry is the result.

    >>> score = lambda ids: torch.tensor([[[0.0, 2.0, 1.0], [0.0, 1.0, 3.0]]])
    >>> fill(score, torch.tensor([[0, 0]]), mask=0, rounds=2, history=True)
    [tensor([[0, 2]]), tensor([[1, 2]])]
    """
    _check(score, slots, mask, rounds, forbidden, history, generator)
    ids, asked = slots, slots == mask
    open_ = asked  # the slots that this round chooses
    certainty = torch.full(slots.shape, torch.inf, dtype=torch.float64, device=slots.device)
    told = []
    for done in range(1, rounds + 1):
        shares = slot_shares(score, ids, forbidden, mask)
        chosen, sure = _choose(shares, generator)
        ids = torch.where(open_, chosen, ids)
        certainty = torch.where(open_, sure, certainty)
        again = asked.sum(-1) * (rounds - done) // rounds  # [B] slots to be asked once more
        open_ = least(certainty.masked_fill(~asked, torch.inf), again)
        ids = ids.masked_fill(open_, mask)
        told.append(ids)
    return told if history else ids


def slot_shares(score, ids, forbidden=(), mask=None):
    """Probabilities [B, T, Y] of every slot, 0 for `mask` and `forbidden` ids, from checked logits.

    Raises ValueError for NaN, +∞ and a slot in which no token is left.
    """
    logits = score(ids)
    fits = isinstance(logits, torch.Tensor) and logits.shape[:-1] == ids.shape
    given = f"scores of shape {list(logits.shape) if hasattr(logits, 'shape') else None}"
    allowed = f"[B={ids.shape[0]}, T={ids.shape[1]}, Y] with Y ≥ 1"
    require(fits and logits.shape[-1] >= 1, "score", given, allowed, error=ShapeError)
    check_tokens(forbidden, "forbidden", logits.shape[-1])
    own = [] if mask is None else [mask]
    check_tokens(own, "mask", logits.shape[-1])
    never = torch.tensor(sorted({*forbidden, *own}), dtype=torch.int64, device=logits.device)
    left = logits.double().index_fill(-1, never, -torch.inf)
    check_top(left.amax(-1), "score")
    return left.softmax(-1)


def least(certainty, counts):
    """Bool [B, T], True at the `counts[b]` smallest entries of each row; ties: the later slots.

    >>> least(torch.tensor([[0.9, 0.2, 0.2, 0.5]]), torch.tensor([1])).tolist()
    [[False, False, True, False]]
    """
    # From the last slot to the first, so that of two equal ones the later is asked again.
    order = certainty.flip(-1).argsort(dim=-1, stable=True)
    rank = order.argsort(dim=-1).flip(-1)
    return rank < counts[:, None]


def _choose(shares, generator):
    """Tokens and their probabilities, [B, T] each: the largest, or drawn slot by slot."""
    if generator is None:
        sure, chosen = shares.max(-1)
        return chosen, sure
    flat = shares.flatten(0, 1)
    chosen = torch.multinomial(flat, 1, generator=generator).view(shares.shape[:-1])
    return chosen, shares.gather(-1, chosen[..., None])[..., 0]


def _check(score, slots, mask, rounds, forbidden, history, generator):
    """None, or an error before the score is asked for the first time."""
    check_prefix(slots, "slots")
    whole("mask", mask, 0), whole("rounds", rounds), flag("history", history)
    check_tokens(forbidden, "forbidden"), check_generator(generator)
    told = type(score).__name__
    require(callable(score), "score", told, "a function of ids [B, T]", TypeError)
