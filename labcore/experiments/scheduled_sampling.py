"""Scheduled sampling against teacher forcing on the numerals task, in three forms.

Every run has the same data, model, number of updates and order of batches. What differs is what
the decoder reads while it is trained: true tokens, or a mixture with its own that grows by one of
three schedules. At the end about a tenth of the tokens is true, with the inverse sigmoid less. The
number of *decoder calls* differs between the forms and is part of the result: updates are equal,
work is not.
"""

import torch

from labcore.experiments.registry import experiment
from labcore.experiments.wirings import parts, translate
from labcore.models.seq2seq import Seq2Seq
from labcore.train.forcing import shift_right, teacher_forced_loss
from labcore.train.loop import fit
from labcore.train.losses import cross_entropy
from labcore.train.numerals import PAD, SOURCE, TARGET, exact_match
from labcore.train.scheduled import FORMS, scheduled_loss, true_share

CONFIG = {
    "model": {"width": 32, "heads": 4, "hidden": 64, "layers": 1, "norm": "pre"},
    "data": {"count": 12000, "held_out": 500, "seed": 0},
    "steps": 160,
    "batch": 32,
    "rate": 0.005,
    "passes": 3,
    # From about 1 to about 0.1 over the 160 updates; the inverse sigmoid to 0.02.
    "schedules": {
        "linear": {"k": 1.0, "slope": 0.005625, "floor": 0.1},
        "exponential": {"k": 0.9857},
        "inverse_sigmoid": {"k": 22.0},
    },
}
POINTS = [{"form": "teacher", "schedule": "none"}]
POINTS += [{"form": f, "schedule": s} for f in FORMS for s in CONFIG["schedules"]]


@experiment(
    "scheduled_sampling",
    config=CONFIG,
    points=POINTS,
    seeds=(0, 1, 2),
    tolerance={"exact_match": 0.3, "loss_true_prefix": 0.3, "decoder_calls": 0},
    replay={"form": "two_pass", "schedule": "linear"},
)
def run(config, seed, form, schedule):
    """Exact match, and loss on true and on own prefixes, of scheduled sampling in three forms."""
    train, test = parts(**config["data"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Seq2Seq(len(SOURCE), len(TARGET), **config["model"])
    loss = teacher_forced_loss if form == "teacher" else _mixed_loss(config, seed, form, schedule)
    calls = []
    watch = model.decoder[0].register_forward_hook(lambda *_: calls.append(1))
    options = {key: config[key] for key in ("steps", "batch", "rate")}
    fit(model, (train.source, train.target), loss, seed=seed, **options)
    watch.remove()
    true, own = prefix_losses(model, test.source, test.target)
    found = translate(model, test.source)
    return {
        "exact_match": exact_match(found, test.target),
        "loss_true_prefix": true,
        "loss_own_prefix": own,
        "decoder_calls": len(calls),
    }


def _mixed_loss(config, seed, form, schedule):
    """A loss for `fit` that counts its own calls, because the share of true tokens falls."""
    generator, step = torch.Generator().manual_seed(seed), 0

    def loss(model, source, framed):
        nonlocal step
        passes = config["passes"] if form == "parallel" else 2
        share = true_share(schedule, step, **config["schedules"][schedule])
        step += 1
        return scheduled_loss(
            model, source, framed, share, form=form, passes=passes, generator=generator
        )

    return loss


def prefix_losses(model, source, framed):
    """The pair of mean losses of the true next words: after true prefixes, after own ones.

    Own prefixes are the greedy translation, cut to the length of the target.
    """
    inputs, labels = shift_right(framed)
    own = translate(model, source, words=inputs.shape[1] - 1)

    with torch.no_grad():
        losses = [
            cross_entropy(model(source, ids), labels, padding=PAD).item() for ids in (inputs, own)
        ]
    return tuple(losses)
