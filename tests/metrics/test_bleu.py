"""BLEU against sacrebleu on random corpora, and on sentences done by hand."""

import math
import random

import pytest

from labcore.metrics import (
    brevity_penalty,
    clipped,
    corpus_bleu,
    geometric_mean,
    ngrams,
    sentence_bleu,
)

CAT, REFERENCE = ["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "is", "on", "the", "mat"]
NAMES = {"none": "none", "floor": "floor", "add_k": "add-k", "exp": "exp"}


def corpus(seed, sentences=5, references=3, words=6):
    draw = random.Random(seed)
    line = lambda least: [draw.choice("abcdefgh"[:words]) for _ in range(draw.randint(least, 9))]  # noqa: E731
    candidates = [line(0) for _ in range(sentences)]
    return candidates, [[line(1) for _ in range(references)] for _ in candidates]


def theirs(candidates, references, max_n, smoothing, value, effective):
    from sacrebleu.metrics import BLEU

    metric = BLEU(
        max_ngram_order=max_n, smooth_method=NAMES[smoothing], smooth_value=value,
        tokenize="none", effective_order=effective,
    )  # fmt: skip
    streams = [[" ".join(r) for r in stream] for stream in zip(*references, strict=True)]
    return metric.corpus_score([" ".join(c) for c in candidates], streams)


@pytest.mark.parametrize("smoothing", NAMES)
@pytest.mark.parametrize("max_n", [1, 2, 3, 4])
@pytest.mark.parametrize("effective", [False, True])
def test_equals_sacrebleu(smoothing, max_n, effective):
    for seed in range(30):
        sentences, words = (1, 4) if seed % 2 else (5, 8)
        candidates, references = corpus(seed, sentences, 1 + seed % 3, words)
        value = {"floor": 0.3, "add_k": 2.0}.get(smoothing) if seed % 5 == 0 else None
        found = corpus_bleu(
            candidates, references, max_n=max_n, smoothing=smoothing, value=value,
            effective_order=effective,
        )  # fmt: skip
        wanted = theirs(candidates, references, max_n, smoothing, value, effective)
        assert 100 * found.score == pytest.approx(wanted.score, abs=1e-9)
        assert found.brevity == pytest.approx(wanted.bp, abs=1e-12)
        assert [found.candidate_length, found.reference_length] == [wanted.sys_len, wanted.ref_len]
        if smoothing != "add_k":  # sacrebleu adds k to the counts it reports
            assert found.matched == wanted.counts and found.total == wanted.totals
        if any(found.matched):
            precisions = [100 * p for p in found.precisions]
            assert precisions == pytest.approx(wanted.precisions, abs=1e-9)


def test_the_cat():
    assert clipped(CAT, [REFERENCE], 1) == (5, 6)
    assert clipped(CAT, [REFERENCE], 2) == (3, 5)
    assert sentence_bleu(CAT, [REFERENCE], max_n=2).score == pytest.approx(0.5**0.5, abs=1e-12)
    assert sentence_bleu(CAT, [REFERENCE]).score == 0
    assert sentence_bleu(REFERENCE, [REFERENCE]).score == 1
    scores = [sentence_bleu(CAT, [REFERENCE], smoothing=s).score for s in ("exp", "floor", "add_k")]
    assert scores == pytest.approx([0.3799178428, 0.2540663741, 0.4854917717], abs=1e-9)


def test_clipping_takes_the_best_reference_and_the_closest_length():
    seven = ["the"] * 7
    assert clipped(seven, [REFERENCE], 1) == (2, 7)
    assert clipped(seven, [REFERENCE, ["the"] * 4], 1) == (4, 7)
    assert sentence_bleu(["a"] * 5, [["a"] * 4, ["a"] * 6], max_n=1).reference_length == 4
    assert ngrams(["a"], 2) == {}


def test_brevity():
    assert [brevity_penalty(c, 6) for c in (0, 6, 7)] == [0, 1, 1]
    assert brevity_penalty(2, 6) == pytest.approx(math.exp(-2))
    assert sentence_bleu(["the", "cat"], [REFERENCE], max_n=2).score == pytest.approx(math.exp(-2))


def test_corpus_is_not_the_mean_of_its_sentences():
    one, other = ["a", "b", "c", "d", "e"], ["a", "b", "x", "y"]
    together = corpus_bleu([one, other], [[one], [one]])
    apart = [sentence_bleu(s, [one]).score for s in (one, other)]
    assert together.matched == [7, 5, 3, 2] and together.total == [9, 7, 5, 3]
    assert abs(together.score - sum(apart) / 2) > 0.05
    order = corpus_bleu([other, one], [[one], [one]])
    assert order.score == together.score


def test_empty_candidate_scores_zero():
    for smoothing in NAMES:
        for effective in (False, True):
            found = sentence_bleu([], [REFERENCE], smoothing=smoothing, effective_order=effective)
            assert found.score == 0 and found.brevity == 0
    assert geometric_mean([]) == 0 == geometric_mean([0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sentence_bleu(CAT, []), ValueError, "references: got no sentence"),
        (lambda: sentence_bleu(CAT, [[]]), ValueError, "references: got an empty reference"),
        (lambda: sentence_bleu([], [[]]), ValueError, "references: got an empty reference"),
        (lambda: sentence_bleu("the cat", [REFERENCE]), TypeError, "candidates: got the string"),
        (lambda: sentence_bleu(CAT, "the cat"), TypeError, "references: got the string"),
        (lambda: sentence_bleu(CAT, [REFERENCE], max_n=0), ValueError, "max_n: got 0"),
        (
            lambda: sentence_bleu(CAT, [REFERENCE], smoothing="lin"),
            ValueError,
            "smoothing: got 'lin'",
        ),
        (lambda: sentence_bleu(CAT, [REFERENCE], value=-1), ValueError, "value: got -1"),
        (lambda: corpus_bleu([], []), ValueError, "candidates: got none"),
        (lambda: corpus_bleu([CAT], []), ValueError, "references: got 0 for 1"),
        (lambda: brevity_penalty(3, 0), ValueError, "r: got 0"),
        (lambda: ngrams(CAT, 1.5), ValueError, "n: got 1.5"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
