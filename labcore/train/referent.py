"""A task that needs attention: what does "it" stand for?

The sentences come from a small grammar around the one in the lecture, "The animal didn't cross the
street because it was too tired". Each has a being, a place and a quality that fits only one of the
two; "it" is the noun that the quality fits. Asked for is only its *initial*, at the position of
"it" (a for animal, s for street): the model is never told where to look. The initial does not say
whether a noun is a being or a place, since every initial has two of each, so that no sum over the
words gives the answer: the quality has to choose which noun is read.

The values are given, not learned: the value of a word is the one-hot code of its initial. What "it"
puts out is then nothing but its attention weights, added up by initial, and the model can be right
only by looking at the right word (or at one with the same initial). `values="learned"` drops that:
training then keeps stand-ins for some initials on words like "was", and is right more often than it
points at the referent. Attention that serves an answer need not be attention that points.

Order is not needed, so the model has no position codes. A fifth of the pairs of a being and a place
never occur in training, among them animal and street.
"""

import itertools
import string
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention import MultiHeadAttention, attend, padding_mask
from labcore.norms import LayerNorm
from labcore.shapes import check_ids, flag, require, whole
from labcore.train.loop import fit

# Every initial has two beings and two places.
BEINGS = ["animal", "ant", "bear", "boy", "cat", "cow", "dog", "duck"]
BEINGS += ["hen", "horse", "pig", "pony", "rabbit", "rat", "sheep", "snake"]
PLACES = ["alley", "avenue", "beach", "bridge", "canal", "cave", "desert", "ditch"]
PLACES += ["hall", "hill", "park", "pond", "ravine", "river", "square", "street"]
QUALITIES = {
    "being": ["tired", "hungry", "afraid", "sleepy", "ill", "lazy"],
    "place": ["wide", "long", "narrow", "steep", "deep", "muddy"],
}
# The being does something to the place, or the place to the being: order does not tell who is who.
VERBS = {
    "being": ["cross", "visit", "leave", "enter", "like", "follow"],
    "place": ["tempt", "impress", "lure", "worry", "trouble", "invite"],
}
# Words without a part in the answer vary, so that none of them can stand in for one that has.
FILLERS = {
    "opening": ("", "today", "once", "lately"),
    "determiner": ("the", "this", "my"),
    "helper": ("didn't", "wouldn't", "mustn't"),
    "joint": ("because", "when", "if"),
    "copula": ("was", "looked", "felt"),
    "degree": ("too", "very", "quite"),
}
_LECTURE = {"opening": "", "determiner": "the", "helper": "didn't", "joint": "because"}
_LECTURE |= {"copula": "was", "degree": "too"}
LETTERS = string.ascii_lowercase
WORDS = ["<pad>", "it", *BEINGS, *PLACES]
for _group in (QUALITIES, VERBS, FILLERS):
    WORDS += [word for words in _group.values() for word in words if word]
_IDS = {word: i for i, word in enumerate(WORDS)}
# Padding gets letter 0, which nobody reads: it is masked.
_INITIAL_OF_WORD = [0, *(LETTERS.index(word[0]) for word in WORDS[1:])]


class Sentence(NamedTuple):
    """The words, and where "it", its referent, the other noun and the quality stand (from 0)."""

    words: tuple
    it: int
    referent: int
    other: int
    quality: int

    @property
    def initial(self):
        return self.words[self.referent][0]


class Batch(NamedTuple):
    """Sentences as tensors: ids [B, N], lengths, places of "it", and the initials' numbers [B]."""

    ids: torch.Tensor
    lengths: torch.Tensor
    it: torch.Tensor
    initials: torch.Tensor


