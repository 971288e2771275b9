"""Scheduled sampling: training on prefixes that the model has partly written itself.

Three forms, all with a probability `share` of feeding the true token:

- step by step: token t + 1 of the input is y_t or the model's own answer to the input so far; a
  coin per position, T decoder calls (Bengio et al. 2015, section 2.3).
- two passes: a first pass over true tokens; a second over true and predicted embeddings, mixed by
  coins; two decoder calls (Mihaylova and Martins 2019).
- K passes: every pass re-reads what the pass before has predicted, coins fixed; with K = 1 and the
  final pass it is the two-pass form on ids, with K = T the first form (Duckworth et al. 2019).

Own tokens are the likeliest ones, or with `draws` sampled by fixed random numbers. Gradients flow
through the last pass only; the choice of tokens has none.

Deviation: in the two-pass form the papers' soft variant, a weighted mean of embeddings, is there
as `soft`; which of the second paper's variants is best is not claimed here.
"""

import math

import torch

from labcore.attention.scores import check_float
from labcore.decode.checks import CheckedScore, check_generator, check_prefix, check_top
from labcore.shapes import ShapeError, flag, number, require, whole
from labcore.train.forcing import shift_right
from labcore.train.losses import cross_entropy
from labcore.train.numerals import PAD

FORMS = ("stepwise", "two_pass", "parallel")
SCHEDULES = ("none", "linear", "exponential", "inverse_sigmoid")


def true_share(schedule, step, *, k=None, slope=0.002, floor=0.0):
    """The probability of a true token at update `step` (from 0), between 0 and 1.

    "linear": max(floor, k - slope · i); "exponential": k^i with k < 1; "inverse_sigmoid":
    k / (k + exp(i / k)) with k ≥ 1 (Bengio et al. 2015, section 2.4); "none": always 1, teacher
    forcing.

    >>> round(true_share("linear", 300, k=1, floor=0.1), 4)
    0.4
    >>> round(true_share("exponential", 100, k=0.99), 4)
    0.366
    >>> round(true_share("inverse_sigmoid", 50, k=10), 4)
    0.0631
    """
    number("step", step, least=0)
    _check_constants(schedule, k, slope, floor)
    if schedule == "none":
        return 1.0
    k = {"linear": 1.0, "exponential": 0.99, "inverse_sigmoid": 10.0}[schedule] if k is None else k
    if schedule == "linear":
        number("floor", floor, least=0, most=1), number("slope", slope, least=0)
        number("k", k, least=floor, most=1)
        return max(floor, k - slope * step)
    if schedule == "exponential":
        require(number("k", k, above=0) < 1, "k", k, "a number between 0 and 1")
        return k**step
    number("k", k, least=1)
    # exp(i/k) overflows for large i; written with exp(-i/k) the same value goes to 0.
    return k * math.exp(-step / k) / (1 + k * math.exp(-step / k))


def coins(shape, share, generator=None):
    """A bool tensor: True, with probability `share`, where the true token is fed.

    >>> coins((2, 3), 1.0).all().item(), coins((2, 3), 0.0).any().item()
    (True, False)
    """
    number("share", share, least=0, most=1), check_generator(generator)
    shape = [whole("shape", size, 0) for size in shape]
    return torch.rand(shape, generator=generator) < share


def mix_stepwise(score, inputs, keep, draws=None):
    """Decoder input [B, T] in which token t + 1 is the true one where `keep` [B, T - 1] holds and
    else the model's answer to the mixed input up to t: T - 1 calls of `score(prefix)` → [B, Y].

    >>> always_7 = lambda prefix: torch.nn.functional.one_hot(torch.full((1,), 7), 9).double()
    >>> keep = torch.tensor([[True, False, True]])
    >>> mix_stepwise(always_7, torch.tensor([[1, 3, 4, 5]]), keep).tolist()
    [[1, 3, 7, 5]]
    """
    _check_mix(inputs, keep, draws)
    ask, mixed = CheckedScore(score), inputs[:, :1]
    with torch.no_grad():
        for t in range(inputs.shape[1] - 1):
            own = choose(ask(mixed), None if draws is None else draws[:, t])
            token = torch.where(keep[:, t], inputs[:, t + 1], own)
            mixed = torch.cat([mixed, token[:, None]], dim=1)
    return mixed


def mix_parallel(decode, inputs, keep, passes, draws=None):
    """Decoder input [B, T] after `passes` calls of `decode(ids)` → logits [B, T, Y]: each pass
    replaces the tokens that `keep` gives away by the answers to the input of the pass before.

    After K passes the first K + 1 tokens (BOS and K more) are final; after T - 1 all are, and equal
    to `mix_stepwise` with the same coins and draws.

    >>> always_7 = lambda ids: torch.nn.functional.one_hot(torch.full((1, 4), 7), 9).double()
    >>> keep = torch.tensor([[True, False, True]])
    >>> mix_parallel(always_7, torch.tensor([[1, 3, 4, 5]]), keep, passes=1).tolist()
    [[1, 3, 7, 5]]
    """
    _check_mix(inputs, keep, draws)
    whole("passes", passes, 0)
    mixed = inputs
    with torch.no_grad():
        for _ in range(passes):
            own = choose(_answers(decode, mixed)[:, :-1], draws)
            rest = torch.where(keep, inputs[:, 1:], own)
            mixed = torch.cat([inputs[:, :1], rest], dim=1)
    return mixed


