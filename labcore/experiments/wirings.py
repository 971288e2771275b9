"""Six wirings of cross-attention on the numerals task: does it matter which layers are read?

Same data in the same order, same weights at the start, same updates; only the wiring differs.
The models have 3 + 3 layers. They are looked at twice, after few updates and after twice as many,
each time with a schedule of its own, so that both runs end with a small learning rate.
"""

import functools

import torch

from labcore.blocks.wiring import WIRINGS
from labcore.experiments.registry import experiment
from labcore.models.seq2seq import Seq2Seq
from labcore.train.forcing import teacher_forced_loss
from labcore.train.loop import fit
from labcore.train.numerals import BOS, SOURCE, TARGET, exact_match, numerals

CONFIG = {
    "model": {"width": 48, "heads": 3, "hidden": 96, "layers": 3, "norm": "pre"},
    "data": {"count": 12000, "held_out": 500, "seed": 0},
    "batch": 64,
    "rate": 0.003,
}
STEPS = [120, 240]


@functools.cache
def parts(count, held_out, seed):
    """The pair (training, held-out) of `Numerals`, made once."""
    return numerals(count, held_out, seed)


def build(config, wiring, seed):
    """The untrained model of one wiring, drawn from `seed`, leaving the global generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Seq2Seq(len(SOURCE), len(TARGET), **config["model"], wiring=wiring)


@experiment(
    "wirings",
    config=CONFIG,
    points=[{"wiring": wiring, "steps": steps} for steps in STEPS for wiring in WIRINGS],
    seeds=(0, 1, 2),
    tolerance={"held_out_loss": 0.15, "exact_match": 0.25, "parameters": 0},
    replay={"wiring": "last", "steps": 120},
)
def run(config, seed, wiring, steps):
    """Held-out loss and exact match of six wirings of cross-attention after short training."""
    train, test = parts(**config["data"])
    model = build(config, wiring, seed)
    options = {key: config[key] for key in ("batch", "rate")}
    fit(
        model,
        (train.source, train.target),
        teacher_forced_loss,
        steps=steps,
        seed=seed,
        **options,
    )
    with torch.no_grad():
        loss = teacher_forced_loss(model, test.source, test.target).item()
    return {
        "held_out_loss": loss,
        "exact_match": exact_match(translate(model, test.source), test.target),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def translate(model, source, words=11):
    """Ids [B, 1 + words] of the likeliest next word, again and again, from BOS on."""
    ids = torch.full((len(source), 1), BOS)
    with torch.no_grad():
        score = model.scorer(source)
        for _ in range(words):
            ids = torch.cat([ids, score(ids).argmax(-1, keepdim=True)], dim=1)
    return ids
