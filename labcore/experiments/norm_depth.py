"""Where the norm sits, how deep the stack is, whether the rate warms up: who learns what?

Post-norm and pre-norm Transformer encoders learn to reverse 8 symbols in 200 updates by Adam. The
grid crosses the layout with depth, warm-up and learning rate. Two further pairs have one block and
a small rate, once with tables of tokens and positions drawn from N(0, 1), once from the small start
that this package uses elsewhere: the winner changes.

All weights of a block start as `torch.nn.TransformerEncoderLayer` starts them.
"""

import torch
from torch import nn

from labcore.experiments.registry import experiment
from labcore.models.encoder import Encoder, Tagger
from labcore.shapes import require
from labcore.train.reversal import reversal_accuracy, train_reversal

CONFIG = {
    "symbols": 10,
    "length": 8,
    "batch": 32,
    "steps": 200,
    "width": 32,
    "heads": 4,
    "hidden": 64,
    "tail": 20,
    "every": 25,
}
NORMS = ["post", "pre"]
WARMUPS = [0, 50]
SHALLOW = {"depth": 1, "rate": 0.001, "warmup": 0}
GRID = [(2, 0.003), (6, 0.003), (12, 0.003), (2, 0.01), (6, 0.01), (12, 0.01)]
POINTS = [
    {"norm": norm, **SHALLOW, "tables": tables} for tables in ("unit", "small") for norm in NORMS
]
POINTS += [
    {"norm": norm, "depth": depth, "rate": rate, "warmup": warmup, "tables": "unit"}
    for depth, rate in GRID
    for warmup in WARMUPS
    for norm in NORMS
]


def build(config, norm, depth, tables):
    """The untrained `Tagger`: its blocks start as torch's do, its tables "unit" or "small".

    >>> list(build(CONFIG, "pre", 1, "unit")(torch.zeros(3, 8, dtype=torch.long)).shape)
    [3, 8, 10]
    """
    require(tables in ("unit", "small"), "tables", repr(tables), '"unit" or "small"')
    sizes = {"heads": config["heads"], "hidden": config["hidden"], "norm": norm}
    encoder = Encoder("transformer", config["width"], depth, **sizes)
    model = Tagger(encoder, config["symbols"], config["length"])
    if tables == "unit":
        nn.init.normal_(model.tokens.weight)
        nn.init.normal_(model.positions.weight)
    for block in encoder.blocks:
        # torch draws q, k and v as one Xavier matrix [3D, D]: each is √2 smaller than alone.
        for name in ("q_proj", "k_proj", "v_proj"):
            nn.init.xavier_uniform_(getattr(block.attention, name).weight, gain=0.5**0.5)
        bound = config["width"] ** -0.5
        nn.init.uniform_(block.attention.o_proj.weight, -bound, bound)
    return model


@experiment(
    "norm_depth",
    config=CONFIG,
    points=POINTS,
    seeds=(0, 1, 2),
    tolerance={"loss": 0.1, "accuracy": 0.1},
    replay={"norm": "pre", "depth": 6, "rate": 0.003, "warmup": 50, "tables": "unit"},
)
def run(config, seed, norm, depth, rate, warmup, tables):
    """Post-norm against pre-norm over depth, warm-up and learning rate, on reversing 8 symbols."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(config, norm, depth, tables)
    sizes = {name: config[name] for name in ("symbols", "length", "batch")}
    losses = train_reversal(model, config["steps"], rate, warmup=warmup, seed=seed, **sizes)
    sizes.pop("batch")
    tail, every = config["tail"], config["every"]
    found = {
        "loss": sum(losses[-tail:]) / tail,
        "accuracy": reversal_accuracy(model, **sizes),
    }
    for end in range(every, config["steps"] + 1, every):
        found[f"loss_{end}"] = sum(losses[end - every : end]) / every
    return found


def curve(results, **point):
    """Loss curves of one point: the updates [n] and, for each seed, a list of n mean losses."""
    config = CONFIG
    ends = range(config["every"], config["steps"] + 1, config["every"])
    columns = [results.values(f"loss_{end}", **point) for end in ends]
    return list(ends), [list(row) for row in zip(*columns, strict=True)]
