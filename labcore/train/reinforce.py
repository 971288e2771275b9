"""REINFORCE: the gradient of an expected reward, when the reward itself has none.

J(θ) = E_{y~p_θ}[R(y)] has the gradient E[(R(y) - b) ∇ log p_θ(y)] for any b that does not depend
on y (Williams 1992, theorem 1). Sampling gives an unbiased estimate of it; b changes its variance.

What the baselines are: "none" is b = 0; "running" the mean of earlier rewards; "others" the mean
reward of the other samples of the same step, so that no sample is its own baseline; "greedy" the
reward of the sequence of largest probabilities (Rennie et al. 2017, section 3).
"""

from typing import NamedTuple

import torch
from torch import nn

from labcore.decode.sample import draw
from labcore.shapes import check_ids, number, require, whole

BASELINES = ("none", "running", "others", "greedy")


class Update(NamedTuple):
    """One update: number from 1, mean reward of its samples, reward of the greedy sequence."""

    step: int
    reward: float
    greedy_reward: float


class PositionPolicy(nn.Module):
    """Policy over sequences of T tokens out of Y: one softmax for each position, none sees another.

    >>> policy = PositionPolicy(T=5, Y=7)
    >>> ids = policy.sample(3, torch.Generator().manual_seed(0))
    >>> list(ids.shape), list(policy.log_prob(ids).shape)
    ([3, 5], [3])
    """

    def __init__(self, T, Y):
        super().__init__()
        whole("T", T), whole("Y", Y, 2)
        self.logits = nn.Parameter(torch.zeros(T, Y, dtype=torch.float64))

    def sample(self, count, generator=None):
        """Ids [count, T]."""
        whole("count", count)
        p = self.logits.detach().softmax(-1)
        return draw(p.expand(count, *p.shape), generator)

    def log_prob(self, ids):
        """Σ_t log p(y_t) [B] of ids [B, T]."""
        T, Y = self.logits.shape
        check_ids(ids, "ids", Y, "B T")
        require(ids.shape[1] == T, "ids", f"shape {list(ids.shape)}", f"[B, T={T}]")
        logp = self.logits.log_softmax(-1).expand(len(ids), *self.logits.shape)
        return logp.gather(-1, ids[..., None])[..., 0].sum(-1)

    def greedy(self):
        """Ids [T] of the largest probability at each position."""
        return self.logits.argmax(-1)


def expected_reward(logits, rewards):
    """J = Σ_i p_i R_i of one softmax choice, `logits` and `rewards` [Y].

    >>> expected_reward(torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 1.0])).item()
    0.5
    """
    _same(logits, rewards)
    return (logits.softmax(-1) * rewards).sum()


def exact_gradient(logits, rewards):
    """∂J/∂z_i = p_i (R_i - J) [Y]: what every estimate should be in the mean.

    >>> exact_gradient(torch.zeros(2), torch.tensor([1.0, 0.0])).tolist()
    [0.25, -0.25]
    """
    return logits.softmax(-1) * (rewards - expected_reward(logits, rewards))


def single_gradients(logits, rewards, baseline=0.0):
    """(R_i - b) ∇ log p_i for each action i [Y, Y]: row i is the estimate when i was drawn.

    ∂ log p_i / ∂ z_j is 1 - p_i for j = i and -p_j otherwise.

    >>> single_gradients(torch.zeros(2), torch.tensor([1.0, 0.0])).tolist()
    [[0.5, -0.5], [-0.0, 0.0]]
    """
    _same(logits, rewards)
    p = logits.softmax(-1)
    return (rewards - baseline)[:, None] * (torch.eye(len(p), dtype=p.dtype) - p)


def gradient_variance(logits, rewards, baseline=0.0):
    """Total variance of the one-sample estimate: Σ_j Var[g_j], computed over all actions.

    >>> rewards = torch.tensor([1.0, 0.0])
    >>> [gradient_variance(torch.zeros(2), rewards, b).item() for b in (0.0, 0.5)]
    [0.125, 0.0]
    """
    g, p = single_gradients(logits, rewards, baseline), logits.softmax(-1)
    mean = (p[:, None] * g).sum(0)
    return (p[:, None] * (g - mean).square()).sum()


def reinforce_loss(log_probs, rewards, baseline=0.0):
    """-mean (R - b) log p over samples [N]: its gradient is minus the REINFORCE estimate.

    Rewards and baseline are constants here, and finite: no gradient flows through them.

    >>> log_p = torch.tensor([-1.0, -2.0], requires_grad=True)
    >>> reinforce_loss(log_p, torch.tensor([1.0, 0.0]), 0.5).item()
    -0.25
    """
    shapes = f"{list(log_probs.shape)} and {list(rewards.shape)}"
    good = log_probs.shape == rewards.shape and log_probs.numel() > 0
    require(good, "log_probs, rewards", shapes, "the same shape, at least one sample")
    advantage = (rewards - baseline).detach()
    finite = bool(advantage.isfinite().all())
    require(finite, "rewards, baseline", "NaN or infinity", "finite numbers")
    return -(advantage * log_probs).mean()


def others_mean(rewards):
    """Mean reward of all other samples [N], for each of at least two samples [N].

    >>> others_mean(torch.tensor([1.0, 2.0, 6.0])).tolist()
    [4.0, 3.5, 1.5]
    """
    count = len(rewards)
    require(count >= 2, "rewards", given=f"{count} sample", allowed="at least 2 samples")
    return (rewards.sum() - rewards) / (count - 1)


def fit_reinforce(policy, reward, *, steps, samples=16, rate=1.0, baseline="others", seed=0):
    """List of `Update`; the policy climbs `reward(ids) -> float` in place, by plain gradient steps.

    `policy` has `sample`, `log_prob` and `greedy` as `PositionPolicy`. Raises ValueError for an
    unknown baseline, fewer than one step or sample, fewer than two samples with "others".

    >>> policy = PositionPolicy(T=2, Y=3)
    >>> ones = lambda ids: float((ids == 1).double().mean())
    >>> log = fit_reinforce(policy, ones, steps=60, rate=2.0)
    >>> policy.greedy().tolist(), log[-1].greedy_reward
    ([1, 1], 1.0)
    """
    require(baseline in BASELINES, "baseline", repr(baseline), ", ".join(BASELINES))
    least = 2 if baseline == "others" else 1
    whole("steps", steps), whole("samples", samples, least), number("rate", rate, above=0)
    whole("seed", seed, 0)
    generator, log, seen = torch.Generator().manual_seed(seed), [], []
    optimizer = torch.optim.SGD(policy.parameters(), lr=rate)
    for step in range(1, steps + 1):
        ids = policy.sample(samples, generator)
        rewards = torch.tensor([float(reward(row)) for row in ids], dtype=torch.float64)
        b = {
            "none": lambda: 0.0,
            "running": lambda: sum(seen) / len(seen) if seen else 0.0,
            "others": lambda rewards=rewards: others_mean(rewards),
            "greedy": lambda: float(reward(policy.greedy())),
        }[baseline]()
        optimizer.zero_grad()
        reinforce_loss(policy.log_prob(ids), rewards, b).backward()
        optimizer.step()
        seen.append(rewards.mean().item())
        log.append(Update(step, seen[-1], float(reward(policy.greedy()))))
    return log


def _same(logits, rewards):
    shapes = f"{list(logits.shape)} and {list(rewards.shape)}"
    good = logits.ndim == 1 and logits.shape == rewards.shape
    require(good, "logits, rewards", shapes, "two vectors of one length")
