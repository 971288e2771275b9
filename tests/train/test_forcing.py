"""The shift, and the loss in one pass against the loss prefix by prefix."""

import pytest
import torch

from labcore.models import Seq2Seq
from labcore.train.forcing import frame, shift_right, stepwise_loss, teacher_forced_loss

B, S, WORDS = 3, 7, [[5, 6, 7, 8], [9], [4, 11]]


def setting():
    torch.manual_seed(0)
    model = Seq2Seq(17, 33, 12, 4, 19, 2).double()
    return model, torch.randint(1, 17, (B, S)), frame(WORDS, 1, 2, 0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_pass_equals_prefix_by_prefix(reduction, smoothing):
    model, source, framed = setting()
    options = {"smoothing": smoothing, "reduction": reduction}
    parallel = teacher_forced_loss(model, source, framed, **options)
    stepwise = stepwise_loss(model, source, framed, **options)
    assert (parallel - stepwise).abs().max() < 1e-9
    weight = model.source_embedding.weight
    gradients = [torch.autograd.grad(loss.sum(), weight)[0] for loss in (parallel, stepwise)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-9


def test_padding_of_a_batch_changes_nothing():
    model, source, framed = setting()
    alone = [
        teacher_forced_loss(model, source[b : b + 1], frame([row], 1, 2, 0), reduction="sum")
        for b, row in enumerate(WORDS)
    ]
    together = teacher_forced_loss(model, source, framed)
    assert (sum(alone) / 10 - together).abs() < 1e-9


def test_shift_and_frame():
    inputs, labels = shift_right(frame(WORDS, 1, 2, 0))
    assert inputs.tolist() == [[1, 5, 6, 7, 8], [1, 9, 2, 0, 0], [1, 4, 11, 2, 0]]
    assert labels.tolist() == [[5, 6, 7, 8, 2], [9, 2, 0, 0, 0], [4, 11, 2, 0, 0]]
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
    assert frame([], 1, 2, 0).shape[0] == 0
    with pytest.raises(ValueError, match=r"^framed: got shape \[3, 1\]"):
        shift_right(torch.ones(3, 1, dtype=torch.long))
