"""The numerals written in slots are judged as the searches are: same numbers, same two measures."""

import pytest
import torch

from labcore.experiments import decoding, load, nar_numerals
from labcore.models.nar import MASK
from labcore.train import numerals
from labcore.train.forcing import frame

SMALL = {**nar_numerals.CONFIG, "count": 60, "held_out": 7, "width": 12, "hidden": 17}


def test_both_experiments_learn_from_the_same_numbers():
    shared = ("count", "held_out", "data_seed", "batch", "rate", "warmup")
    assert [nar_numerals.CONFIG[k] for k in shared] == [decoding.CONFIG[k] for k in shared]
    assert set(decoding.STEPS) < set(nar_numerals.STEPS)
    for key in ("width", "heads", "hidden", "layers"):
        assert nar_numerals.CONFIG[key] == decoding.CONFIG["model"][key]
    theirs = numerals.numerals(SMALL["count"], SMALL["held_out"], SMALL["data_seed"])
    for ours, part in zip(nar_numerals.data_of(SMALL), theirs, strict=True):
        assert torch.equal(ours.source, part.source)
        assert nar_numerals.texts_of(ours.target) == numerals.decode_target(part.target)


def test_both_measures_are_those_of_the_searches():
    """Texts with a wrong, a missing and an added word, as ids of either experiment."""
    told = [
        "one hundred twenty three thousand four",
        "one hundred twenty two thousand",
        "seven hundred thousand nine",
        "forty thousand eleven eleven",
    ]
    numbers = (123_004, 123_000, 700_009, 40_011)
    target = numerals.examples(numbers).target
    words = [[numerals.TARGET.index(word) for word in text.split()] for text in told]
    framed = frame(words, numerals.BOS, numerals.EOS, numerals.PAD)
    wanted = nar_numerals.pairs_of(numerals.examples(numbers)).target
    slots = torch.zeros(len(words), max(map(len, words)), dtype=torch.long)
    for row, ids in zip(slots, words, strict=True):
        row[: len(ids)] = torch.tensor(ids) + MASK - numerals.EOS
    exact, bleu = decoding.judged(framed, target)
    assert nar_numerals.exact(slots, wanted) == exact == 0.5
    assert nar_numerals.bleu(slots, wanted) == pytest.approx(bleu, abs=1e-12)
    assert 0.5 < bleu < 1


def test_short_runs_repeat_and_leave_the_generator_alone():
    state = torch.get_rng_state()
    for way in ("ordered", "slots", "masked"):
        first = nar_numerals.run(SMALL, 1, way, 3)
        assert first == nar_numerals.run(SMALL, 1, way, 3)
        assert all(0 <= value <= 1 for name, value in first.items() if name != "loss")
    assert torch.equal(state, torch.get_rng_state())


def test_the_record_knows_both_measures_at_every_point():
    for row in load("nar_numerals").rows:
        assert {"exact", "bleu"} <= set(row["result"])
        if row["point"]["way"] == "masked":
            for rounds in nar_numerals.ROUNDS:
                assert {f"exact_{rounds}", f"bleu_{rounds}"} <= set(row["result"])
