"""Small search trees with known probabilities, and the search that visits every path of them."""

import itertools
import math
import numbers
from typing import NamedTuple

import torch

from labcore.decode.beam import Hypothesis, length_penalty, log_probabilities
from labcore.decode.checks import CheckedScore
from labcore.shapes import check_ids, flag, require, whole

MOST_PATHS = 2_000_000


class TableScore:
    """Next-token log-probabilities [B, Y] of prefixes [B, T], read from a table.

    `table` maps a prefix, a tuple of ids, to Y log-probabilities. Prefixes that are not in it have
    `otherwise`, or nothing but -∞.

    >>> score = TableScore({(): [-0.7, -0.9]}, 2)
    >>> score(torch.zeros(1, 0, dtype=torch.long)).tolist()
    [[-0.7, -0.9]]
    """

    def __init__(self, table, Y, otherwise=None):
        whole("Y", Y)
        rows = {**table, None: [-math.inf] * Y if otherwise is None else otherwise}
        for prefix, row in rows.items():
            name = "otherwise" if prefix is None else f"table[{prefix}]"
            require(len(row) == Y, name, f"{len(row)} numbers", f"{Y} numbers")
            good = all(isinstance(x, numbers.Real) and x < math.inf for x in row)  # NaN fails too
            require(good, name, list(row), "numbers and -inf")
            ids = prefix is None or all(type(y) is int and 0 <= y < Y for y in prefix)
            require(ids, "table", f"the prefix {prefix}", f"tuples of ids 0 to {Y - 1}")
        self.Y = Y
        self.rows = {p: torch.tensor(row, dtype=torch.float64) for p, row in rows.items()}

    def __call__(self, prefix_BT):
        check_ids(prefix_BT, "prefix", self.Y, "B T")
        other = self.rows[None]
        return torch.stack([self.rows.get(tuple(row), other) for row in prefix_BT.tolist()])


class RandomTree:
    """Next-token log-probabilities [B, Y] that depend on the whole prefix, drawn from Dirichlet(1).

    Every prefix shorter than T has its own distribution.

    >>> tree = RandomTree(Y=3, T=4, seed=0)
    >>> list(tree(torch.tensor([[2, 1], [0, 0]])).shape)
    [2, 3]
    """

    def __init__(self, Y, T, seed=0):
        whole("Y", Y), whole("T", T), whole("seed", seed, 0)
        _check_paths(Y, T, "T")
        draw = torch.Generator().manual_seed(seed)
        self.Y, self.T = Y, T
        self.levels = []
        for t in range(T):
            raw = torch.rand(Y**t, Y, generator=draw, dtype=torch.float64)
            waits = -torch.log1p(-raw)  # exponential: normalised, they are Dirichlet(1)
            self.levels.append((waits / waits.sum(-1, keepdim=True)).log())

    def __call__(self, prefix_BT):
        check_ids(prefix_BT, "prefix", self.Y, "B T")
        length = prefix_BT.shape[1]
        require(length < self.T, "prefix", f"length {length}", f"at most {self.T - 1}")
        place = torch.zeros(len(prefix_BT), dtype=torch.long)
        for column in prefix_BT.unbind(1):
            place = place * self.Y + column
        return self.levels[length][place]


def word_tree(table):
    """(score, words) of a table {"he hit": {"me": -0.8}}: prefix of words to word to log p.

    Words get ids in the order in which they first appear; what is not listed has -∞.

    >>> score, words = word_tree({"": {"he": -0.7, "I": -0.9}, "he": {"hit": -1.0}})
    >>> words, score(torch.tensor([[0]])).tolist()
    (['he', 'I', 'hit'], [[-inf, -inf, -1.0]])
    """
    words = list(dict.fromkeys(word for row in table.values() for word in row))
    ids = {word: i for i, word in enumerate(words)}
    rows = {}
    for prefix, row in table.items():
        unknown = [word for word in prefix.split() if word not in ids]
        require(not unknown, f"table[{prefix!r}]", unknown, "words that some row continues with")
        found = [row.get(word, -math.inf) for word in words]
        rows[tuple(ids[word] for word in prefix.split())] = found
    return TableScore(rows, len(words)), words


