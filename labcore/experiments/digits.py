"""How much data does each prior want? A convolutional and an attention model on small digits.

The data: scikit-learn's 1,797 handwritten digits of 8 × 8 pixels. 360 images are the test set, 200
choose the learning rate, and the training sets are drawn from the other 1,237, the same number of
every digit. Both models have the same number of parameters to within 2 %, the same optimiser, the
same number of updates, and the same four learning rates to choose from. Nothing is augmented.

What differs is the prior: the convolutional model knows that neighbours belong together and that a
stroke is a stroke wherever it stands; the attention model must learn both from the images.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from labcore.blocks import EncoderBlock
from labcore.embed import LearnedPositions
from labcore.experiments.registry import experiment
from labcore.norms import LayerNorm
from labcore.shapes import require
from labcore.train.loop import fit

CONFIG = {
    "test": 360,
    "validation": 200,
    "split_seed": 2024,
    "steps": 400,
    "batch": 64,
    "weight_decay": 0.05,
    "warmup": 0.1,
    "clip": 1.0,
    "cnn": {"channels": [16, 32, 44]},
    "attention": {"patch": 2, "width": 32, "heads": 4, "hidden": 64, "layers": 2},
}
MODELS = ["cnn", "attention"]
SIZES = [20, 50, 100, 200, 500, 1000]
RATES = [0.001, 0.003, 0.01, 0.03]


class ConvolutionalModel(nn.Module):
    """Logits [B, 10] of images [B, 8, 8]: three 3 × 3 convolutions, a pool, a mean, a linear map.

    >>> list(ConvolutionalModel([4, 5, 6])(torch.zeros(3, 8, 8)).shape)
    [3, 10]
    """

    def __init__(self, channels):
        super().__init__()
        first, second, third = channels
        self.layers = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(),
        )
        self.answer = nn.Linear(third, 10)

    def forward(self, images):
        return self.answer(self.layers(images[:, None]).mean((-2, -1)))


class AttentionModel(nn.Module):
    """Logits [B, 10] of images [B, 8, 8]: patches, learned positions, pre-norm blocks, a mean.

    >>> model = AttentionModel(patch=2, width=8, heads=4, hidden=11, layers=1)
    >>> list(model(torch.zeros(3, 8, 8)).shape)
    [3, 10]
    """

    def __init__(self, patch, width, heads, hidden, layers):
        super().__init__()
        self.patch = patch
        self.embedding = nn.Linear(patch * patch, width)
        self.positions = LearnedPositions((8 // patch) ** 2, width)
        blocks = [EncoderBlock(width, heads, hidden, "pre") for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = LayerNorm(width)
        self.answer = nn.Linear(width, 10)

    def forward(self, images):
        side = self.patch
        patches = images.unfold(1, side, side).unfold(2, side, side).flatten(3).flatten(1, 2)
        x = self.blocks(self.positions(self.embedding(patches)))
        return self.answer(self.norm(x).mean(1))


def build(config, model):
    """The untrained "cnn" or "attention" model of this config."""
    require(model in MODELS, "model", given=repr(model), allowed=", ".join(MODELS))
    if model == "cnn":
        return ConvolutionalModel(**config["cnn"])
    return AttentionModel(**config["attention"])


@functools.cache
def digits(test, validation, split_seed):
    """(images, labels) of the parts "test", "validation" and "pool", images [n, 8, 8] in 0 … 1.

    >>> parts = digits(360, 200, 2024)
    >>> {name: list(images.shape) for name, (images, _) in parts.items()}
    {'test': [360, 8, 8], 'validation': [200, 8, 8], 'pool': [1237, 8, 8]}
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy(found.images).float() / 16
    labels = torch.from_numpy(found.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(split_seed))
    ends = {"test": order[:test], "validation": order[test : test + validation]}
    ends["pool"] = order[test + validation :]
    return {name: (images[chosen], labels[chosen]) for name, chosen in ends.items()}


def training_set(config, size, seed):
    """(images, labels): `size` images of the pool, equally many of every digit, drawn by `seed`."""
    images, labels = digits(config["test"], config["validation"], config["split_seed"])["pool"]
    require(size % 10 == 0, "size", given=size, allowed="a multiple of 10")
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=draw)
    # Smaller sets are parts of larger ones with the same seed: only the size differs.
    chosen = torch.cat([order[labels[order] == digit][: size // 10] for digit in range(10)])
    require(len(chosen) == size, "size", given=size, allowed="at most what the pool holds")
    return images[chosen], labels[chosen]


@experiment(
    "digits_data_size",
    config=CONFIG,
    points=[
        {"model": model, "size": size, "rate": rate}
        for size in SIZES
        for model in MODELS
        for rate in RATES
    ],
    seeds=(0, 1, 2),
    tolerance={"test_accuracy": 0.03, "parameters": 0},
    replay={"model": "attention", "size": 200, "rate": 0.01},
)
def run(config, seed, model, size, rate):
    """Accuracy of a convolutional and an attention model against the size of the training set."""
    parts = digits(config["test"], config["validation"], config["split_seed"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(config, model)
    log = fit(
        network,
        training_set(config, size, seed),
        lambda network, images, labels: F.cross_entropy(network(images), labels),
        rate=rate,
        seed=seed,
        **{key: config[key] for key in ("steps", "batch", "weight_decay", "warmup", "clip")},
    )
    return {
        "test_accuracy": accuracy(network, *parts["test"]),
        "validation_accuracy": accuracy(network, *parts["validation"]),
        "training_loss": sum(step.loss for step in log[-10:]) / 10,
        "parameters": sum(p.numel() for p in network.parameters()),
    }


def accuracy(network, images, labels):
    """Share of images whose largest logit is at the label."""
    with torch.no_grad():
        return (network(images).argmax(-1) == labels).double().mean().item()


def best_rate(results, model, size):
    """The learning rate with the best mean validation accuracy over the seeds; ties: the smallest.

    The test set has no part in the choice.
    """

    def quality(rate):
        found = results.values("validation_accuracy", model=model, size=size, rate=rate)
        return sum(found) / len(found)

    return max(RATES, key=quality)


def curve(results, model):
    """Test accuracies of all seeds at the chosen rate, by training-set size: {size: [seeds]}."""
    return {
        size: results.values(
            "test_accuracy", model=model, size=size, rate=best_rate(results, model, size)
        )
        for size in SIZES
    }
