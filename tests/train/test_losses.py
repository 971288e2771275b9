"""The sequence loss against torch's and against its own formula."""

import math

import pytest
import torch
import torch.nn.functional as F

from labcore.train.losses import cross_entropy, cross_entropy_naive

B, T, Y, PAD = 3, 5, 10, 2


def batch(padded=True):
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(B, T, Y, generator=draw, dtype=torch.float64).requires_grad_()
    labels = torch.randint(3, Y, (B, T), generator=draw)
    if padded:
        labels[0, 3:] = labels[2, 1:] = PAD
    return logits, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("padding", [None, PAD, -100])
def test_equals_torch_and_the_formula(smoothing, reduction, padding):
    logits, labels = batch()
    if padding == -100:
        labels = labels.masked_fill(labels == PAD, -100)
    wanted = F.cross_entropy(
        logits.transpose(1, 2),
        labels,
        ignore_index=-7 if padding is None else padding,
        label_smoothing=smoothing,
        reduction=reduction,
    )
    gradient = torch.autograd.grad(wanted.sum(), logits)[0]
    for form in (cross_entropy, cross_entropy_naive):
        found = form(logits, labels, padding=padding, smoothing=smoothing, reduction=reduction)
        assert (found - wanted).abs().max() < 1e-9
        assert (torch.autograd.grad(found.sum(), logits)[0] - gradient).abs().max() < 1e-9


def test_known_numbers():
    p = torch.tensor([0.8, 0.7, 0.9, 0.6, 0.95], dtype=torch.float64)
    logits = torch.stack([p, 1 - p], -1).log()
    labels = torch.zeros(5, dtype=torch.long)
    total = cross_entropy(logits, labels, reduction="sum").item()
    assert abs(total - 1.2472979290643098) < 1e-9
    assert abs(math.exp(-total) - 0.28728) < 1e-9


@pytest.mark.parametrize("form", [cross_entropy, cross_entropy_naive])
def test_padding_adds_nothing(form):
    logits, labels = batch(padded=False)
    row, wide = logits[:1, :3], labels[:1].clone()
    wide[:, 3:] = PAD
    assert (form(logits[:1], wide, padding=PAD) - form(row, labels[:1, :3])).abs() < 1e-9
    # All padding: the defined value 0, and no gradient, also where a logit is infinite.
    nothing = form(logits, torch.full_like(labels, PAD), padding=PAD)
    assert nothing.item() == 0
    assert not torch.autograd.grad(nothing, logits)[0].any()
    hidden = logits.detach().clone()
    hidden[0, 4, 3] = -math.inf
    labels[0, 4] = PAD
    assert form(hidden, labels, padding=PAD).isfinite()


def test_an_impossible_word_costs_infinity_and_an_excluded_one_nothing():
    logits = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)
    for form in (cross_entropy, cross_entropy_naive):
        assert form(logits, torch.tensor([0])).item() == 0
        assert form(logits, torch.tensor([1])).item() == math.inf


@pytest.mark.parametrize("form", [cross_entropy, cross_entropy_naive])
def test_bad_input(form):
    logits, labels = batch()
    for smoothing in (1, 1.0, -0.1, math.nan, "a", True):
        with pytest.raises(ValueError, match="^smoothing: got"):
            form(logits, labels, smoothing=smoothing)
    with pytest.raises(ValueError, match="^reduction: got 'max'"):
        form(logits, labels, reduction="max")
    with pytest.raises(ValueError, match=r"^labels: got shape \[3, 4\]; allowed: shape \[3, 5\]"):
        form(logits, labels[:, :4])
    with pytest.raises(ValueError, match="^labels: got an id outside the vocabulary"):
        form(logits, labels + Y)
    with pytest.raises(TypeError, match="^labels: got torch.float64"):
        form(logits, labels.double())
