"""The same ways of writing on a task with one right answer: Chinese numerals to English.

Here no two modes can mix, so what is left of the difference between writing in order and writing
in slots is how well a network without a look at its neighbours can place words. Same network and
losses as in `two_modes`, larger; judged by whole answers that are right, on held-out numbers.
"""

import functools

import torch

from labcore.experiments.registry import experiment
from labcore.experiments.two_modes import WAYS, write
from labcore.models.nar import MASK, PAD, PrefixDecoder, predicted_lengths
from labcore.shapes import require
from labcore.train import numerals
from labcore.train.loop import fit
from labcore.train.parallel import length_loss, masked_loss, ordered_loss, slots_loss
from labcore.train.two_modes import Pairs

CONFIG = {
    "width": 64,
    "heads": 4,
    "hidden": 128,
    "layers": 2,
    "longest": 9,
    "pairs": 12000,
    "held_out": 400,
    "steps": 500,
    "batch": 64,
    "rate": 0.003,
}
ROUNDS = [1, 2, 4, 9]
TARGET_SIZE = len(numerals.TARGET) + 1


def pairs_of(examples):
    """The `Pairs` of `Numerals`: words only, ids moved up by one to make room for MASK.

    >>> pairs_of(numerals.examples([12, 100])).target.tolist()
    [[16, 0], [5, 32]]
    """
    words = examples.target[:, 1:]  # BOS goes, EOS becomes padding
    words = torch.where(words > numerals.EOS, words + MASK - numerals.EOS, PAD)
    lengths = (words != PAD).sum(-1)
    source = examples.source
    return Pairs(source, (source != 0).sum(-1), words[:, : int(lengths.max())], lengths)


@functools.cache
def data(count, held_out):
    """The training and the held-out `Pairs`."""
    return tuple(map(pairs_of, numerals.numerals(count, held_out)))


def train(config, seed, way):
    """The pair of a trained network and its log."""
    require(way in WAYS, "way", repr(way), ", ".join(WAYS))
    sizes = {key: config[key] for key in ("width", "heads", "hidden", "layers")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PrefixDecoder(
            len(numerals.SOURCE),
            TARGET_SIZE,
            **sizes,
            max_target=config["longest"] + (way == "slots"),
            parallel=way != "ordered",
        )
    losses = {"ordered": ordered_loss, "slots": slots_loss, "length": length_loss}
    loss = masked_loss(seed) if way == "masked" else losses[way]
    pairs, _ = data(config["pairs"], config["held_out"])
    chosen = {key: config[key] for key in ("steps", "batch", "rate")}
    return model, fit(model, pairs, loss, seed=seed, **chosen)


def exact(found, wanted):
    """Share of rows [n, T] whose words are the wanted ones, all of them and no more.

    >>> exact(torch.tensor([[5, 6, 0], [5, 0, 0]]), torch.tensor([[5, 6], [5, 7]]))
    0.5
    """
    width = max(found.shape[1], wanted.shape[1])
    found, wanted = (
        torch.nn.functional.pad(ids, (0, width - ids.shape[1])) for ids in (found, wanted)
    )
    return (found == wanted).all(-1).double().mean().item()


@experiment(
    "nar_numerals",
    config=CONFIG,
    points=[{"way": way} for way in ("ordered", "slots", "masked")],
    tolerance={"exact": 0.1},
    replay={"way": "masked"},
)
def run(config, seed, way):
    """Right translations of numerals by one network that writes in order, in slots, in rounds."""
    model, log = train(config, seed, way)
    _, pairs = data(config["pairs"], config["held_out"])
    result = {
        "loss": sum(step.loss for step in log[-20:]) / 20,
        "exact": exact(write(model, way, pairs), pairs.target),
    }
    if way in ("length", "masked"):
        lengths = predicted_lengths(model, pairs.source, pairs.source_lengths)
        result["length_right"] = (lengths == pairs.target_lengths).double().mean().item()
    if way == "masked":
        for rounds in ROUNDS:
            found = write(model, way, pairs, rounds=rounds)
            result[f"exact_{rounds}"] = exact(found, pairs.target)
    return result
