"""The same ways of writing on a task with one right answer: Chinese numerals to English.

Here no two modes can mix, so what is left of the difference between writing in order and writing
in slots is how well a network without a look at its neighbours can place words. Same network and
losses as in `two_modes`, larger. Numbers to learn from, numbers held out, updates, batch and rate
are those of the experiment `decoding`, so that the two stand in one table; judged as there, by
whole answers that are right and by the BLEU of the corpus.
"""

import functools

import torch

from labcore.experiments import decoding
from labcore.experiments.registry import experiment
from labcore.experiments.two_modes import WAYS, write
from labcore.metrics import corpus_bleu
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
    **{key: decoding.CONFIG[key] for key in ("count", "held_out", "data_seed")},
    **{key: decoding.CONFIG[key] for key in ("batch", "rate", "warmup")},
}
STEPS = [*decoding.STEPS, 500]
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
def data(count, held_out, seed=0):
    """The training and the held-out `Pairs`."""
    return tuple(map(pairs_of, numerals.numerals(count, held_out, seed)))


def data_of(config):
    """The training and the held-out `Pairs` that this config asks for."""
    return data(config["count"], config["held_out"], config["data_seed"])


def train(config, seed, way, steps):
    """The pair of a network after `steps` updates and its log."""
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
    pairs, _ = data_of(config)
    chosen = {key: config[key] for key in ("batch", "rate", "warmup")}
    return model, fit(model, pairs, loss, steps=steps, seed=seed, **chosen)


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


def texts_of(ids):
    """English texts of ids [n, T] with MASK among the signs, PAD left out.

    >>> texts_of(torch.tensor([[16, 0], [5, 32]]))
    ['twelve', 'one hundred']
    """
    return numerals.decode_target(torch.where(ids > MASK, ids - MASK + numerals.EOS, PAD))


def bleu(found, wanted):
    """BLEU of the corpus, orders 1 to 4, unsmoothed, of ids [n, T] against ids [n, T'].

    >>> bleu(torch.tensor([[5, 32, 6, 7]]), torch.tensor([[5, 32, 6, 7]]))
    1.0
    """
    found, wanted = ([text.split() for text in texts_of(ids)] for ids in (found, wanted))
    return corpus_bleu(found, [[words] for words in wanted]).score


@experiment(
    "nar_numerals",
    config=CONFIG,
    points=[{"way": way, "steps": n} for way in ("ordered", "slots", "masked") for n in STEPS],
    tolerance={"exact": 0.1, "bleu": 0.1},
    replay={"way": "masked", "steps": 300},
)
def run(config, seed, way, steps):
    """Exact match and BLEU on numerals of one network that writes in order, in slots, in rounds."""
    model, log = train(config, seed, way, steps)
    _, pairs = data_of(config)
    result = {"loss": sum(step.loss for step in log[-20:]) / 20}
    if way in ("length", "masked"):
        lengths = predicted_lengths(model, pairs.source, pairs.source_lengths)
        result["length_right"] = (lengths == pairs.target_lengths).double().mean().item()
    for rounds in ROUNDS if way == "masked" else [1]:
        found = write(model, way, pairs, rounds=rounds)
        tail = f"_{rounds}" if way == "masked" else ""
        result[f"exact{tail}"] = exact(found, pairs.target)
        result[f"bleu{tail}"] = bleu(found, pairs.target)
    if way == "masked":
        result |= {kind: result[f"{kind}_1"] for kind in ("exact", "bleu")}
    return result