def sentence(being, place, quality, *, verb="cross", **fillers):
    """The `Sentence` with these words; a verb of `VERBS["place"]` makes the place its subject.

    `fillers` replaces words of the lecture's sentence by name, as in `FILLERS`.

    >>> " ".join(sentence("animal", "street", "tired").words)
    "the animal didn't cross the street because it was too tired"
    >>> sentence("animal", "street", "wide").initial
    's'
    """
    unknown = [name for name in fillers if name not in FILLERS]
    require(not unknown, "fillers", given=unknown, allowed=", ".join(FILLERS))
    chosen = _LECTURE | fillers
    for name, value, allowed in (
        ("being", being, BEINGS),
        ("place", place, PLACES),
        ("quality", quality, [*itertools.chain(*QUALITIES.values())]),
        ("verb", verb, [*itertools.chain(*VERBS.values())]),
        *((name, value, FILLERS[name]) for name, value in chosen.items()),
    ):
        require(value in allowed, name, given=repr(value), allowed=", ".join(map(repr, allowed)))
    first, second = (being, place) if verb in VERBS["being"] else (place, being)
    words = [chosen["opening"], chosen["determiner"], first, chosen["helper"], verb]
    words += [chosen["determiner"], second, chosen["joint"], "it", chosen["copula"]]
    words = tuple(word for word in [*words, chosen["degree"], quality] if word)
    nouns = (being, place) if quality in QUALITIES["being"] else (place, being)
    referent, other = map(words.index, nouns)
    return Sentence(words, words.index("it"), referent, other, len(words) - 1)


def held_out_pairs():
    """The (being, place) pairs never trained on: three diagonals of the 16 × 16 square.

    >>> ("animal", "street") in held_out_pairs(), len(held_out_pairs()), len(BEINGS) * len(PLACES)
    (True, 48, 256)
    """
    pairs = itertools.product(range(len(BEINGS)), range(len(PLACES)))
    return {(BEINGS[i], PLACES[j]) for i, j in pairs if (i + j) % 16 in (4, 10, 15)}


def sentences(count, seed=0, held_out=False):
    """`count` sentences drawn from the training pairs, or from the pairs held out.

    >>> " ".join(sentences(1, held_out=True)[0].words)
    "lately this sheep wouldn't visit this ravine when it was quite muddy"
    """
    whole("count", count, 0), whole("seed", seed, 0), flag("held_out", held_out)
    draw = torch.Generator().manual_seed(seed)
    apart = held_out_pairs()
    pairs = [p for p in itertools.product(BEINGS, PLACES) if (p in apart) == held_out]

    def one_of(options):
        return options[int(torch.randint(len(options), (), generator=draw))]

    found = []
    for _ in range(count):
        being, place = one_of(pairs)
        quality = one_of(QUALITIES[one_of(("being", "place"))])
        verb = one_of(VERBS[one_of(("being", "place"))])
        fillers = {name: one_of(words) for name, words in FILLERS.items()}
        found.append(sentence(being, place, quality, verb=verb, **fillers))
    return found


def encode(given):
    """The `Batch` of these sentences, padded to the longest.

    >>> list(encode([sentence("cat", "hill", "deep"), sentence("cat", "hill", "ill")]).ids.shape)
    [2, 11]
    """
    require(len(given) > 0, "given", given="no sentences", allowed="at least one")
    longest = max(len(s.words) for s in given)
    rows = [[_IDS[w] for w in s.words] + [0] * (longest - len(s.words)) for s in given]
    return Batch(
        torch.tensor(rows),
        torch.tensor([len(s.words) for s in given]),
        torch.tensor([s.it for s in given]),
        torch.tensor([LETTERS.index(s.initial) for s in given]),
    )


