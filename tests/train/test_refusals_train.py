"""Losses, mixed prefixes and toy tasks: sums that do not overflow, and what is refused by name."""

import math

import pytest
import torch
import torch.nn.functional as F

from labcore.models import Seq2Seq
from labcore.train import (
    PositionPolicy,
    families,
    fit_reinforce,
    numerals,
    phrases,
    referent,
    two_modes,
)
from labcore.train import loop as training
from labcore.train.corruption import hide_tokens, random_spans
from labcore.train.forcing import frame, shift_right, stepwise_loss, teacher_forced_loss
from labcore.train.losses import cross_entropy, cross_entropy_naive
from labcore.train.packing import pack, packed_inputs_and_labels, packed_mask
from labcore.train.scheduled import (
    choose,
    coins,
    mix_parallel,
    mix_stepwise,
    scheduled_loss,
    true_share,
)

B, T, Y = 3, 5, 9
INPUTS = torch.ones(B, T, dtype=torch.long)
KEEP = torch.zeros(B, T - 1, dtype=torch.bool)
SOURCE, FRAMED = torch.ones(B, 7, dtype=torch.long), torch.ones(B, T + 1, dtype=torch.long)
FORMS = (cross_entropy, cross_entropy_naive)


def loss(form=cross_entropy, fill=0.0, **options):
    logits = torch.zeros(B, T, Y)
    logits[1, 2] = fill
    return form(logits, INPUTS, **options)


def stepwise(make=None, inputs=INPUTS, keep=KEEP, draws=None):
    make = make or (lambda n: torch.zeros(n, Y))
    return mix_stepwise(lambda ids: make(len(ids)), inputs, keep, draws)


def parallel(make=None, inputs=INPUTS, keep=KEEP, passes=2, draws=None):
    make = make or (lambda n: torch.zeros(n, T, Y))
    return mix_parallel(lambda ids: make(len(ids)), inputs, keep, passes, draws)


def scheduled(**options):
    return scheduled_loss(Seq2Seq(17, 33, 12, 4, 19, 1), SOURCE, FRAMED, 0.5, **options)


def fitted(**options):
    data, error = (torch.ones(T, 3),), lambda model, x: model(x).mean()
    options = {"steps": 2, "rate": 0.1, **options}
    return training.fit(torch.nn.Linear(3, 1), data, error, **options)


