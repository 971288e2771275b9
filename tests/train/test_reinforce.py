"""REINFORCE against autograd through the exact expectation, by enumeration and by sampling."""

import itertools
import math

import pytest
import torch

from labcore.train import (
    PositionPolicy,
    exact_gradient,
    expected_reward,
    fit_reinforce,
    gradient_variance,
    others_mean,
    reinforce_loss,
    single_gradients,
)

T, Y = 2, 3


def vectors(seed=0, size=5):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, size, generator=draw, dtype=torch.float64).unbind()


def test_exact_gradient_equals_autograd():
    z, rewards = vectors()
    z.requires_grad_()
    expected_reward(z, rewards).backward()
    assert (z.grad - exact_gradient(z.detach(), rewards)).abs().max() < 1e-12


def test_single_gradients_equal_autograd_and_average_to_the_exact_one():
    z, rewards = vectors(1)
    p = z.softmax(-1)
    for b in (0.0, 0.7, expected_reward(z, rewards)):
        rows = single_gradients(z, rewards, b)
        assert ((p[:, None] * rows).sum(0) - exact_gradient(z, rewards)).abs().max() < 1e-12
        for i in range(len(z)):
            leaf = z.clone().requires_grad_()
            ((rewards[i] - b) * leaf.log_softmax(-1)[i]).backward()
            assert (leaf.grad - rows[i]).abs().max() < 1e-12
    spread = ((p[:, None] * single_gradients(z, rewards).square()).sum()) - exact_gradient(
        z, rewards
    ).square().sum()
    assert gradient_variance(z, rewards).item() == pytest.approx(spread.item(), abs=1e-12)


def test_loss_over_all_sequences_weighted_by_p_is_the_gradient_of_the_expectation():
    torch.manual_seed(0)
    policy = PositionPolicy(T, Y)
    torch.nn.init.normal_(policy.logits)
    every = torch.tensor(list(itertools.product(range(Y), repeat=T)))
    rewards = torch.randn(len(every), dtype=torch.float64)
    p = policy.log_prob(every).exp()
    assert p.sum().item() == pytest.approx(1)
    wanted = torch.autograd.grad((p * rewards).sum(), policy.logits)[0]
    weights = len(every) * p.detach()  # the loss is a mean
    loss = reinforce_loss(policy.log_prob(every), weights * (rewards - 0.3))
    assert (torch.autograd.grad(-loss, policy.logits)[0] - wanted).abs().max() < 1e-12


def test_sampling_estimates_it_with_and_without_others():
    torch.manual_seed(1)
    policy = PositionPolicy(T, Y)
    torch.nn.init.normal_(policy.logits)
    score = lambda ids: (ids == torch.tensor([2, 0])).double().mean(-1)  # noqa: E731
    every = torch.tensor(list(itertools.product(range(Y), repeat=T)))
    J = (policy.log_prob(every).exp() * score(every)).sum()
    wanted = torch.autograd.grad(J, policy.logits)[0]
    ids = policy.sample(40000, torch.Generator().manual_seed(2))
    rewards = score(ids)
    for b in (0.0, others_mean(rewards)):
        found = torch.autograd.grad(
            -reinforce_loss(policy.log_prob(ids), rewards, b), policy.logits
        )
        assert (found[0] - wanted).abs().max() < 0.01
    counts = torch.bincount(ids[:, 0] * Y + ids[:, 1], minlength=Y * Y)
    assert (counts / 40000 - policy.log_prob(every).exp()).abs().max() < 0.01


def test_no_gradient_flows_through_reward_and_baseline():
    log_p, rewards, b = (torch.tensor([0.5, 0.25], requires_grad=True) for _ in range(3))
    reinforce_loss(log_p, rewards, b).backward()
    assert log_p.grad is not None and rewards.grad is None and b.grad is None
    assert others_mean(torch.tensor([4.0, 2.0])).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("baseline", ["none", "running", "others", "greedy"])
def test_training_climbs_and_is_the_same_twice(baseline):
    goal = torch.tensor([3, 0, 2, 2])
    reward = lambda ids: float((ids == goal).double().mean())  # noqa: E731
    logs = []
    for _ in range(2):
        policy = PositionPolicy(4, 5)
        logs.append(fit_reinforce(policy, reward, steps=150, rate=2.0, baseline=baseline, seed=3))
    assert logs[0] == logs[1]
    assert logs[0][-1].greedy_reward > logs[0][0].greedy_reward
    assert logs[0][-1].reward > 0.6
    assert [entry.step for entry in logs[0]] == list(range(1, 151))


ZEROS = torch.zeros(2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_reinforce(PositionPolicy(T, Y), len, steps=1, baseline="mean"), "baseline"),
        (lambda: fit_reinforce(PositionPolicy(T, Y), len, steps=0), "steps: got 0"),
        (lambda: fit_reinforce(PositionPolicy(T, Y), len, steps=1, samples=1), "samples: got 1"),
        (lambda: reinforce_loss(torch.zeros(2), torch.zeros(3)), "log_probs, rewards: got"),
        (lambda: reinforce_loss(torch.zeros(0), torch.zeros(0)), "log_probs, rewards: got"),
        (
            lambda: reinforce_loss(ZEROS, torch.tensor([1.0, math.nan])),
            "rewards, baseline: got NaN",
        ),
        (lambda: reinforce_loss(ZEROS, ZEROS, math.inf), "rewards, baseline: got NaN or inf"),
        (lambda: fit_reinforce(PositionPolicy(T, Y), lambda ids: math.nan, steps=1), "rewards"),
        (lambda: others_mean(torch.zeros(1)), "rewards: got 1 sample"),
        (lambda: expected_reward(torch.zeros(2), torch.zeros(3)), "logits, rewards: got"),
        (lambda: PositionPolicy(0, 3), "T: got 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
