"""Decoding a real encoder–decoder: a batch is its rows, width 1 is greedy, the judge is right."""

import pytest
import torch

from labcore.experiments.decoding import decoded, judged
from labcore.models.seq2seq import Seq2Seq
from labcore.train.numerals import EOS, PAD, SOURCE, TARGET, encode_source, examples


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(4)
    model = Seq2Seq(len(SOURCE), len(TARGET), width=12, heads=3, hidden=19, layers=1).double()
    with torch.no_grad():
        model.output.weight[EOS] += 0.3  # so that rows end, at different lengths
    return model.eval()


SOURCES = encode_source(["三", "十二万三千", "一百零五", "九千"])


def cut(row):
    row = row.tolist()
    return row[: row.index(EOS) + 1] if EOS in row else [y for y in row if y != PAD]


@pytest.mark.parametrize("method", ["beam_3", "greedy"])
def test_a_batch_is_its_rows(model, method):
    options = {"beam": 3} if method != "greedy" else {}
    together = decoded(model, SOURCES, method, max_new_tokens=7, **options)
    for b in range(len(SOURCES)):
        alone = decoded(model, SOURCES[b : b + 1], method, max_new_tokens=7, **options)
        assert cut(alone[0]) == cut(together[b])


def test_width_one_is_greedy(model):
    one = decoded(model, SOURCES, "beam_1", max_new_tokens=7, beam=1)
    best = decoded(model, SOURCES, "greedy", max_new_tokens=7)
    for a, b in zip(one, best, strict=True):
        a, b = cut(a), cut(b)
        assert a[: len(b)] == b


def test_a_seed_decides_the_sample(model):
    first, again = (decoded(model, SOURCES, "sample", seed=1, temperature=2.0) for _ in range(2))
    assert torch.equal(first, again)


def test_judge():
    target = examples([111_111, 123_456, 40_017]).target
    assert judged(target, target) == (1.0, 1.0)
    worse = target.clone()
    worse[2, 2] = worse[2, 1]  # one word of one sentence
    exact, score = judged(worse, target)
    assert exact == pytest.approx(2 / 3) and 0.4 < score < 1
