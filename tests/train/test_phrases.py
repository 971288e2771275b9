"""The small character model: its corpus, the right shift, and what training makes of it."""

import math

import torch

from labcore.decode import greedy
from labcore.train.phrases import (
    BOS,
    EOS,
    PAD,
    PHRASES,
    TOKENS,
    corpus,
    decode,
    encode,
    first_tokens,
    next_token_loss,
    shifted,
    train_phrases,
)


def test_the_shift_moves_by_one_and_pads_behind():
    inputs, labels = shifted(list(PHRASES), length=8)
    assert inputs.shape == labels.shape == (len(PHRASES), 8)
    for row, label, phrase in zip(inputs, labels, PHRASES, strict=True):
        n = len(phrase)
        assert decode(row) == ["BOS", *phrase] + ["PAD"] * (7 - n)
        assert decode(label) == [*phrase, "EOS"] + ["PAD"] * (7 - n)
        assert torch.equal(row[1 : n + 1], label[:n])


def test_first_tokens_add_up():
    shares = first_tokens()
    assert abs(sum(shares.values()) - 1) < 1e-12
    assert max(shares, key=shares.get) == "深"


def test_training_reaches_the_corpus_s_own_entropy():
    state = torch.get_rng_state()
    model, log = train_phrases(seed=1)
    assert torch.equal(state, torch.get_rng_state())
    total = sum(PHRASES.values())
    tokens = sum(count * (len(phrase) + 1) for phrase, count in PHRASES.items())
    # Every phrase is one path: its probability is its share, so the entropy is that of the shares.
    entropy = -sum(count * math.log(count / total) for count in PHRASES.values()) / tokens
    loss = next_token_loss(model, *corpus()).item()
    assert entropy - 1e-4 < loss < entropy + 0.02
    start = torch.tensor([[BOS], [BOS]])
    found = greedy(model.scorer(), start, eos=EOS, pad=PAD, max_new_tokens=8)
    assert decode(found[0]) == ["BOS", *"深度学习", "EOS"]
    wrong = greedy(
        model.scorer(), start, eos=EOS, pad=PAD, max_new_tokens=8, forced={1: TOKENS.index("渡")}
    )
    assert decode(wrong[0])[:3] == ["BOS", "深", "渡"]
    assert "学" not in decode(wrong[0])


def test_without_a_mask_the_loss_vanishes_and_generation_fails():
    model, log = train_phrases(seed=1, kind="none")
    assert log[-1].loss < 0.05
    found = greedy(model.scorer(), torch.tensor([[BOS]]), eos=EOS, pad=PAD, max_new_tokens=8)
    assert decode(found[0]) != ["BOS", *"深度学习", "EOS"]


def test_encode_decode():
    assert decode(encode("深度学习")) == list("深度学习")
