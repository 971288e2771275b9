"""Does a decoder that fills all slots at once mix two right answers? Measured on spoken digits.

One network (labcore.models.nar) is trained in four ways on the same pairs: in order, in slots cut
at END, in as many slots as a length predictor says, and by masking, for filling in several rounds.
Sources of every length from 2 to 10 are then answered, by drawing from the model and by taking the
most probable token, and an answer counts as mixed when it holds words of two languages.
"""

import torch

from labcore.decode import cut_at_end, fill, greedy
from labcore.experiments.registry import experiment
from labcore.models.nar import BOS, END, MASK, PAD, PrefixDecoder, empty_slots, predicted_lengths
from labcore.shapes import require
from labcore.train.loop import fit
from labcore.train.parallel import length_loss, masked_loss, ordered_loss, slots_loss
from labcore.train.two_modes import (
    SOURCE_SIZE,
    TARGET_SIZE,
    digits_right,
    draw,
    mixed,
    shares_of,
)

CONFIG = {
    "width": 32,
    "heads": 4,
    "hidden": 64,
    "layers": 2,
    "longest": 10,
    "pairs": 8192,
    "steps": 320,
    "batch": 64,
    "rate": 0.005,
    "tested": 400,
}
WAYS = ["ordered", "slots", "length", "masked"]
LENGTHS = [2, 3, 4, 5, 6, 8, 10]
ROUNDS = [1, 2, 3, 4, 6, 8, 10]
POINTS = [
    {"way": way, "modes": modes, "first": first}
    for way, modes, first in [
        *((way, 2, 0.5) for way in WAYS),
        ("ordered", 4, 0.25),
        ("length", 3, 1 / 3),
        ("length", 4, 0.25),
        ("length", 2, 0.7),
        ("ordered", 2, 0.9),
        ("length", 2, 0.9),
    ]
]


def build(config, way):
    """The untrained network for this way of writing; only its mask depends on the way."""
    require(way in WAYS, "way", repr(way), ", ".join(WAYS))
    sizes = {key: config[key] for key in ("width", "heads", "hidden", "layers")}
    return PrefixDecoder(
        SOURCE_SIZE,
        TARGET_SIZE,
        **sizes,
        # One slot more than words where END needs one.
        max_target=config["longest"] + (way == "slots"),
        parallel=way != "ordered",
    )


def train(config, seed, way, modes, first, *, dtype=torch.float32):
    """The pair of a trained network and its log.

    With float64 the answers drawn from it are the same words on every processor.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(config, way).to(dtype)
    pairs = draw(config["pairs"], shares_of(modes, first), longest=config["longest"], seed=seed)
    losses = {"ordered": ordered_loss, "slots": slots_loss, "length": length_loss}
    loss = masked_loss(seed) if way == "masked" else losses[way]
    chosen = {key: config[key] for key in ("steps", "batch", "rate")}
    return model, fit(model, pairs, loss, seed=seed, **chosen)


def write(model, way, pairs, *, generator=None, rounds=1, limit=None):
    """Target ids [n, T] for the sources of `pairs`, PAD behind the end.

    In order, at most `limit` tokens are written, END among them (`max_target` when None).

    The most probable tokens, or with a `generator` drawn ones. A drawn token is the most probable
    one after Gumbel noise on the logits, so `greedy` itself serves for both.
    """
    score, longest = model.scorer(pairs.source, pairs.source_lengths), model.max_target
    if way == "ordered":
        start = torch.full((len(pairs.source), 1), BOS)
        noisy = score if generator is None else lambda ids: gumbel(score(ids), generator)
        never = (PAD, BOS, MASK)
        how = {"max_new_tokens": longest if limit is None else limit, "forbidden": never}
        return cut_at_end(greedy(noisy, start, eos=END, pad=PAD, **how)[:, 1:], END, PAD)
    if way == "slots":
        slots = torch.full((len(pairs.source), longest), MASK)
        ids = fill(score, slots, mask=MASK, forbidden=(PAD, BOS), generator=generator)
        return cut_at_end(ids, END, PAD)
    lengths = predicted_lengths(model, pairs.source, pairs.source_lengths)
    never = (PAD, BOS, END)
    more = {"forbidden": never, "generator": generator, "rounds": rounds}
    return fill(score, empty_slots(lengths, longest), mask=MASK, **more)


def gumbel(logits, generator):
    """Logits with independent Gumbel noise: their argmax is a draw from the softmax of `logits`.

    P(argmax_i (l_i + g_i) = j) = softmax(l)_j for g_i = -log(-log u_i) (Gumbel 1954, page 29).
    """
    uniform = torch.rand(logits.shape, generator=generator, dtype=torch.float64)
    return logits.double() - (-uniform.clamp(1e-300, 1 - 1e-16).log()).log()


def measure(model, way, pairs, **how):
    """Shares of the answers to `pairs` that are `mixed`, and that have all `digits` right."""
    found = write(model, way, pairs, **how)
    right = digits_right(pairs.source, found)
    return mixed(found).double().mean().item(), right.double().mean().item()


@experiment(
    "two_modes",
    config=CONFIG,
    points=POINTS,
    tolerance={"mixed_2": 0.12, "mixed_5": 0.12, "mixed_10": 0.12},
    replay={"way": "length", "modes": 2, "first": 0.5},
)
def run(config, seed, way, modes, first):
    """Mixed answers of one network that writes in order, in slots, by length, and in rounds."""
    model, log = train(config, seed, way, modes, first)
    shares, result = shares_of(modes, first), {"loss": sum(s.loss for s in log[-20:]) / 20}
    for T in LENGTHS:
        pairs = draw(config["tested"], shares, shortest=T, longest=T, seed=1000 + seed)
        numbers = torch.Generator().manual_seed(seed)
        result[f"mixed_{T}"], result[f"right_{T}"] = measure(model, way, pairs, generator=numbers)
        result[f"top_mixed_{T}"], result[f"top_right_{T}"] = measure(model, way, pairs)
    if way == "masked":
        pairs = draw(config["tested"], shares, shortest=10, longest=10, seed=1000 + seed)
        for rounds in ROUNDS:
            numbers = torch.Generator().manual_seed(seed)
            told = measure(model, way, pairs, generator=numbers, rounds=rounds)
            result[f"rounds_{rounds}"] = told[0]
            result[f"top_rounds_{rounds}"] = measure(model, way, pairs, rounds=rounds)[0]
    return result
