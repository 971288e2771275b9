"""The experiments on two modes and on numerals: fair, repeatable, and drawn as they should be."""

import torch

from labcore.experiments import nar_numerals, two_modes
from labcore.metrics import parameters
from labcore.train.numerals import TARGET, words
from labcore.train.two_modes import draw

SMALL = {**two_modes.CONFIG, "steps": 3, "pairs": 50, "tested": 11}


def test_the_ways_share_one_network():
    counts = {way: parameters(two_modes.build(two_modes.CONFIG, way)) for way in two_modes.WAYS}
    # The fixed slots need one length more, 33 numbers of a head that they do not use.
    assert counts["ordered"] == counts["length"] == counts["masked"] == counts["slots"] - 33
    states = [two_modes.build(two_modes.CONFIG, way).state_dict() for way in ("ordered", "masked")]
    assert list(states[0]) == list(states[1])


def test_short_runs_repeat(monkeypatch):
    monkeypatch.setattr(two_modes, "LENGTHS", [2, 4])
    monkeypatch.setattr(two_modes, "ROUNDS", [1, 3])
    state = torch.get_rng_state()
    for way in two_modes.WAYS:
        first = two_modes.run(SMALL, 1, way, 2, 0.5)
        assert first == two_modes.run(SMALL, 1, way, 2, 0.5)
        assert all(0 <= value <= 1 for name, value in first.items() if name != "loss")
    assert torch.equal(state, torch.get_rng_state())


def test_gumbel_noise_draws_from_the_softmax():
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0], dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    found = two_modes.gumbel(logits.expand(40_000, 4), draws).argmax(-1)
    shares = torch.bincount(found, minlength=4).double() / 40_000
    assert (shares - logits.softmax(-1)).abs().max() < 0.01


def test_answers_hold_words_and_padding_only():
    pairs = draw(13, [0.5, 0.5], shortest=2, longest=10, seed=4)
    for way in two_modes.WAYS:
        torch.manual_seed(0)
        model = two_modes.build(two_modes.CONFIG, way)
        for numbers in (None, torch.Generator().manual_seed(0)):
            found = two_modes.write(model, way, pairs, generator=numbers)
            assert len(found) == 13
            assert bool(((found == 0) | (found > 3)).all())
            ended = (found == 0).cumsum(-1) > 0
            assert bool((found[ended] == 0).all())


def test_numerals_become_words_without_signs():
    pairs = nar_numerals.pairs_of(nar_numerals.numerals.examples([7, 123_000, 40_017]))
    for ids, number in zip(pairs.target.tolist(), (7, 123_000, 40_017), strict=True):
        assert " ".join(TARGET[i - 1] for i in ids if i) == words(number)
    assert pairs.target_lengths.tolist() == [1, 5, 3]
    assert pairs.source_lengths.tolist() == [1, 5, 6]
    train, test = nar_numerals.data(200, 30)
    assert int(train.target_lengths.max()) <= nar_numerals.CONFIG["longest"]
    assert nar_numerals.exact(test.target, test.target) == 1.0
