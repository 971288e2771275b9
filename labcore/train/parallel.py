"""Losses for one network that writes a target in order, in slots, or into what was masked.

Each takes (model, source [B, S], source_lengths [B], target [B, T], target_lengths [B]) and gives
the mean cross-entropy over the tokens that are asked for, so that `fit` can use it. Targets hold
words only, PAD behind; where BOS, END and MASK go is the loss's business.
"""

import torch
import torch.nn.functional as F

from labcore.models.nar import BOS, END, MASK, PAD, empty_slots
from labcore.shapes import whole


def ordered_loss(model, source, source_lengths, target, target_lengths):
    """Loss of next tokens: the target shifted right by one, BOS in front, END as last label."""
    labels = with_end(target, target_lengths)
    inputs = torch.cat([torch.full_like(target[:, :1], BOS), target], dim=1)
    logits, _ = model(source, source_lengths, inputs, target_lengths + 1)
    return _cross_entropy(logits, labels)


def slots_loss(model, source, source_lengths, target, target_lengths):
    """Loss of all `max_target` slots at once, each MASK; END is a word, what follows is ignored."""
    labels = with_end(target, target_lengths)
    labels = F.pad(labels, (0, max(0, model.max_target - labels.shape[1])), value=PAD)
    labels = labels[:, : model.max_target]
    slots = torch.full_like(labels, MASK)
    logits, _ = model(source, source_lengths, slots)
    return _cross_entropy(logits, labels)


def length_loss(model, source, source_lengths, target, target_lengths):
    """Loss of as many slots as the target has words, plus the loss of the length predictor."""
    slots = empty_slots(target_lengths, target.shape[1])
    logits, lengths = model(source, source_lengths, slots, target_lengths)
    return _cross_entropy(logits, target) + F.cross_entropy(lengths, target_lengths)


def masked_loss(seed=0):
    """The loss of Mask-Predict: between one and all words of a row are hidden, only they count.

    How many is drawn uniformly, which ones at random (Ghazvininejad et al. 2019, section 4.2), by
    a generator of this seed. The length predictor learns along.
    """
    draw = torch.Generator().manual_seed(whole("seed", seed, 0))

    def loss(model, source, source_lengths, target, target_lengths):
        hidden = hide(target, target_lengths, draw)
        slots = target.masked_fill(hidden, MASK)
        logits, lengths = model(source, source_lengths, slots, target_lengths)
        words = _cross_entropy(logits, target.masked_fill(~hidden, PAD))
        return words + F.cross_entropy(lengths, target_lengths)

    return loss


def hide(target, target_lengths, generator):
    """Bool [B, T]: in each row a random number from 1 to its length, at random places."""
    shape = target.shape
    real = torch.arange(shape[1]) < target_lengths[:, None]
    order = torch.rand(shape, generator=generator).masked_fill(~real, 2.0).argsort(-1).argsort(-1)
    part = torch.rand(shape[0], generator=generator)
    counts = 1 + (part * target_lengths).long().clamp_max(target_lengths - 1)
    return order < counts[:, None]


def with_end(target, target_lengths):
    """Labels [B, T + 1]: the words, END behind the last, PAD after that.

    >>> with_end(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1])).tolist()
    [[7, 8, 2], [9, 2, 0]]
    """
    labels = F.pad(target, (0, 1), value=PAD)
    return labels.scatter(1, target_lengths[:, None], END)


def _cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD)
