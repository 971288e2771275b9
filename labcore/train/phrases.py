"""A character model small enough to read: nine short phrases, and what follows what in them.

Of 40 phrases 32 begin with 深 and 4 with 习, so that the first character has the distribution of
the lecture's example, 0.8 against 0.1. 度 and 渡 sound alike and lead to different ends.
"""

import torch
import torch.nn.functional as F

from labcore.models.decoder import Decoder
from labcore.shapes import require, whole
from labcore.train.loop import fit

PHRASES = {
    "深度学习": 24,
    "深度": 4,
    "深渡": 3,
    "深渡人": 1,
    "习惯": 4,
    "学习": 1,
    "学习习惯": 1,
    "渡人": 1,
    "人": 1,
}
PAD, BOS, EOS = 0, 1, 2
TOKENS = ["PAD", "BOS", "EOS", *sorted(set("".join(PHRASES)))]
LONGEST = 12  # positions that the model knows: room for outputs that do not stop
_IDS = {token: number for number, token in enumerate(TOKENS)}


def encode(phrase):
    """Ids of a phrase's characters, a list.

    >>> decode(encode("深度"))
    ['深', '度']
    """
    unknown = [letter for letter in phrase if letter not in _IDS]
    require(not unknown, "phrase", given=unknown, allowed="characters of PHRASES")
    return [_IDS[letter] for letter in phrase]


def decode(ids):
    """The tokens of a row of ids, a list of texts."""
    ids = ids.tolist() if isinstance(ids, torch.Tensor) else ids
    outside = [i for i in ids if whole("ids", i, 0) >= len(TOKENS)]
    require(not outside, "ids", given=outside, allowed=f"ids 0 to {len(TOKENS) - 1}")
    return [TOKENS[i] for i in ids]


def shifted(phrases, length=None):
    """The pair (inputs, labels) [n, T]: BOS and the phrase, the phrase and EOS; PAD behind both.

    Position i reads token i - 1 and is to predict token i: the right shift.

    >>> inputs, labels = shifted(["深度"], length=4)
    >>> decode(inputs[0]), decode(labels[0])
    (['BOS', '深', '度', 'PAD'], ['深', '度', 'EOS', 'PAD'])
    """
    rows = [encode(phrase) for phrase in phrases]
    longest = max(map(len, rows), default=0) + 1
    length = longest if length is None else whole("length", length, longest)
    pads = [[PAD] * (length - 1 - len(row)) for row in rows]
    inputs = [[BOS, *row, *more] for row, more in zip(rows, pads, strict=True)]
    labels = [[*row, EOS, *more] for row, more in zip(rows, pads, strict=True)]
    shape = (len(rows), length)
    return tuple(torch.tensor(x, dtype=torch.long).reshape(shape) for x in (inputs, labels))


def corpus():
    """(inputs, labels) of the 40 phrases, each as often as it occurs."""
    return shifted([phrase for phrase, count in PHRASES.items() for _ in range(count)])


def next_token_loss(model, inputs, labels):
    """Mean cross-entropy over the labels that are not PAD."""
    return F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=PAD)


def train_phrases(seed=0, steps=150, kind="causal", *, width=16):
    """The pair of a trained two-layer `Decoder` and its log, a list of `labcore.train.Step`.

    Every update sees all 40 phrases, so the best possible loss is their own entropy.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(len(TOKENS), width, 2, 2 * width, 2, max_length=LONGEST, kind=kind)
    # float64, so that its probabilities are the same to two decimals on every processor.
    model = model.double()
    data = corpus()
    log = fit(model, data, next_token_loss, steps=steps, rate=1e-2, batch=len(data[0]), seed=seed)
    return model, log


def first_tokens():
    """Share of the corpus's phrases that begin with each token, a dict.

    >>> shares = first_tokens()
    >>> shares["深"], shares["习"]
    (0.8, 0.1)
    """
    total, found = sum(PHRASES.values()), {}
    for phrase, count in PHRASES.items():
        found[phrase[0]] = found.get(phrase[0], 0) + count
    return {token: count / total for token, count in found.items()}
