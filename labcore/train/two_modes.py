"""A toy task in which one source has several right targets: digits, read aloud in a language.

The source is a row of digits 1 … 9, and the target says them in English, or in German, or in
Chinese, or in Spanish: `3 1 4` is "three one four" or "drei eins vier", never "three eins four".
Nothing in the source says which. The languages share no word, so a target that mixes them is
recognised without a judge. In this task the best possible guess of a slot that does not know its
neighbours is exact: word t of language m with the share of that language.
"""

import math
from typing import NamedTuple

import torch

from labcore.models.nar import PAD, SPECIAL
from labcore.shapes import check_ids, number, require, whole

LANGUAGES = {
    "English": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "German": ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "Chinese": ["一", "二", "三", "四", "五", "六", "七", "八", "九"],
    "Spanish": ["uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve"],
}
WORDS = [*SPECIAL, *(word for words in LANGUAGES.values() for word in words)]
SOURCE_SIZE, TARGET_SIZE = 10, len(WORDS)


class Pairs(NamedTuple):
    """Sources [n, S] of digits and targets [n, T] of word ids, PAD = 0 behind both."""

    source: torch.Tensor
    source_lengths: torch.Tensor
    target: torch.Tensor
    target_lengths: torch.Tensor


def shares_of(modes, first=None):
    """Shares of the languages: `first` for the first (1/modes when None), the rest equally.

    >>> shares_of(3, 0.5)
    [0.5, 0.25, 0.25]
    """
    known = whole("modes", modes, 2) <= len(LANGUAGES)
    require(known, "modes", modes, f"a whole number from 2 to {len(LANGUAGES)}")
    first = 1 / modes if first is None else number("first", first, above=0)
    require(first < 1, "first", first, "a probability between 0 and 1")
    return [first] + [(1 - first) / (modes - 1)] * (modes - 1)


def draw(count, shares, *, shortest=2, longest=10, seed=0):
    """`Pairs` of `count` random sources, each read aloud in a language drawn with these shares.

    >>> pairs = draw(3, shares_of(2), shortest=4, longest=4)
    >>> list(pairs.source.shape), list(pairs.target.shape)
    ([3, 4], [3, 4])
    """
    whole("count", count), whole("longest", longest), whole("seed", seed, 0)
    fits = whole("shortest", shortest) <= longest
    require(fits, "shortest", shortest, f"a whole number from 1 to longest = {longest}")
    _check_shares(shares)
    numbers = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=numbers)
    digits = torch.randint(1, 10, (count, longest), generator=numbers)
    chances = torch.tensor(shares, dtype=torch.float64)
    language = torch.multinomial(chances, count, replacement=True, generator=numbers)
    inside = torch.arange(longest) < lengths[:, None]
    words = len(SPECIAL) + 9 * language[:, None] + digits - 1
    return Pairs(digits * inside, lengths, torch.where(inside, words, PAD), lengths)


def text(ids):
    """The words of a row of ids, PAD left out.

    >>> text([6, 4, 0])
    'three one'
    """
    ids = ids.tolist() if isinstance(ids, torch.Tensor) else ids
    outside = [i for i in ids if whole("ids", i, 0) >= len(WORDS)]
    require(not outside, "ids", given=outside, allowed=f"ids 0 to {len(WORDS) - 1}")
    return " ".join(WORDS[i] for i in ids if i != PAD)


def language_of(ids):
    """For every id the number of its language, -1 for PAD and the other special ones."""
    check_ids(ids, "ids", len(WORDS))
    return torch.where(ids < len(SPECIAL), -1, (ids - len(SPECIAL)) // 9)


def mixed(target):
    """Bool [n]: whether a row of ids [n, T] holds words of more than one language.

    >>> mixed(torch.tensor([[6, 4, 7], [6, 13, 7]])).tolist()
    [False, True]
    """
    check_ids(target, "target", len(WORDS), "B T")
    found = language_of(target)
    highest = found.max(-1).values
    lowest = found.masked_fill(found < 0, len(LANGUAGES)).min(-1).values
    return highest > lowest


def digits_right(source, target):
    """Bool [n]: whether each word names its digit, in whatever language, and none is missing."""
    check_ids(source, "source", SOURCE_SIZE, "B S"), check_ids(target, "target", len(WORDS), "B T")
    rows, allowed = f"{len(target)} rows", f"{len(source)} rows, as source"
    require(len(source) == len(target), "target", rows, allowed)
    width = max(source.shape[1], target.shape[1])
    source, target = (torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in (source, target))
    named = torch.where(target < len(SPECIAL), 0, (target - len(SPECIAL)) % 9 + 1)
    return ((named == source) & ((target == PAD) == (source == 0))).all(-1)


def mixing(T, shares):
    """Probability that T words drawn independently are not all of one language: 1 - Σ_m p_m^T.

    >>> [mixing(T, [0.5, 0.5]) for T in (2, 3, 5)]
    [0.5, 0.75, 0.9375]
    """
    whole("T", T)
    _check_shares(shares)
    return 1 - sum(p**T for p in shares)


def lost_nats(T, shares):
    """KL divergence of the joint distribution from the product of its marginals: (T - 1)·H(p).

    What the words of a target know of each other and independent slots do not, in nats.

    >>> round(lost_nats(5, [0.5, 0.5]), 3)
    2.773
    """
    whole("T", T)
    _check_shares(shares)
    return (T - 1) * -sum(p * math.log(p) for p in shares if p > 0)


def _check_shares(shares):
    """None, or an error unless these are probabilities, one a language, that sum to 1."""
    listed, told = isinstance(shares, (list, tuple)), type(shares).__name__
    require(listed, "shares", told, "a list of probabilities", TypeError)
    for share in shares:
        number("shares", share, least=0, most=1)
    near = 0 < len(shares) <= len(LANGUAGES) and abs(sum(shares) - 1) < 1e-9
    require(near, "shares", list(shares), f"1 to {len(LANGUAGES)} numbers that sum to 1")
