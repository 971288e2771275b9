"""Which way of decoding reads a translation model best, and does it depend on the model?

The task: Chinese numerals into English words, 12,000 to learn from, 300 held out; every numeral has
one right translation. One encoder–decoder is trained for more or fewer updates, so that the model
is worse or better, and the *same* weights are then decoded in several ways. Exact match counts
whole sequences; BLEU is that of the corpus, orders 1 to 4, unsmoothed.
"""

import torch

from labcore.decode import beam_search, greedy, sample
from labcore.experiments.registry import experiment
from labcore.metrics import corpus_bleu
from labcore.models.seq2seq import Seq2Seq
from labcore.train.forcing import frame, teacher_forced_loss
from labcore.train.loop import fit
from labcore.train.numerals import (
    BOS,
    EOS,
    PAD,
    SOURCE,
    TARGET,
    decode_target,
    exact_match,
    numerals,
)

CONFIG = {
    "count": 12_000,
    "held_out": 300,
    "data_seed": 0,
    "model": {"width": 64, "heads": 4, "hidden": 128, "layers": 2, "norm": "pre"},
    "batch": 64,
    "rate": 0.003,
    "warmup": 0.1,
    "max_new_tokens": 16,
    "methods": {
        "greedy": {},
        "beam_2": {"beam": 2},
        "beam_4": {"beam": 4},
        "sample_1.0": {"temperature": 1.0},
        "sample_0.5": {"temperature": 0.5},
        "top_p_0.9": {"top_p": 0.9},
    },
}
STEPS = [80, 120, 160, 300]
METHODS = list(CONFIG["methods"])


def trained(config, seed, steps):
    """(model, held-out examples): a `Seq2Seq` after `steps` updates of teacher forcing."""
    train, test = numerals(config["count"], config["held_out"], config["data_seed"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Seq2Seq(len(SOURCE), len(TARGET), **config["model"])
    options = {key: config[key] for key in ("batch", "rate", "warmup")}
    fit(model, (train.source, train.target), teacher_forced_loss, steps=steps, seed=seed, **options)
    return model, test


@torch.no_grad()
def decoded(model, source, method, max_new_tokens=16, seed=0, **options):
    """Ids [B, T] of a source [B, S]: BOS, the words that `method` finds, EOS, padding.

    `method` begins with greedy, beam, sample or top_p; `options` go to that function.
    A beam that reaches `max_new_tokens` unfinished is closed with EOS; no target is that long.
    """
    score, start = model.scorer(source), torch.full((len(source), 1), BOS)
    ends = {"eos": EOS, "max_new_tokens": max_new_tokens}
    if method.startswith("beam"):
        found = beam_search(score, start, **ends, **options).hypotheses
        rows = [best[0].ids[:-1] if best[0].finished else best[0].ids for best in found]
        return frame(rows, BOS, EOS, PAD)
    if method == "greedy":
        return greedy(score, start, pad=PAD, **ends)
    generator = torch.Generator().manual_seed(seed)
    return sample(score, start, pad=PAD, generator=generator, **ends, **options)


def judged(ids, target):
    """(exact match, corpus BLEU) of decoded ids [B, T] against targets [B, T']."""
    found, wanted = ([text.split() for text in decode_target(part)] for part in (ids, target))
    return exact_match(ids, target), corpus_bleu(found, [[words] for words in wanted]).score


@experiment(
    "decoding",
    config=CONFIG,
    points=[{"steps": steps} for steps in STEPS],
    seeds=(0, 1, 2),
    tolerance={f"{kind}:{name}": 0.1 for kind in ("exact", "bleu") for name in METHODS},
    replay={"steps": 120},
)
def run(config, seed, steps):
    """Exact match and BLEU of six ways to decode one model, against how long it was trained."""
    model, test = trained(config, seed, steps)
    row = {}
    for name, options in config["methods"].items():
        ids = decoded(model, test.source, name, config["max_new_tokens"], seed, **options)
        row[f"exact:{name}"], row[f"bleu:{name}"] = judged(ids, test.target)
    return row
