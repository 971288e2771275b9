"""The reversal task: what it asks, how it is trained, and that it cannot be guessed."""

import math

import pytest
import torch

from labcore.models import Encoder, Tagger
from labcore.train.reversal import reversal_accuracy, reversal_batches, train_reversal


def model(seed=0, kind="transformer"):
    torch.manual_seed(seed)
    return Tagger(Encoder(kind, 16, 1, heads=2, hidden=24), 10, 8)


def test_batches_are_drawn_by_seed_and_reversed():
    first, again = (list(reversal_batches(3, batch=5, length=7, seed=4)) for _ in range(2))
    for (ids, answers), (same, _) in zip(first, again, strict=True):
        assert ids.shape == (5, 7) and torch.equal(ids, same)
        for row, wanted in zip(ids.tolist(), answers.tolist(), strict=True):
            assert wanted == row[::-1]
    assert not torch.equal(first[0][0], first[1][0])
    assert not torch.equal(first[0][0], next(reversal_batches(1, batch=5, length=7, seed=5))[0])


def test_training_repeats_and_starts_near_a_guess():
    one, two = (train_reversal(model(), 6, 1e-3, seed=3) for _ in range(2))
    assert one == two and abs(one[0] - math.log(10)) < 0.6
    assert reversal_accuracy(model()) < 0.25


def test_warm_up_scales_the_first_updates():
    """Adam's first update moves each weight by the rate: by a tenth of it with ten of warm-up."""
    moves = []
    for warmup in (0, 10):
        net = model()
        before = net.head.bias.detach().clone()
        train_reversal(net, 1, 1e-3, warmup=warmup)
        moves.append((net.head.bias - before).abs().max().item())
    assert moves[0] == pytest.approx(1e-3, rel=0.01) and moves[1] == pytest.approx(1e-4, rel=0.01)


def test_a_loss_that_is_no_number_stops_the_training():
    net = model()
    with torch.no_grad():
        net.head.weight.fill_(math.inf)
    with pytest.raises(FloatingPointError, match="^loss: got nan in step 1 of 2"):
        train_reversal(net, 2, 1e-3)


@pytest.mark.parametrize(
    "name, call",
    [
        ("warmup", lambda: train_reversal(model(), 1, 1e-3, warmup=-1)),
        ("warmup", lambda: train_reversal(model(), 1, 1e-3, warmup=0.1)),
        ("rate", lambda: train_reversal(model(), 1, 0.0)),
        ("length", lambda: next(reversal_batches(1, length=0))),
        ("symbols", lambda: next(reversal_batches(1, symbols=2.5))),
    ],
)
def test_bad_input_is_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: got .*; allowed: "):
        call()