def paths(Y, T):
    """Iterator over all |V|^T sequences of length T.

    >>> sum(1 for _ in paths(2, 3))
    8
    """
    return itertools.product(range(whole("Y", Y)), repeat=whole("T", T, 0))


class Search(NamedTuple):
    """Result of `exhaustive`: the best hypothesis, how many there were, prefixes expanded."""

    best: Hypothesis
    paths: int
    expanded: int


@torch.no_grad()
def exhaustive(score, *, length, eos=None, alpha=0.0, penalty="gnmt", normalise=True):
    """`Search` over every sequence of at most `length` tokens that ends in `eos` or has them all.

    Of equal values the first in the order of ids wins. Refuses a vocabulary and a length that allow
    more than two million sequences, before it searches.

    >>> exhaustive(TableScore({(): [-0.7, -0.9]}, 2), length=1, normalise=False).best.ids
    [0]
    """
    length_penalty(length, alpha, penalty), flag("normalise", normalise)
    ask = CheckedScore(score, dead=True, eos=eos)
    _check_paths(ask.Y, length)
    frontier, totals = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    found, count, expanded = [], 0, 0
    for t in range(1, length + 1):
        logp = log_probabilities(ask(frontier), normalise)
        Y = logp.shape[-1]
        _check_paths(Y, length)
        expanded += len(frontier)
        totals = (totals[:, None] + logp).flatten()
        tokens = torch.arange(Y).repeat(len(frontier))[:, None]
        frontier = torch.cat([frontier.repeat_interleave(Y, 0), tokens], 1)
        ended = tokens[:, 0] == (-1 if eos is None else eos)
        closed = ended if t < length else torch.ones_like(ended)
        count += int((closed & totals.isfinite()).sum())
        best = totals.masked_fill(~closed, -math.inf)
        if best.isfinite().any():
            place = int(best.argmax())
            value = best[place].item() / length_penalty(t, alpha, penalty)
            ids = frontier[place].tolist()
            found.append(Hypothesis(ids, best[place].item(), value, bool(ended[place])))
        going = ~closed & totals.isfinite()
        frontier, totals = frontier[going], totals[going]
        if not len(frontier):
            break
    require(len(found) > 0, "score", given="-inf on every path", allowed="at least one path")
    return Search(max(found, key=lambda h: h.value), count, expanded)


def _check_paths(Y, length, name="length"):
    """None, or an error when a vocabulary of Y (None: not known yet) makes too many paths."""
    few = Y is None or (length * math.log2(Y) < 64 and Y**length <= MOST_PATHS)
    require(few, name, length, f"a length with at most {MOST_PATHS} paths over {Y} tokens")


class Node(NamedTuple):
    """A candidate in a trace: ids of its prefix, its score, and whether it was kept."""

    ids: tuple
    score: float
    kept: bool


def nodes(result, sequence=0):
    """Candidates of each round of a beam search, best first: a list of lists of `Node`.

    >>> from labcore.decode.beam import beam_search
    >>> start = torch.zeros(1, 0, dtype=torch.long)
    >>> result = beam_search(RandomTree(3, 2), start, beam=2, max_new_tokens=2)
    >>> [[node.kept for node in layer] for layer in nodes(result)]
    [[True, True, False], [True, True, False, False, False, False]]
    """
    rows = len(result.hypotheses)
    require(whole("sequence", sequence, 0) < rows, "sequence", sequence, f"0 to {rows - 1}")
    layers, prefixes = [], [()]
    for entry in result.rounds:
        chosen = zip(
            entry.parents_BK[sequence].tolist(),
            entry.tokens_BK[sequence].tolist(),
            entry.scores_BK[sequence].tolist(),
            strict=True,
        )
        kept = [(*prefixes[p], y) for p, y, s in chosen if s > -math.inf]
        layer = []
        for prefix, row in zip(prefixes, entry.candidates_BKY[sequence].tolist(), strict=False):
            layer += [Node((*prefix, y), s, False) for y, s in enumerate(row) if s > -math.inf]
        layer = [node._replace(kept=node.ids in kept) for node in layer]
        layers.append(sorted(layer, key=lambda node: -node.score))
        prefixes = kept
    return layers