ENDS = {"bos": 1, "eos": 2, "padding": 0}
BAD_ROWS = (math.nan, math.inf, -math.inf)
REFUSED = [
    *[("logits", ValueError, lambda f=f, x=x: loss(f, x)) for f in FORMS for x in BAD_ROWS],
    *[
        ("padding", ValueError, lambda form=form, x=x: loss(form, padding=x))
        for form in FORMS
        for x in (1.5, True, "x", math.nan)
    ],
    *[
        ("logits", ValueError, lambda x=x, d=d: choose(torch.full((B, Y), x), d))
        for x in BAD_ROWS
        for d in (None, torch.rand(B))
    ],
    ("logits", ValueError, lambda: choose(torch.zeros(B, 0))),
    ("logits", TypeError, lambda: choose([0.0, 1.0])),
    *[
        ("draws", ValueError, lambda x=x: choose(torch.zeros(B, Y), torch.full((B,), x)))
        for x in (5.0, -3.0, math.nan)
    ],
    ("draws", ValueError, lambda: choose(torch.zeros(B, Y), torch.rand(1))),
    ("draws", TypeError, lambda: choose(torch.zeros(B, Y), 0.5)),
    *[
        ("inputs", error, lambda mix=mix, inputs=inputs: mix(inputs=inputs))
        for mix in (stepwise, parallel)
        for inputs, error in (
            (INPUTS.float(), TypeError),
            (INPUTS.tolist(), TypeError),
            (INPUTS[0], ValueError),
            (-INPUTS, ValueError),
            (INPUTS[:, :0], ValueError),
        )
    ],
    *[
        ("draws", error, lambda mix=mix, draws=draws: mix(draws=draws))
        for mix in (stepwise, parallel)
        for draws, error in (
            (torch.rand(B, T), ValueError),
            (torch.full((B, T - 1), math.nan), ValueError),
            (torch.ones(B, T - 1).long(), TypeError),
        )
    ],
    *[
        ("keep", ValueError, lambda mix=mix, keep=keep: mix(keep=keep))
        for mix in (stepwise, parallel)
        for keep in (KEEP.long(), KEEP[:, :2], None)
    ],
    *[
        ("score", ValueError, lambda make=make: stepwise(make))
        for make in (
            lambda n: torch.zeros(1, Y),
            lambda n: torch.zeros(n, T, Y),
            lambda n: torch.full((n, Y), math.nan),
        )
    ],
    *[
        ("decode", ValueError, lambda make=make: parallel(make))
        for make in (lambda n: torch.zeros(1, T, Y), lambda n: torch.zeros(n, Y), lambda n: None)
    ],
    ("logits", ValueError, lambda: parallel(lambda n: torch.full((n, T, Y), math.nan))),
    *[("passes", ValueError, lambda n=n: parallel(passes=n)) for n in (-1, 1.5, True)],
    *[
        ("passes", ValueError, lambda form=form, n=n: scheduled(form=form, passes=n))
        for form, counts in {
            "stepwise": (-5, 7, True, 1.5),
            "two_pass": (-5, 7, True, 1.5),
            "parallel": (0, -5, True, 1.5),
        }.items()
        for n in counts
    ],
    *[("soft", TypeError, lambda soft=soft: scheduled(soft=soft)) for soft in ("no", None, 1)],
    *[
        ("soft", ValueError, lambda form=form: scheduled(form=form, soft=True))
        for form in ("stepwise", "parallel")
    ],
    ("padding", ValueError, lambda: scheduled(padding=1.5)),
    *[("share", ValueError, lambda x=x: coins((2, 3), x)) for x in (math.nan, True, "1")],
    *[("shape", ValueError, lambda x=x: coins((2, x), 0.5)) for x in (-3, 1.5, True)],
    *[
        ("generator", TypeError, lambda draw=draw: draw(generator=3))
        for draw in (
            lambda **o: coins((2, 3), 0.5, **o),
            lambda **o: hide_tokens(SOURCE, 3, [4], **o),
            lambda **o: random_spans(9, **o),
            scheduled,
        )
    ],
    *[
        ("k", ValueError, lambda name=name, k=k: true_share(name, 1, k=k))
        for name in ("linear", "exponential", "inverse_sigmoid")
        for k in (math.inf, math.nan, True, "1", -1)
    ],
    ("k", ValueError, lambda: true_share("none", 1, k=1)),
    ("floor", ValueError, lambda: true_share("exponential", 1, floor=0.1)),
    ("slope", ValueError, lambda: true_share("inverse_sigmoid", 1, slope=0.1)),
    *[("step", ValueError, lambda x=x: true_share("linear", x)) for x in (-1, math.nan, "1", True)],
    *[
        ("framed", error, lambda x=x: shift_right(x))
        for x, error in (
            ([1, 7, 2], TypeError),
            (torch.ones(B, T), TypeError),
            (torch.ones(B, 1).long(), ValueError),
        )
    ],
    *[
        (name, ValueError, lambda name=name, x=x: frame([[7]], **{**ENDS, name: x}))
        for name in ENDS
        for x in (1.5, True, -1, "x")
    ],
    *[
        (
            name,
            ValueError,
            lambda loss=loss: loss(Seq2Seq(17, 33, 12, 4, 19, 1), SOURCE[:1], FRAMED),
        )
        for loss, name in ((stepwise_loss, "source"), (teacher_forced_loss, "target"))
    ],
    ("padding", ValueError, lambda: frame([[7]], 1, 2, 2)),
    *[("rows", TypeError, lambda x=x: frame(x, 1, 2, 0)) for x in (None, [7], "x")],
    *[("seed", ValueError, lambda x=x: numerals.numerals(3, 2, x)) for x in (-1, 1.5, "x", True)],
    *[("rows", ValueError, lambda x=x: frame([[x]], 1, 2, 0)) for x in (1.5, True, -1)],
    *[
        ("ids", error, lambda decode=decode, ids=ids: decode(ids))
        for decode in (numerals.decode_target, families.decode)
        for ids, error in (
            (torch.tensor([[-1]]), ValueError),
            (torch.tensor([[99]]), ValueError),
            (torch.tensor([1, 2]), ValueError),
            (torch.tensor([[1.0]]), TypeError),
            ([[1]], TypeError),
        )
    ],
    *[
        ("ids", ValueError, lambda decode=decode, i=i: decode([i]))
        for decode in (phrases.decode, two_modes.text)
        for i in (-1, 99, 1.5, True)
    ],
    ("phrase", ValueError, lambda: phrases.encode("xyz")),
    ("length", ValueError, lambda: phrases.shifted(["深度"], length=2)),
    *[("number", ValueError, lambda x=x: numerals.examples([x])) for x in (1.9, "12", True, 10**6)],
    *[
        ("texts", TypeError, lambda encode=encode, x=x: encode(x))
        for encode in (numerals.encode_source, numerals.encode_target)
        for x in ("十二", [12])
    ],
    ("rows", TypeError, lambda: families.encode("十")),
    ("number", ValueError, lambda: families.digits(-5)),
    ("target", ValueError, lambda: numerals.exact_match(INPUTS, INPUTS)),
    ("ids", TypeError, lambda: numerals.exact_match([[1, 2]], torch.tensor([[1, 2]]))),
    ("target", ValueError, lambda: numerals.exact_match(INPUTS, INPUTS[0])),
    *[("modes", ValueError, lambda n=n: two_modes.shares_of(n)) for n in (1, 5, 2.0, True)],
    ("shares", ValueError, lambda: two_modes.mixing(3, [0.5, 0.4])),
    ("shares", TypeError, lambda: two_modes.mixing(3, 0.5)),
    ("count", ValueError, lambda: two_modes.draw(0, [0.5, 0.5])),
    ("shares", ValueError, lambda: two_modes.draw(3, [0.2] * 5)),
    *[("T", ValueError, lambda T=T: two_modes.lost_nats(T, [0.5, 0.5])) for T in (0, 1.5)],
    ("target", ValueError, lambda: two_modes.mixed(torch.tensor([[99]]))),
    ("hidden_id", ValueError, lambda: hide_tokens(INPUTS, -3, [4])),
    ("words", ValueError, lambda: hide_tokens(INPUTS, 3, [4.5])),
    ("ids", TypeError, lambda: hide_tokens([[1]], 3, [4])),
    ("share", ValueError, lambda: hide_tokens(INPUTS, 3, [4], share=math.nan)),
    *[("length", ValueError, lambda n=n: random_spans(n)) for n in (1, 2.5, True)],
    ("density", ValueError, lambda: random_spans(9, density=math.nan)),
    ("documents", ValueError, lambda: pack([[5, 1.5]], length=4)),
    ("padding", ValueError, lambda: pack([[5]], length=4, padding=1.5)),
    ("padding", ValueError, lambda: packed_inputs_and_labels(pack([[5]], length=4), padding="x")),
    ("documents", TypeError, lambda: packed_mask(torch.zeros(B, T))),
    ("causal", TypeError, lambda: packed_mask(INPUTS, causal="no")),
    *[("T", ValueError, lambda n=n: PositionPolicy(n, 3)) for n in (0, 1.5, True)],
    ("ids", ValueError, lambda: PositionPolicy(T, Y).log_prob(INPUTS + Y)),
    ("ids", ValueError, lambda: PositionPolicy(T, Y).log_prob(INPUTS[:, :2])),
    *[
        ("steps", ValueError, lambda n=n: fit_reinforce(PositionPolicy(2, 3), len, steps=n))
        for n in (0, 1.5, True)
    ],
    *[("rate", ValueError, lambda x=x: fitted(rate=x)) for x in (-1, math.nan, "1", True)],
    *[("clip", ValueError, lambda x=x: fitted(clip=x)) for x in (0, -1, math.nan)],
    *[("size", ValueError, lambda x=x: fitted(batch=x)) for x in (0, 1.5, True)],
    *[("step", ValueError, lambda i=i: training.rate_at(i, 10, 1.0)) for i in (-1, 10, 1.5)],
    ("count", ValueError, lambda: referent.sentences(1.5)),
    ("held_out", TypeError, lambda: referent.sentences(1, held_out="no")),
    ("ids", ValueError, lambda: referent.ReferentModel()(torch.full((B, T), 99), [5, 4, 3])),
    ("lengths", ValueError, lambda: referent.ReferentModel()(INPUTS, [5])),
    ("warmup", ValueError, lambda: training.rate_at(0, 10, 1.0, warmup=2)),
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_half_precision_is_summed_in_float32(form, dtype, reduction):
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(70_000, 4, generator=draw).to(dtype).requires_grad_()
    labels = torch.randint(0, 4, (70_000,), generator=draw)
    found = form(logits, labels, reduction=reduction)
    wide = logits.detach().double().requires_grad_()
    wanted = F.cross_entropy(wide, labels, reduction=reduction)
    assert found.dtype == torch.float32
    assert abs(found.item() / wanted.item() - 1) < 1e-5
    grads = [torch.autograd.grad(value, x)[0] for value, x in ((found, logits), (wanted, wide))]
    assert grads[0].dtype == dtype and (grads[0].double() - grads[1]).abs().max() < 4e-3


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_count_may_be_anything(form):
    logits, labels = torch.zeros(B, T, Y), INPUTS.clone()
    wanted = form(logits, labels)
    for fill in BAD_ROWS:
        more = torch.cat([logits, torch.full((B, 1, Y), fill)], dim=1)
        given = F.pad(labels, (0, 1), value=0)
        assert abs(form(more, given, padding=0) - wanted) < 1e-6


def test_nothing_to_encode_has_two_axes():
    for encode in (numerals.encode_source, families.encode):
        assert encode([]).shape == (0, 0)
    assert numerals.encode_target([]).shape == (0, 0)
    assert [list(part.shape) for part in numerals.examples([])] == [[0], [0, 0], [0, 0]]


def test_numbers_may_come_as_a_tensor():
    found = numerals.examples(torch.tensor([7, 123_000]))
    assert found.numbers.tolist() == [7, 123_000]
    assert numerals.decode_target(found.target) == ["seven", "one hundred twenty three thousand"]
