"""Cross-entropy over a sequence: what one wrong distribution costs, and which positions count.

L = -Σ_t Σ_y q_t(y) log p_t(y), where p = softmax(logits) and q is the label: one-hot, or with
smoothing ε the mixture (1 - ε) · one-hot + ε / Y (Szegedy et al. 2016, section 7; Vaswani et al.
2017, section 5.4). Padding is no label: it adds nothing to the sum and nothing to the count.
"""

import torch
import torch.nn.functional as F

from labcore.attention.scores import check_float
from labcore.shapes import MOST, ShapeError, number, require, whole

HALF = (torch.float16, torch.bfloat16)
REDUCTIONS = ("mean", "sum", "none")


def cross_entropy(logits, labels, *, padding=None, smoothing=0.0, reduction="mean"):
    """The loss of logits [..., Y] for int64 labels [...]: a number, or [...] for "none".

    Positions whose label is `padding` count for nothing. "mean" divides by the positions that
    count, and is 0 (with zero gradients) when there are none, where torch gives NaN. Half precision
    is computed and returned in float32: a sum over many positions does not fit into 16 bits. Raises
    for a smoothing outside [0, 1), labels outside the vocabulary, and where something counts for
    logits of NaN or +∞ and rows of nothing but -∞.

    >>> logits = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]], dtype=torch.float64).log()
    >>> round(cross_entropy(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.4243
    >>> loss = cross_entropy(logits, torch.tensor([0, 9, 9]), padding=9, reduction="sum")
    >>> round(loss.item(), 4)
    0.2231
    """
    labels, counted = _checked(logits, labels, padding, smoothing, reduction)
    logits = _wide(logits)
    losses = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        labels.reshape(-1),
        label_smoothing=smoothing,
        reduction="none",
    ).reshape(labels.shape)
    # masked_fill and not a product: an infinite loss at padding times 0 would be NaN.
    return _reduce(losses.masked_fill(~counted, 0), counted, reduction)


def cross_entropy_naive(logits, labels, *, padding=None, smoothing=0.0, reduction="mean"):
    """The same value as `cross_entropy`, written as the formula reads, with the label as a
    distribution.

    >>> logits = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    >>> round(cross_entropy_naive(logits, torch.tensor([0]), smoothing=0.1).item(), 4)
    0.2925
    """
    labels, counted = _checked(logits, labels, padding, smoothing, reduction)
    logits, Y = _wide(logits), logits.shape[-1]
    q = (1 - smoothing) * F.one_hot(labels, Y).to(logits.dtype) + smoothing / Y
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    # 0 · (-∞) would be NaN: a word that the label excludes costs nothing whatever its probability.
    losses = -torch.where(q > 0, q * log_p, 0).sum(-1)
    return _reduce(torch.where(counted, losses, 0), counted, reduction)


def _wide(logits):
    return logits.float() if logits.dtype in HALF else logits


def _reduce(losses, counted, reduction):
    given, allowed = "NaN, +inf or a row of -inf", "scores with a finite one in every row"
    require(not bool(losses.isnan().any()), "logits", given, allowed)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)


def _checked(logits, labels, padding, smoothing, reduction):
    """Labels with 0 where nothing counts, and the bool tensor of what counts; or an error."""
    check_float(logits, "logits")
    given = labels.dtype if isinstance(labels, torch.Tensor) else type(labels).__name__
    require(given == torch.int64, "labels", given, "an int64 tensor", error=TypeError)
    Y = logits.shape[-1] if logits.ndim else 0
    require(logits.ndim >= 1 and Y >= 1, "logits", f"shape {list(logits.shape)}", "[..., Y]")
    fits = labels.shape == logits.shape[:-1]
    allowed = f"shape {list(logits.shape[:-1])}"
    require(fits, "labels", f"shape {list(labels.shape)}", allowed, error=ShapeError)
    share = number("smoothing", smoothing, least=0)
    require(share < 1, "smoothing", smoothing, "a number in [0, 1)")
    known = reduction in REDUCTIONS
    require(known, "reduction", repr(reduction), ", ".join(map(repr, REDUCTIONS)))
    if padding is not None:
        whole("padding", padding, -MOST)
    counted = torch.ones_like(labels, dtype=torch.bool) if padding is None else labels != padding
    inside = bool(((labels >= 0) & (labels < Y))[counted].all())
    allowed = f"ids 0 to {Y - 1}" + ("" if padding is None else f", or padding {padding}")
    require(inside, "labels", "an id outside the vocabulary", allowed)
    return labels.masked_fill(~counted, 0), counted
