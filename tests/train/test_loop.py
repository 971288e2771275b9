"""The training loop: its schedule, its order of examples, its updates, its refusals."""

import math

import pytest
import torch
from torch import nn

from labcore.train import batches, fit, rate_at

COUNT, WIDTH, SIZE = 11, 5, 4


def square(model, x, y):
    return (model(x) - y).square().mean()


def problem(seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(COUNT, WIDTH, generator=draw)
    torch.manual_seed(seed)
    return nn.Linear(WIDTH, 1), (x, x.sum(1, keepdim=True))


def test_rate_rises_then_falls_and_is_never_zero():
    rates = [rate_at(step, 20, 3.0, warmup=0.2) for step in range(20)]
    assert rates[:4] == pytest.approx([0.75, 1.5, 2.25, 3.0])
    assert all(a > b for a, b in zip(rates[3:], rates[4:], strict=False))
    assert min(rates) > 0
    assert rate_at(0, 1, 3.0) == 3.0
    assert rate_at(10, 20, 1.0, warmup=0) == pytest.approx(0.5)  # half-way from 0 to the end, 20


def test_every_pass_shows_every_example_once_in_a_new_order():
    drawn = [batch.tolist() for batch in batches(COUNT, SIZE, 9, seed=3)]
    assert [len(batch) for batch in drawn] == [4, 4, 3] * 3
    passes = [sum(drawn[i : i + 3], []) for i in (0, 3, 6)]
    assert all(sorted(seen) == list(range(COUNT)) for seen in passes)
    assert passes[0] != passes[1]
    assert drawn == [batch.tolist() for batch in batches(COUNT, SIZE, 9, seed=3)]
    assert drawn != [batch.tolist() for batch in batches(COUNT, SIZE, 9, seed=4)]
    state = torch.get_rng_state()
    list(batches(COUNT, SIZE, 2))
    assert torch.equal(state, torch.get_rng_state())


def test_one_step_equals_adamw_by_hand():
    (model, data), rate, decay = problem(), 0.1, 0.3
    before = [p.detach().clone() for p in model.parameters()]
    grads = torch.autograd.grad(square(model, *data), list(model.parameters()))
    log = fit(model, data, square, steps=1, rate=rate, batch=COUNT, weight_decay=decay, clip=None)
    for p, old, grad in zip(model.parameters(), before, grads, strict=True):
        # After bias correction the first update is the gradient's sign; only weights decay.
        kept = old * (1 - rate * decay) if old.ndim > 1 else old
        wanted = kept - rate * grad / (grad.abs() + 1e-8)
        assert (p - wanted).abs().max() < 1e-5
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    assert log[0].gradient_norm == pytest.approx(norm, rel=1e-5)
    assert (log[0].step, log[0].rate) == (1, rate)


def test_training_repeats_and_learns_and_leaves_eval_mode():
    logs = []
    for _ in range(2):
        model, data = problem()
        logs.append(fit(model, data, square, steps=150, rate=0.1, batch=SIZE))
        assert not model.training
    assert logs[0] == logs[1]
    assert logs[0][-1].loss < 0.01 < logs[0][0].loss


def test_frozen_parameters_stay():
    model, data = problem()
    model.bias.requires_grad_(False)
    kept = model.bias.clone()
    fit(model, data, square, steps=3, rate=0.1)
    assert torch.equal(model.bias, kept)


def test_bad_input_and_a_loss_that_is_no_number():
    model, (x, y) = problem()
    with pytest.raises(ValueError, match=r"data: got lengths \[10, 11\]"):
        fit(model, (x, y[1:]), square, steps=1, rate=0.1)
    for data in (x, None, ([1.0], [2.0]), (torch.tensor(1.0),)):
        with pytest.raises(TypeError, match="data: got"):
            fit(model, data, square, steps=1, rate=0.1)
    for betas in ((2.0, 0.9), (0.9,), "x", (0.9, math.nan), 0.9):
        with pytest.raises(ValueError, match="betas: got"):
            fit(model, (x, y), square, steps=1, rate=0.1, betas=betas)
    for loss in (lambda model, x, y: model(x), lambda model, x, y: 3.0, lambda model, x, y: None):
        with pytest.raises(ValueError, match="loss: got .*; allowed: a tensor of one number"):
            fit(model, (x, y), loss, steps=1, rate=0.1)
    with pytest.raises(ValueError, match="size: got 0"):
        fit(model, (x, y), square, steps=1, rate=0.1, batch=0)
    with pytest.raises(ValueError, match="steps: got -1"):
        fit(model, (x, y), square, steps=-1, rate=0.1)
    with pytest.raises(FloatingPointError, match="loss: got nan in step 1 of 2"):
        fit(model, (x, y * math.nan), square, steps=2, rate=0.1)
