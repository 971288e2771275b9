"""One training loop for every small model of the book: AdamW, warm-up then cosine, clipping.

It is deterministic: the order of the examples comes from its own generator, nothing is read from a
global one, and nothing is printed. What happened is in the log.
"""

import math
from typing import NamedTuple

import torch

from labcore.shapes import number, require, whole


class Step(NamedTuple):
    """One update: its number from 1, the batch's loss, the rate used, the norm before clipping."""

    step: int
    loss: float
    rate: float
    gradient_norm: float


def rate_at(step, steps, peak, warmup=0.1):
    """Learning rate of update `step` (from 0): a straight rise over the first `warmup` share of
    `steps`, then half a cosine down to 0 (Loshchilov and Hutter 2017, eq. 5, without restarts).

    The first update does not have rate 0 and neither has the last one: each of them moves.

    >>> [round(rate_at(step, 10, 1.0, warmup=0.2), 2) for step in range(10)]
    [0.5, 1.0, 0.97, 0.88, 0.75, 0.59, 0.41, 0.25, 0.12, 0.03]
    """
    whole("steps", steps)
    require(whole("step", step, 0) < steps, "step", step, f"0 to {steps - 1}")
    number("peak", peak, least=0), number("warmup", warmup, least=0, most=1)
    rise = max(1, round(warmup * steps))
    if step < rise:
        return peak * (step + 1) / rise
    return peak * (1 + math.cos(math.pi * (step + 1 - rise) / (steps + 1 - rise))) / 2


def batches(count, size, steps, seed=0):
    """Yields `steps` index tensors of at most `size` out of range(`count`).

    Every pass over the examples has a new order, drawn from a generator of this seed; a pass whose
    end does not fill a batch gives a smaller one.

    >>> [sorted(batch.tolist()) for batch in batches(5, 5, 2)]
    [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    """
    whole("count", count), whole("size", size), whole("steps", steps, 0), whole("seed", seed, 0)
    draw = torch.Generator().manual_seed(seed)
    left = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if not len(left):
            left = torch.randperm(count, generator=draw)
        yield left[:size]
        left = left[size:]


def fit(
    model,
    data,
    loss,
    *,
    steps,
    rate,
    batch=64,
    warmup=0.1,
    weight_decay=0.01,
    betas=(0.9, 0.98),
    clip=1.0,
    seed=0,
):
    """Log of the updates, a list of `Step`; the model is trained in place.

    `data` is a tuple of tensors with the examples along axis 0; `loss(model, *examples)` gives the
    mean loss of a batch. Weights decay, biases and norms (one axis) do not. Gradients longer than
    `clip` are cut to it; `clip=None` leaves them. Raises FloatingPointError when the loss is no
    number any more: training on would only hide where it began.

    >>> model = torch.nn.Linear(3, 1)
    >>> data = torch.eye(3), torch.ones(3, 1)
    >>> square = lambda model, x, y: (model(x) - y).square().mean()
    >>> log = fit(model, data, square, steps=200, rate=0.1)
    >>> len(log), log[-1].loss < 0.01
    (200, True)
    """
    _check(rate, weight_decay, betas, clip)
    count = _rows(data)
    found = {"decay": [], "plain": []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            found["decay" if parameter.ndim > 1 else "plain"].append(parameter)
    groups = [
        {"params": found["decay"], "weight_decay": weight_decay},
        {"params": found["plain"], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=betas)
    parameters = found["decay"] + found["plain"]
    log = []
    model.train()
    for step, chosen in enumerate(batches(count, batch, steps, seed)):
        now = rate_at(step, steps, rate, warmup)
        for group in optimizer.param_groups:
            group["lr"] = now
        value = _one_number(loss(model, *(part[chosen] for part in data)))
        if not math.isfinite(value.item()):
            raise FloatingPointError(f"loss: got {value.item()} in step {step + 1} of {steps}")
        optimizer.zero_grad()
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, math.inf if clip is None else clip)
        optimizer.step()
        log.append(Step(step + 1, value.item(), now, norm.item()))
    model.eval()
    return log


def _check(rate, weight_decay, betas, clip):
    number("rate", rate, least=0), number("weight_decay", weight_decay, least=0)
    if clip is not None:
        number("clip", clip, above=0)
    pair = isinstance(betas, (tuple, list)) and len(betas) == 2
    require(pair, "betas", repr(betas), "two numbers in [0, 1)")
    for beta in betas:
        require(number("betas", beta, least=0) < 1, "betas", beta, "two numbers in [0, 1)")


def _rows(data):
    """The number of examples in `data`, the same in each of its tensors."""
    listed = isinstance(data, (tuple, list))
    listed = listed and all(isinstance(part, torch.Tensor) and part.ndim for part in data)
    require(listed, "data", type(data).__name__, "a tuple of tensors [count, ...]", TypeError)
    sizes = {len(part) for part in data}
    require(len(sizes) == 1, "data", given=f"lengths {sorted(sizes)}", allowed="one length for all")
    return sizes.pop()


def _one_number(value):
    """What a loss gave, when it is one number that a gradient can start from."""
    one = isinstance(value, torch.Tensor) and value.numel() == 1
    given = f"shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
    require(one, "loss", given, "a tensor of one number")
    return value
