"""The referent task: no shortcut in the data, and a model that answers only by looking."""

import itertools
from collections import Counter

import pytest
import torch

from labcore.train import referent, train_referent
from labcore.train.referent import (
    BEINGS,
    PLACES,
    QUALITIES,
    WORDS,
    answer,
    encode,
    held_out_pairs,
    looks,
    report,
    sentence,
    sentences,
)

LECTURE = "the animal didn't cross the street because it was too"


@pytest.fixture(scope="module")
def trained():
    return train_referent(seed=0)


def test_words_are_distinct_and_initials_say_nothing_about_the_kind():
    assert len(WORDS) == len(set(WORDS))
    for nouns in (BEINGS, PLACES):
        assert set(Counter(noun[0] for noun in nouns).values()) == {2}
    assert {b[0] for b in BEINGS} == {p[0] for p in PLACES}


def test_the_lecture_sentence_both_ways():
    tired, wide = (sentence("animal", "street", quality) for quality in ("tired", "wide"))
    assert " ".join(tired.words) == f"{LECTURE} tired"
    assert (tired.it, tired.referent, tired.other, tired.quality) == (7, 1, 5, 10)
    assert (wide.it, wide.referent, wide.other, wide.initial) == (7, 5, 1, "s")
    turned = sentence("animal", "street", "tired", verb="worry", opening="today")
    assert turned.words[:6] == ("today", "the", "street", "didn't", "worry", "the")
    assert turned.words[turned.referent] == "animal"


def test_sentences_are_consistent_and_split_by_pair():
    apart = held_out_pairs()
    assert ("animal", "street") in apart
    for nouns, side in ((BEINGS, 0), (PLACES, 1)):
        assert {pair[side] for pair in apart} == set(nouns)  # no noun is missing on either side
    for held_out in (False, True):
        for s in sentences(300, seed=5, held_out=held_out):
            pair = sorted((s.words[s.referent], s.words[s.other]), key=PLACES.__contains__)
            assert (tuple(pair) in apart) == held_out
            kind = BEINGS if s.words[s.quality] in QUALITIES["being"] else PLACES
            assert s.words[s.referent] in kind and s.words[s.it] == "it"
    assert sentences(20, seed=1) == sentences(20, seed=1) != sentences(20, seed=2)


def test_batch_is_padded_and_padding_changes_nothing(trained):
    model, _ = trained
    short, long = sentence("cat", "hill", "ill"), sentence("cat", "hill", "ill", opening="once")
    batch = encode([short, long])
    assert list(batch.ids.shape) == [2, 12] and batch.lengths.tolist() == [11, 12]
    alone = model(*encode([short])[:2])
    together = model(*batch[:2])[:1, :11]
    assert (alone - together).abs().max() < 1e-6


def test_output_is_the_attention_added_up_by_initial(trained):
    model, _ = trained
    s = sentences(1, seed=8, held_out=True)[0]
    shares = model(*encode([s])[:2])[0, s.it]
    weights = looks(model, [s])[0][-1]
    for number, letter in enumerate(referent.LETTERS):
        found = sum(
            w for word, w in zip(s.words, weights.tolist(), strict=True) if word[0] == letter
        )
        assert shares[number].item() == pytest.approx(found, abs=1e-6)


def test_a_trained_model_points_at_the_referent_on_pairs_it_never_saw(trained):
    model, log = trained
    found = report(model, sentences(300, seed=98, held_out=True))
    assert found["right"] >= 0.97 and found["points"] >= 0.97 and found["referent"] > 0.9
    lecture = [sentence("animal", "street", quality) for quality in ("tired", "wide")]
    assert answer(model, lecture) == ["a", "s"]
    assert [int(rows[-1].argmax()) for rows in looks(model, lecture)] == [1, 5]
    assert len(log) == 200 and log[-1].loss < 0.05


def test_an_untrained_model_does_not_point():
    model, _ = train_referent(seed=0, steps=0)
    assert report(model, sentences(200, seed=98, held_out=True))["points"] < 0.5


def test_training_repeats_and_leaves_the_global_generator():
    state = torch.get_rng_state()
    runs = [train_referent(seed=4, steps=3) for _ in range(2)]
    assert torch.equal(state, torch.get_rng_state())
    assert runs[0][1] == runs[1][1]
    for a, b in itertools.pairwise([list(m.parameters()) for m, _ in runs]):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sentence("street", "animal", "tired"), "being: got 'street'"),
        (lambda: sentence("cat", "hill", "green"), "quality: got 'green'"),
        (lambda: sentence("cat", "hill", "ill", verb="eat"), "verb: got 'eat'"),
        (lambda: sentence("cat", "hill", "ill", helper="did"), "helper: got 'did'"),
        (lambda: sentence("cat", "hill", "ill", tail="x"), r"fillers: got \['tail'\]"),
        (lambda: encode([]), "given: got no sentences"),
        (lambda: referent.ReferentModel(values="free"), "values: got 'free'"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
