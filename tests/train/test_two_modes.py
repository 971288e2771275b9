"""The task with two right answers: what it draws, what it calls mixed, and the formulas."""

import itertools
import math

import pytest
import torch

from labcore.train.two_modes import (
    LANGUAGES,
    WORDS,
    digits_right,
    draw,
    language_of,
    lost_nats,
    mixed,
    mixing,
    shares_of,
    text,
)


def test_languages_share_no_word_and_none_is_special():
    assert len(set(WORDS)) == len(WORDS) == 4 + 36
    assert all(len(words) == 9 for words in LANGUAGES.values())


@pytest.mark.parametrize("modes", [2, 3, 4])
def test_targets_are_right_and_of_one_language(modes):
    pairs = draw(500, shares_of(modes), longest=7, seed=3)
    assert bool(digits_right(pairs.source, pairs.target).all())
    assert not bool(mixed(pairs.target).any())
    assert torch.equal(pairs.source_lengths, (pairs.source != 0).sum(-1))
    assert torch.equal(pairs.target_lengths, (pairs.target != 0).sum(-1))
    names = list(LANGUAGES)
    for digits, ids in zip(pairs.source.tolist(), pairs.target, strict=True):
        found = text(ids).split()
        language = names[int(language_of(ids)[0])]
        assert found == [LANGUAGES[language][d - 1] for d in digits if d]


def test_shares_are_met():
    shares = shares_of(3, 0.7)
    assert shares == pytest.approx([0.7, 0.15, 0.15])
    counts = torch.bincount(language_of(draw(8000, shares, seed=1).target)[:, 0]).double() / 8000
    assert (counts - torch.tensor(shares)).abs().max() < 0.02


def test_mixed_and_right_by_reading():
    source = torch.tensor([[3, 1, 4], [3, 1, 4], [3, 1, 0], [3, 1, 4]])
    lines = ["three one four", "three eins four", "drei eins", "three one"]
    ids = torch.zeros(4, 5, dtype=torch.long)
    for b, line in enumerate(lines):
        ids[b, : len(line.split())] = torch.tensor([WORDS.index(w) for w in line.split()])
    assert mixed(ids).tolist() == [False, True, False, False]
    assert digits_right(source, ids).tolist() == [True, True, True, False]
    ids[2, 3] = WORDS.index("one")  # a word too many
    assert digits_right(source, ids)[2].item() is False


def test_mixing_and_lost_nats_by_enumeration():
    for shares in ([0.5, 0.5], [0.7, 0.3], [0.2, 0.3, 0.5]):
        for T in (1, 2, 4):
            rows = list(itertools.product(range(len(shares)), repeat=T))
            chance = [math.prod(shares[m] for m in row) for row in rows]
            same = [len(set(row)) == 1 for row in rows]
            free = sum(p for p, one in zip(chance, same, strict=True) if not one)
            assert mixing(T, shares) == pytest.approx(free, abs=1e-12)
            joint = [shares[row[0]] if one else 0 for row, one in zip(rows, same, strict=True)]
            lost = sum(j * math.log(j / p) for j, p in zip(joint, chance, strict=True) if j)
            assert lost_nats(T, shares) == pytest.approx(lost, abs=1e-12)


def test_same_seed_same_pairs():
    first, again = draw(40, [0.5, 0.5], seed=2), draw(40, [0.5, 0.5], seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.source, draw(40, [0.5, 0.5], seed=3).source)


@pytest.mark.parametrize(
    "name, call",
    [
        ("modes", lambda: shares_of(5)),
        ("modes", lambda: shares_of(1)),
        ("first", lambda: shares_of(2, 1.0)),
        ("shortest", lambda: draw(3, [0.5, 0.5], shortest=4, longest=3)),
        ("T", lambda: mixing(0, [1.0])),
    ],
)
def test_bad_input_is_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: got .*; allowed: "):
        call()
