"""Filling slots: one round is an argmax, several keep what is sure; against a loop over rows."""

import pytest
import torch

from labcore.decode import fill
from labcore.decode.iterative import least, slot_shares

MASK, PAD, Y, T = 3, 0, 11, 7
NEVER = (PAD, 1, 2)


def scorer(seed, heat=2.0):
    """Logits of each slot that depend on every token in view."""
    draws = torch.Generator().manual_seed(seed)
    own = torch.randn(T, Y, generator=draws, dtype=torch.float64)
    pair = heat * torch.randn(T, Y, T, Y, generator=draws, dtype=torch.float64)

    def score(ids):
        told = torch.nn.functional.one_hot(ids, Y).double()
        told[..., MASK] = 0
        return own + torch.einsum("tysz,bsz->bty", pair, told)

    return score


def by_hand(score, row, rounds):
    """One row, plain Python: choose the open slots, then open the least certain ones again."""
    asked = [t for t in range(T) if row[t] == MASK]
    row, sure, opened = list(row), {}, list(asked)
    for r in range(1, rounds + 1):
        logits = score(torch.tensor([row]))[0]
        for t in (*NEVER, MASK):
            logits[:, t] = -torch.inf
        shares = logits.softmax(-1)
        for t in opened:
            row[t] = int(shares[t].argmax())
            sure[t] = float(shares[t].max())
        count = len(asked) * (rounds - r) // rounds
        opened = sorted(asked, key=lambda t: (sure[t], -t))[:count]
        for t in opened:
            row[t] = MASK
    return row


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 7, 12])
def test_equals_a_loop_over_rows(seed, rounds):
    slots = torch.tensor([[MASK] * 7, [MASK] * 4 + [PAD] * 3, [MASK, 5, MASK, 9, MASK, PAD, PAD]])
    score = scorer(seed)
    found = fill(score, slots, mask=MASK, rounds=rounds, forbidden=NEVER)
    assert found.tolist() == [by_hand(score, row, rounds) for row in slots.tolist()]
    told = fill(score, slots, mask=MASK, rounds=rounds, forbidden=NEVER, history=True)
    assert len(told) == rounds and torch.equal(told[-1], found)
    assert not bool((found == MASK).any())
    assert torch.equal(found[slots != MASK], slots[slots != MASK])


def test_rounds_ask_again_fewer_and_fewer():
    slots = torch.full((3, T), MASK)
    told = fill(scorer(1), slots, mask=MASK, rounds=7, forbidden=NEVER, history=True)
    assert [(ids == MASK).sum(-1).tolist() for ids in told] == [[n] * 3 for n in range(6, -1, -1)]


def test_calls_are_the_rounds_whatever_the_length():
    calls, score = [], scorer(2)

    def counted(ids):
        calls.append(ids.shape)
        return score(ids)

    fill(counted, torch.full((5, T), MASK), mask=MASK, rounds=3, forbidden=NEVER)
    assert calls == [(5, T)] * 3


def test_drawn_slots_have_the_model_s_shares():
    score, n = scorer(4, heat=0.0), 20_000
    slots = torch.full((n, T), MASK)
    shares = slot_shares(score, slots[:1], NEVER, MASK)[0]
    numbers = torch.Generator().manual_seed(0)
    found = fill(score, slots, mask=MASK, forbidden=NEVER, generator=numbers)
    counts = torch.stack([(found == y).double().mean(0) for y in range(Y)], dim=-1)
    # Five standard deviations of a share: 77 of them are compared.
    assert bool(((counts - shares).abs() <= 5 * (shares * (1 - shares) / n).sqrt()).all())
    again = fill(score, slots, mask=MASK, forbidden=NEVER, generator=numbers.manual_seed(0))
    assert torch.equal(found, again)


def test_least_by_sorting():
    draws = torch.Generator().manual_seed(0)
    certainty = torch.randint(0, 4, (50, T), generator=draws).double() / 4
    counts = torch.randint(0, T + 1, (50,), generator=draws)
    found = least(certainty, counts)
    for row, count, chosen in zip(certainty.tolist(), counts.tolist(), found, strict=True):
        wanted = sorted(range(T), key=lambda t: (row[t], -t))[:count]
        assert chosen.nonzero().flatten().tolist() == sorted(wanted)


def test_nothing_to_fill():
    slots = torch.tensor([[5, 6, 7, 8, 9, PAD, PAD]])
    assert torch.equal(fill(scorer(0), slots, mask=MASK, rounds=3), slots)
    assert fill(scorer(0), torch.zeros(0, T, dtype=torch.long), mask=MASK).shape == (0, T)


SLOTS = torch.full((2, T), MASK)


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("slots", TypeError, lambda: fill(scorer(0), SLOTS.int(), mask=MASK)),
        ("slots", ValueError, lambda: fill(scorer(0), SLOTS[0], mask=MASK)),
        ("rounds", ValueError, lambda: fill(scorer(0), SLOTS, mask=MASK, rounds=0)),
        ("rounds", ValueError, lambda: fill(scorer(0), SLOTS, mask=MASK, rounds=1.5)),
        ("score", ValueError, lambda: fill(lambda ids: torch.zeros(2, Y), SLOTS, mask=MASK)),
        ("forbidden", ValueError, lambda: fill(scorer(0), SLOTS, mask=MASK, forbidden=[Y])),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