class ReferentModel(nn.Module):
    """Shares [B, N, 26] of the initials at every position of ids [B, N], from two attentions.

    The first makes the queries: c = x + Attention(x), so that "it" may take in the quality. The
    second answers: softmax(QKᵀ/√d_k)V with Q from c, K from the words x, and V by `values`:
    "initials" are the fixed one-hot initials, so that the output is the attention itself added up
    by initial; "learned" values are free, and a softmax makes shares of what they add up to.

    >>> batch = encode(sentences(3))
    >>> list(ReferentModel()(batch.ids, batch.lengths).shape)[::2]
    [3, 26]
    """

    def __init__(self, width=32, values="initials"):
        super().__init__()
        known = values in ("initials", "learned")
        require(known, "values", given=repr(values), allowed='"initials" or "learned"')
        self.embedding = nn.Embedding(len(WORDS), width)
        # Small at first: "it" starts by taking in all words alike, the quality among them. Sharp
        # weights from the start may settle on a word next to it and never find the quality.
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.context = MultiHeadAttention(width, 1)
        self.norm = LayerNorm(width)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.values = values
        initials = F.one_hot(torch.tensor(_INITIAL_OF_WORD), len(LETTERS)).float()
        start = initials if values == "initials" else torch.randn_like(initials)
        self.table = nn.Parameter(start, requires_grad=values == "learned")

    def forward(self, ids, lengths, need_weights=False):
        """Shares, or with `need_weights` shares and the weights [B, N, N] of both attentions."""
        check_ids(ids, "ids", len(WORDS), "B T")
        flag("need_weights", need_weights)
        rows, given = f"{len(ids)}, one for each row", f"{len(lengths)} lengths"
        require(len(lengths) == len(ids), "lengths", given, rows)
        mask, x = padding_mask(lengths, ids.shape[1]), self.embedding(ids)
        taken, first = self.context(x, mask=mask, need_weights=True)
        q, k, v = self.q_proj(self.norm(x + taken)), self.k_proj(x), self.table[ids]
        read, second = attend(q, k, v, mask[:, 0], need_weights=True)
        shares = read if self.values == "initials" else read.softmax(-1)
        return (shares, [first[:, 0], second]) if need_weights else shares


def loss_at_it(model, ids, lengths, it, initials):
    """Mean of -log(share of the right initial) at "it"; the other positions are not asked."""
    shares = model(ids, lengths)[torch.arange(len(ids)), it, initials]
    return -shares.clamp_min(1e-9).log().mean()


def train_referent(seed=0, steps=200, *, width=32, values="initials"):
    """The pair of a trained `ReferentModel` and its log, a list of `labcore.train.Step`.

    Same seed, same numbers: weights, sentences and order are drawn from it, and torch's global
    generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ReferentModel(width, values)
    data = encode(sentences(4096, seed=seed))
    log = fit(model, data, loss_at_it, steps=steps, rate=1e-2, batch=128, seed=seed)
    return model, log


def answer(model, given):
    """The initial that the model writes at "it" in each sentence, a list of letters."""
    batch = encode(given)
    with torch.no_grad():
        shares = model(batch.ids, batch.lengths)
    places = torch.arange(len(given)), batch.it
    return [LETTERS[i] for i in shares[places].argmax(-1)]


def looks(model, given):
    """Attention rows of "it": per sentence, a list with one row [N] of weights for each layer."""
    batch = encode(given)
    with torch.no_grad():
        _, maps = model(batch.ids, batch.lengths, need_weights=True)
    return [[m[b, s.it, : len(s.words)] for m in maps] for b, s in enumerate(given)]


def report(model, given):
    """Shares over the sentences, by name: `right` answers; `points`, where the largest weight of
    "it" in the last attention is on its referent; and the mean weights on `referent` and `other`.
    """
    rows = [found[-1] for found in looks(model, given)]
    right = [a == s.initial for a, s in zip(answer(model, given), given, strict=True)]
    pairs = list(zip(rows, given, strict=True))
    return {
        "right": sum(right) / len(given),
        "points": sum(int(row.argmax()) == s.referent for row, s in pairs) / len(given),
        "referent": sum(row[s.referent].item() for row, s in pairs) / len(given),
        "other": sum(row[s.other].item() for row, s in pairs) / len(given),
    }