def choose(logits, draws=None):
    """Ids [...] of logits [..., Y]: the likeliest, or by numbers `draws` [...] in 0 … 1 the word
    in whose stretch of the cumulated probabilities the number falls.

    >>> choose(torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor(0.6)).item()
    1
    """
    check_float(logits, "logits")
    require(logits.ndim >= 1 and logits.shape[-1] >= 1, "logits", list(logits.shape), "[..., Y]")
    check_top(logits.amax(-1), "logits")
    if draws is None:
        return logits.argmax(-1)
    _check_draws(draws, logits.shape[:-1])
    ends = logits.softmax(-1).cumsum(-1)
    return (draws[..., None] >= ends).sum(-1).clamp(max=logits.shape[-1] - 1)


def scheduled_loss(
    model, source, framed, share, *, form="two_pass", passes=2, soft=False, generator=None,
    padding=PAD,
):  # fmt: skip
    """The loss of a `Seq2Seq` on prefixes mixed with true-token probability `share`; labels stay
    true. With share 1 it is the teacher-forced loss, whatever the form.

    "stepwise" calls the decoder T times, "two_pass" twice, "parallel" `passes` times in all; only
    "parallel" takes another number of passes than 2, only "two_pass" is `soft`.

    >>> from labcore.models.seq2seq import Seq2Seq
    >>> model = Seq2Seq(17, 33, 12, 4, 19, 1)
    >>> source, framed = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 7, 8, 9, 2]])
    >>> scheduled_loss(model, source, framed, share=0.5).ndim
    0
    """
    _check_form(form, passes, soft)
    inputs, labels = shift_right(framed)
    keep = coins((inputs.shape[0], inputs.shape[1] - 1), share, generator)
    mask = model.source_mask(source)
    memory = model.encode(source, mask)

    def decode(ids):
        return model.decode(ids, memory, mask)

    if form == "two_pass":
        logits = _two_pass(model, decode, inputs, keep, memory, mask, soft)
    elif form == "stepwise":
        mixed = mix_stepwise(lambda prefix: decode(prefix)[:, -1], inputs, keep)
        logits = decode(mixed)
    else:
        logits = decode(mix_parallel(decode, inputs, keep, passes - 1))
    return cross_entropy(logits, labels, padding=padding)


def _two_pass(model, decode, inputs, keep, memory, mask, soft):
    """Logits of the second pass, which reads embeddings: true ones, and predicted ones."""
    with torch.no_grad():
        first = decode(inputs)[:, :-1]
    table = model.target_embedding
    true = table(inputs)
    own = first.softmax(-1) @ table.weight * table.scale if soft else table(first.argmax(-1))
    mixed = torch.where(keep[..., None], true[:, 1:], own)
    return model.decode_vectors(torch.cat([true[:, :1], mixed], dim=1), memory, mask)


def _answers(decode, ids):
    """Logits [B, T, Y] of `decode(ids)`, one row for each row of ids: nothing is repeated."""
    logits = decode(ids)
    given = f"shape {list(logits.shape)}" if hasattr(logits, "shape") else type(logits).__name__
    fits = isinstance(logits, torch.Tensor) and logits.shape[:-1] == ids.shape
    require(fits, "decode", given, f"logits {[*ids.shape, 'Y']}", ShapeError)
    return logits


def _check_constants(schedule, k, slope, floor):
    """None, or an error for an unknown schedule and for constants that it would not read."""
    require(schedule in SCHEDULES, "schedule", repr(schedule), ", ".join(map(repr, SCHEDULES)))
    linear = schedule == "linear"
    for name, value, default, read in (
        ("k", k, None, schedule != "none"),
        ("slope", slope, 0.002, linear),
        ("floor", floor, 0.0, linear),
    ):
        allowed = f"{default}: schedule {schedule!r} does not read it"
        require(read or value == default, name, value, allowed)


def _check_form(form, passes, soft):
    require(form in FORMS, "form", repr(form), ", ".join(map(repr, FORMS)))
    counts = whole("passes", passes) == 2 or form == "parallel"
    require(counts, "passes", passes, f"2, the default: form {form!r} reads no other")
    given = not flag("soft", soft) or form == "two_pass"
    require(given, "soft", soft, f"False: form {form!r} feeds tokens, not mixtures")


def _check_mix(inputs, keep, draws):
    check_prefix(inputs, "inputs", least=1)
    wanted = [inputs.shape[0], inputs.shape[1] - 1]
    told = f"{keep.dtype} {list(keep.shape)}" if hasattr(keep, "dtype") else type(keep).__name__
    fits = getattr(keep, "dtype", None) == torch.bool and list(keep.shape) == wanted
    require(fits, "keep", told, f"bool {wanted}")
    if draws is not None:
        _check_draws(draws, wanted)


def _check_draws(draws, wanted):
    check_float(draws, "draws")
    same = list(draws.shape) == list(wanted)
    require(same, "draws", f"shape {list(draws.shape)}", f"shape {list(wanted)}", ShapeError)
    inside = bool(((draws >= 0) & (draws <= 1)).all())  # NaN fails too
    require(inside, "draws", "a number outside 0 to 1, or NaN", "numbers from 0 to 1")
