"""Sampling: frequencies against exact probabilities, filters against transformers and by hand."""

import math

import pytest
import torch
from scipy import stats

from labcore.decode import draw, keep_top_k, keep_top_p, next_probabilities, sample

Y = 7


def logits(rows=4, seed=0):
    draw_ = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(rows, Y, generator=draw_, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.8])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, 1.0), (3, 1.0), (None, 0.8), (5, 0.6)])
def test_filters_equal_transformers(temperature, top_k, top_p):
    from transformers.generation import logits_process as theirs

    z = logits(6, seed=3)
    wanted = theirs.TemperatureLogitsWarper(temperature)(None, z)
    if top_k:
        wanted = theirs.TopKLogitsWarper(top_k)(None, wanted)
    if top_p < 1:
        wanted = theirs.TopPLogitsWarper(top_p)(None, wanted)
    found = next_probabilities(z, temperature, top_k, top_p)
    assert (found - wanted.softmax(-1)).abs().max() < 1e-12


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"top_k": 5, "top_p": 0.9}]
)
def test_frequencies_fit_the_probabilities(options):
    z = logits(1, seed=5)
    p = next_probabilities(z, **options)[0]
    generator = torch.Generator().manual_seed(1)
    ids = sample(
        lambda prefix: z.expand(len(prefix), -1), torch.zeros(20000, 1, dtype=torch.long),
        max_new_tokens=1, generator=generator, **options,
    )  # fmt: skip
    counts = torch.bincount(ids[:, 1], minlength=Y)
    alive = p > 0
    assert counts[~alive].sum() == 0
    if alive.sum() > 1:
        assert stats.chisquare(counts[alive], 20000 * p[alive]).pvalue > 0.001


def test_frequencies_of_sequences_fit_the_product():
    table = logits(Y, seed=8).log_softmax(-1)  # a chain: the next token depends on the last
    start = torch.full((30000, 1), 2)
    generator = torch.Generator().manual_seed(4)
    ids = sample(lambda prefix: table[prefix[:, -1]], start, max_new_tokens=2, generator=generator)
    counts = torch.bincount(ids[:, 1] * Y + ids[:, 2], minlength=Y * Y).double()
    p = (table[2].exp()[:, None] * table.exp()).flatten()
    often = 30000 * p > 5  # the rule of thumb for χ²; the rest is one class
    pooled = lambda x: torch.cat([x[often], x[~often].sum()[None]])  # noqa: E731
    assert stats.chisquare(pooled(counts), pooled(30000 * p)).pvalue > 0.001


def test_by_hand():
    p = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    assert keep_top_k(p, 2).tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert keep_top_p(p, 0.41).tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert keep_top_p(p, 0.4).tolist() == [0, 1, 0, 0]  # 0.4 is reached by one token
    assert keep_top_p(p, 1e-9).tolist() == [0, 1, 0, 0]
    equal = torch.full((5,), 0.2, dtype=torch.float64)
    assert (keep_top_k(equal, 2) > 0).tolist() == [True, True, False, False, False]
    hot = next_probabilities(torch.tensor([0.0, math.log(4)]), temperature=2.0)
    assert hot.tolist() == pytest.approx([1 / 3, 2 / 3])
    cold = next_probabilities(torch.tensor([1.0, 1.1, 0.0]), temperature=1e-3)
    assert cold[1] == pytest.approx(1.0)
    forbidden = next_probabilities(torch.tensor([0.0, -math.inf, 0.0]), temperature=5.0)
    assert forbidden.tolist() == [0.5, 0.0, 0.5]


def test_draw_follows_u_and_never_takes_what_is_impossible():
    p = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64).expand(5000, 5)
    ids = draw(p, torch.Generator().manual_seed(0))
    u = torch.rand(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(ids, torch.where(u < 0.25, 1, 3))
    assert list(draw(p.view(50, 100, 5)).shape) == [50, 100]


def test_rows_end_at_eos_and_the_seed_decides():
    z = logits(1, seed=2)

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        start = torch.full((9, 2), 5)
        score = lambda prefix: z.expand(len(prefix), -1)  # noqa: E731
        return sample(score, start, max_new_tokens=11, eos=3, pad=6, generator=generator)

    ids = run(0)
    assert torch.equal(ids, run(0)) and not torch.equal(ids, run(1))
    ended = 0
    for row in ids[:, 2:].tolist():
        if 3 in row:
            ended += 1
            assert set(row[row.index(3) + 1 :]) <= {6}
    assert ended > 0
    always = lambda prefix: torch.tensor([[0.0, 9e9]]).expand(len(prefix), -1)  # noqa: E731
    short = sample(always, torch.zeros(2, 1, dtype=torch.long), max_new_tokens=8, eos=1)
    assert short.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 1e-308, 5e-324])
def test_a_tiny_temperature_takes_the_largest(temperature):
    p = next_probabilities(torch.tensor([0.0, 1e10, -1e300]).double(), temperature)
    assert p.tolist() == [0.0, 1.0, 0.0]
    score = lambda ids: torch.tensor([[0.5, 2.0, 1.0, -3.0]]).expand(len(ids), -1)  # noqa: E731
    start = torch.zeros(3, 2, dtype=torch.long)
    ids = sample(score, start, max_new_tokens=5, temperature=temperature)
    assert ids[:, 2:].eq(1).all()


def test_every_row_has_a_draw_of_its_own():
    score, start = lambda ids: torch.zeros(len(ids), 1000), torch.zeros(40, 1, dtype=torch.long)
    ids = sample(score, start, max_new_tokens=1, generator=torch.Generator().manual_seed(0))
    assert len(set(ids[:, 1].tolist())) > 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0}, "temperature: got 0"),
        ({"temperature": -1.0}, "temperature: got -1.0"),
        ({"temperature": math.inf}, "temperature: got inf"),
        ({"top_k": 0}, "top_k: got 0"),
        ({"top_k": 1.5}, "top_k: got 1.5"),
        ({"top_p": 0}, "top_p: got 0"),
        ({"top_p": 1.01}, "top_p: got 1.01"),
        ({"top_p": math.nan}, "top_p: got nan"),
        ({"eos": Y}, "eos: got 7"),
        ({"eos": -1}, "eos: got -1"),
        ({"max_new_tokens": 0}, "max_new_tokens: got 0"),
        ({"start_BT": torch.zeros(3, dtype=torch.long)}, "start: got shape"),
        ({"score": lambda p: torch.full((len(p), Y), -math.inf)}, "score: got"),
        ({"score": lambda p: torch.full((len(p), Y), math.nan)}, "score: got"),
    ],
)
def test_bad_input(options, words):
    usual = {
        "score": lambda prefix: torch.zeros(len(prefix), Y),
        "start_BT": torch.zeros(2, 1, dtype=torch.long),
        "max_new_tokens": 3,
    }
    with pytest.raises(ValueError, match=words):
        sample(**{**usual, **options})
