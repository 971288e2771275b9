"""A task that no position can solve alone: write the sequence backwards.

The answer at position i is the symbol at N - 1 - i, so the two ends must hear of each other. The
symbols are drawn anew for every update, and nothing is learned by heart. Guessing costs ln(symbols)
nats, 2.30 for ten.
"""

import math

import torch
import torch.nn.functional as F

from labcore.shapes import number, whole


def reversal_batches(steps, *, batch=32, length=8, symbols=10, seed=0):
    """Yields `steps` pairs (ids [batch, length], the same reversed), drawn from a generator.

    >>> ids, answers = next(reversal_batches(1, batch=1, length=4))
    >>> answers.tolist()[0] == ids.tolist()[0][::-1]
    True
    """
    for name, size in (("batch", batch), ("length", length), ("symbols", symbols)):
        whole(name, size)
    whole("seed", seed, 0)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids = torch.randint(symbols, (batch, length), generator=draw)
        yield ids, ids.flip(1)


def train_reversal(model, steps, rate, *, warmup=0, seed=0, **sizes):
    """Losses of the updates, a list of `steps` floats; the model is trained in place by Adam.

    The learning rate rises in a straight line over the first `warmup` updates and then stays at
    `rate`; nothing is clipped and nothing decays, so that what differs between two runs is what
    was made to differ. `sizes` goes to `reversal_batches`.

    >>> model = torch.nn.Embedding(10, 10)
    >>> len(train_reversal(model, 3, rate=0.01, warmup=2))
    3
    """
    whole("warmup", warmup, 0)
    whole("steps", steps, 0), number("rate", rate, above=0)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=rate), []
    model.train()
    for step, (ids, answers) in enumerate(reversal_batches(steps, seed=seed, **sizes)):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / max(1, warmup))
        loss = F.cross_entropy(model(ids).flatten(0, 1), answers.flatten())
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"loss: got {loss.item()} in step {step + 1} of {steps}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def reversal_accuracy(model, *, seed=10_000, **sizes):
    """Share of symbols that the model writes right on 512 fresh sequences.

    >>> class Backwards(torch.nn.Module):
    ...     def forward(self, ids):
    ...         return F.one_hot(ids.flip(1), 10).float()
    >>> reversal_accuracy(Backwards())
    1.0
    """
    sizes = {"batch": 512, **sizes}
    ids, answers = next(reversal_batches(1, seed=seed, **sizes))
    with torch.no_grad():
        return (model(ids).argmax(-1) == answers).double().mean().item()
