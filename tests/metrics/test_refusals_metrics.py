"""BLEU and its parts refuse what would count letters, give more than 1, or compare nothing."""

import math

import pytest
import torch

from labcore.metrics import (
    brevity_penalty,
    clipped,
    corpus_bleu,
    distinct_n,
    geometric_mean,
    ngrams,
    repeated_share,
    sentence_bleu,
)
from labcore.metrics.bleu import smoothed

GOOD, OTHER = ["a", "b", "c", "d"], ["a", "x", "y", "z"]


def bleu(candidate=GOOD, references=(OTHER,), **options):
    return sentence_bleu(candidate, list(references), **options)


REFUSED = [
    ("value", ValueError, lambda: bleu(smoothing="floor", value=50)),
    *[
        ("value", ValueError, lambda kind=kind, value=value: bleu(smoothing=kind, value=value))
        for kind in ("floor", "add_k")
        for value in (0, -1, math.inf, math.nan, True, "1")
    ],
    *[
        ("value", ValueError, lambda kind=kind: bleu(smoothing=kind, value=0.1))
        for kind in ("none", "exp")
    ],
    ("effective_order", TypeError, lambda: bleu(effective_order="no")),
    *[("max_n", ValueError, lambda n=n: bleu(max_n=n)) for n in (0, 1.5, True)],
    *[("n", ValueError, lambda n=n: clipped(GOOD, [OTHER], n)) for n in (0, 1.5, True)],
    ("candidates", TypeError, lambda: bleu(torch.arange(4))),
    ("candidates", TypeError, lambda: bleu(list(torch.arange(4)))),
    ("candidates", TypeError, lambda: bleu([["a"], ["b"]])),
    ("candidates", TypeError, lambda: corpus_bleu("ab", [[OTHER], [OTHER]])),
    ("references", TypeError, lambda: bleu(references=[torch.arange(4)])),
    ("references", TypeError, lambda: bleu(references=OTHER)),
    ("references", TypeError, lambda: corpus_bleu([GOOD], "a")),
    ("candidate", TypeError, lambda: clipped("the cat", [["the", "cat"]], 1)),
    ("references", TypeError, lambda: clipped(GOOD, ["the cat"], 1)),
    ("references", TypeError, lambda: clipped(GOOD, OTHER, 1)),
    ("references", TypeError, lambda: clipped(GOOD, "a b c d", 1)),
    ("references", ValueError, lambda: clipped(GOOD, [], 1)),
    ("references", ValueError, lambda: clipped(GOOD, [[]], 1)),
    ("tokens", TypeError, lambda: ngrams("the cat", 1)),
    ("smoothing", ValueError, lambda: smoothed([1, 0], [2, 1], "zz")),
    ("matched", ValueError, lambda: smoothed([5], [2])),
    ("matched", ValueError, lambda: smoothed([-1], [2])),
    *[
        ("numbers", ValueError, lambda x=x: geometric_mean([x, 0.5]))
        for x in (-1, math.nan, math.inf, "1")
    ],
    *[("c", ValueError, lambda c=c: brevity_penalty(c, 6)) for c in (-1, math.nan, "3")],
    *[("r", ValueError, lambda r=r: brevity_penalty(3, r)) for r in (0, math.nan, True)],
    ("sequences", TypeError, lambda: distinct_n(["a b"], 2)),
    ("sequences", TypeError, lambda: distinct_n(5, 2)),
    ("smoothing", ValueError, lambda: bleu(smoothing=["exp"])),
    ("sequences", TypeError, lambda: distinct_n([1, 2, 3], 2)),
    ("sequences", TypeError, lambda: repeated_share(list(torch.arange(3)), 2)),
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


@pytest.mark.parametrize("value", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["floor", "add_k"])
def test_a_smoothed_score_stays_below_one(kind, value):
    found = bleu(smoothing=kind, value=value)
    assert 0 < found.score < 1 and max(found.precisions) <= 1


def test_ids_are_tokens_like_any_other():
    ids = torch.tensor([5, 3, 8, 8, 1])
    assert sentence_bleu(ids.tolist(), [ids.tolist()]).score == 1
    assert repeated_share(ids, 1) == pytest.approx(0.2)
