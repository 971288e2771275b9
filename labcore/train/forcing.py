"""Teacher forcing: the decoder reads the true prefix, and every position is trained at once.

The target y_1 … y_T is framed as BOS y_1 … y_T EOS. All but the last token are the input, all but
the first are the labels: input t is followed by label t, and the model never reads its own label.
(The method is older than the name's use here: Williams and Zipser 1989, section 3.)
"""

import torch

from labcore.shapes import ShapeError, check_ids, require, whole
from labcore.train.losses import cross_entropy
from labcore.train.numerals import PAD


def shift_right(framed):
    """The pair (decoder input, labels), each [B, T], of framed targets [B, T + 1].

    Padding behind EOS stays: where the label is padding, the loss does not look.

    >>> inputs, labels = shift_right(torch.tensor([[1, 7, 8, 9, 2]]))
    >>> inputs.tolist(), labels.tolist()
    ([[1, 7, 8, 9]], [[7, 8, 9, 2]])
    """
    check_ids(framed, "framed")
    fits = framed.ndim >= 1 and framed.shape[-1] >= 2
    allowed = "[..., T + 1] with BOS and at least one label"
    require(fits, "framed", f"shape {list(framed.shape)}", allowed, error=ShapeError)
    return framed[..., :-1], framed[..., 1:]


def frame(rows, bos, eos, padding):
    """Ids [B, T + 2] of lists of ids: BOS in front, EOS behind, then padding to one length.

    Padding must be another id than EOS: no loss would ask for the end.

    >>> frame([[7, 8], [9]], bos=1, eos=2, padding=0).tolist()
    [[1, 7, 8, 2], [1, 9, 2, 0]]
    """
    for name, token in (("bos", bos), ("eos", eos), ("padding", padding)):
        whole(name, token, 0)
    require(padding != eos, "padding", f"{padding}, which is eos", "an id that ends nothing")
    listed = isinstance(rows, (list, tuple)) and all(hasattr(row, "__iter__") for row in rows)
    require(listed, "rows", repr(rows)[:40], "a list of lists of ids", TypeError)
    rows = [[whole("rows", token, 0) for token in row] for row in rows]
    longest = max(map(len, rows), default=0)
    framed = [[bos, *row, eos] + [padding] * (longest - len(row)) for row in rows]
    return torch.tensor(framed, dtype=torch.long).reshape(len(rows), longest + 2)


def teacher_forced_loss(model, source, framed, *, padding=PAD, smoothing=0.0, reduction="mean"):
    """The loss of a `Seq2Seq` on framed targets [B, T + 1], all positions in one decoder pass.

    >>> from labcore.models.seq2seq import Seq2Seq
    >>> model = Seq2Seq(17, 33, 12, 4, 19, 1)
    >>> source, framed = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 7, 8, 9, 2]])
    >>> list(teacher_forced_loss(model, source, framed, reduction="none").shape)
    [1, 4]
    """
    inputs, labels = shift_right(framed)
    logits = model(source, inputs)
    return cross_entropy(logits, labels, padding=padding, smoothing=smoothing, reduction=reduction)


def stepwise_loss(model, source, framed, *, padding=PAD, smoothing=0.0, reduction="mean"):
    """The same value as `teacher_forced_loss`, one prefix after another: T decoder passes.

    This is the loss as the formula reads, Σ_t -log P(y_t | y_<t, x). The causal mask is what makes
    the parallel form equal to it.
    """
    inputs, labels = shift_right(framed)
    _check_rows(source, framed)
    score = model.scorer(source)
    steps = [score(inputs[:, : t + 1]) for t in range(inputs.shape[1])]
    return cross_entropy(
        torch.stack(steps, dim=1), labels, padding=padding, smoothing=smoothing, reduction=reduction
    )


def _check_rows(source, framed):
    """None, or an error: a scorer serves several targets of one source, a loss does not."""
    given, allowed = f"{len(source)} rows", f"{len(framed)} rows, as framed"
    require(len(source) == len(framed), "source", given, allowed, ShapeError)
