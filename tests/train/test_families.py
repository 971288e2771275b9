"""One world of tokens for three families of models."""

import pytest
import torch

from labcore.train import families as fam
from labcore.train.corruption import IGNORED, join_spans
from labcore.train.numerals import numeral, words

NUMBERS = [0, 12, 123_000, 40_017, 999_999]


def test_tokens_are_distinct_and_special_ids_lead():
    assert len(set(fam.TOKENS)) == len(fam.TOKENS)
    assert fam.TOKENS[fam.EQUALS] == "=" and fam.TOKENS[fam.MASK] == "<mask>"
    assert {fam.TOKENS[i] for i in fam.WORDS}.isdisjoint({*fam.SPECIAL, *fam.SENTINELS, *fam.TASKS})


def test_pairs_and_questions():
    for n, row in zip(NUMBERS, fam.decode(fam.pairs(NUMBERS)), strict=True):
        assert row == ["<cls>", *numeral(n), "<sep>", *words(n).split(), "<sep>"]
    ids, labels = fam.questions(NUMBERS)
    assert ids[:, 0].eq(fam.CLS).all()
    assert labels.tolist() == [0, 1, 5, 4, 5]


def test_gpt_learns_from_the_answer_only():
    ids, labels = fam.sentences(NUMBERS)
    assert ids.shape == labels.shape
    for n, row, label in zip(NUMBERS, ids, labels, strict=True):
        asked = label[label != IGNORED].tolist()
        assert [fam.TOKENS[i] for i in asked] == [*words(n).split(), "<eos>"]
        first = (label != IGNORED).nonzero()[0]
        assert row[first] == fam.EQUALS


@pytest.mark.parametrize("task", fam.TASKS)
def test_texts(task):
    source, target = fam.texts(NUMBERS, task, torch.Generator().manual_seed(0))
    answers = {"translate:": [words(n).split() for n in NUMBERS]}
    answers["digits:"] = [["one"], ["two"], ["six"], ["five"], ["six"]]
    rows = zip(NUMBERS, fam.decode(source), fam.decode(target), strict=True)
    for i, (n, asked, answer) in enumerate(rows):
        assert asked[0] == task
        if task == "fill:":
            whole = join_spans(asked[1:], answer, fam.SENTINELS)
            assert whole == [*numeral(n), "=", *words(n).split()]
        else:
            assert answer == answers[task][i]


def test_bad_input():
    with pytest.raises(ValueError, match="rows: got tokens"):
        fam.encode([["cat"]])
    with pytest.raises(ValueError, match="task: got 'sum:'"):
        fam.texts([1], "sum:")
