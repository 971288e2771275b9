"""BLEU from its definition: clipped n-gram counts, brevity penalty, geometric mean, smoothing.

Sentences are lists of tokens: how a text is cut into tokens is no part of the formula, and changes
the number. Scores lie in 0 … 1; most reports multiply by 100. Smoothing follows Chen and Cherry
(2014) in the forms that sacrebleu uses, so that both give the same numbers.
"""

import math
from collections import Counter
from typing import NamedTuple

from labcore.shapes import require

SMOOTHINGS = {"none": None, "floor": 0.1, "add_k": 1.0, "exp": None}


class Bleu(NamedTuple):
    """A score with everything it was made from; lists have one entry for each order n."""

    score: float
    precisions: list
    matched: list
    total: list
    brevity: float
    candidate_length: int
    reference_length: int


def ngrams(tokens, n):
    """Counter of the n-grams of `tokens`, as tuples.

    >>> ngrams("the cat the cat".split(), 2)[("the", "cat")]
    2
    """
    _whole(n, "n")
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def clipped(candidate, references, n):
    """(matched, total): n-grams of the candidate that a reference accounts for, and all of them.

    An n-gram counts at most as often as the reference that has it most often
    (Papineni et al. 2002, section 2.1.1).

    >>> clipped("the the the the the the the".split(), ["the cat is on the mat".split()], 1)
    (2, 7)
    """
    mine, most = ngrams(candidate, n), Counter()
    for reference in references:
        most |= ngrams(reference, n)
    return sum((mine & most).values()), sum(mine.values())


def brevity_penalty(c, r):
    """1 for c > r, else exp(1 - r/c) (Papineni et al. 2002, section 2.3); 0 for an empty candidate.

    >>> brevity_penalty(7, 6), round(brevity_penalty(2, 6), 4)
    (1.0, 0.1353)
    """
    require(c >= 0, "c", given=c, allowed="a length of at least 0")
    require(r >= 1, "r", given=r, allowed="a length of at least 1")
    return 1.0 if c > r else math.exp(1 - r / c) if c else 0.0


def sentence_bleu(
    candidate, references, *, max_n=4, smoothing="none", value=None, effective_order=False
):
    """`Bleu` of one sentence, a list of tokens, against one or more references.

    Unsmoothed, one order without a match makes the score 0. An empty candidate scores 0. Raises
    ValueError for no reference and for an empty one.

    >>> cat, reference = "the cat sat on the mat".split(), "the cat is on the mat".split()
    >>> [round(sentence_bleu(cat, [reference], max_n=n).score, 4) for n in (2, 4)]
    [0.7071, 0.0]
    """
    return corpus_bleu(
        [candidate], [references], max_n=max_n, smoothing=smoothing, value=value,
        effective_order=effective_order,
    )  # fmt: skip


def corpus_bleu(
    candidates, references, *, max_n=4, smoothing="none", value=None, effective_order=False
):
    """`Bleu` of a corpus: counts and lengths are summed over the sentences, then one formula.

    BLEU = BP · exp(Σ_n log p_n / N) (Papineni et al. 2002, section 2.3). `references[i]` is the
    list of references of candidate i; its length is that of the reference closest to the
    candidate, the shorter one of two. `smoothing` is "none", "floor" (`value` matches in place of
    0), "add_k" (`value` added to matches and totals for n ≥ 2) or "exp" (the j-th order without a
    match gets 1/(2^j · total)). With `effective_order` only orders that the candidate has count.

    >>> one, other = "a b c d e".split(), "a b c d".split()
    >>> round(corpus_bleu([one, other], [[one], [one]]).score, 4)
    0.8948
    """
    _check(candidates, references, max_n, smoothing, value)
    value = SMOOTHINGS[smoothing] if value is None else value
    matched, total = [0] * max_n, [0] * max_n
    c = r = 0
    for candidate, own in zip(candidates, references, strict=True):
        c += len(candidate)
        r += min((abs(len(ref) - len(candidate)), len(ref)) for ref in own)[1]
        for n in range(1, max_n + 1):
            hits, all_ = clipped(candidate, own, n)
            matched[n - 1] += hits
            total[n - 1] += all_
    precisions, orders = smoothed(matched, total, smoothing, value)
    brevity = brevity_penalty(c, r)
    used = precisions[:orders] if effective_order else precisions
    score = brevity * geometric_mean(used) if any(matched) else 0.0
    return Bleu(score, precisions, matched, total, brevity, c, r)


def smoothed(matched, total, smoothing="none", value=None):
    """(precisions of all orders, number of orders that exist), from counts.

    >>> smoothed([5, 3, 1, 0], [6, 5, 4, 3], "exp")[0][-1] == 1 / 6
    True
    """
    precisions, zeros = [0.0] * len(matched), 0
    for i, (hits, all_) in enumerate(zip(matched, total, strict=True)):
        if smoothing == "add_k" and i > 0:
            hits, all_ = hits + value, all_ + value
        if all_ == 0:  # the candidate is shorter than n tokens
            return precisions, i
        if hits == 0:
            zeros += 1
            hits = {"exp": 0.5**zeros, "floor": value}.get(smoothing, 0.0)
        precisions[i] = hits / all_
    return precisions, len(matched)


def geometric_mean(numbers):
    """exp of the mean logarithm; 0 where one of them is 0.

    >>> geometric_mean([0.5, 0.125])
    0.25
    """
    if not numbers or min(numbers) <= 0:
        return 0.0
    return math.exp(sum(math.log(x) for x in numbers) / len(numbers))


def _check(candidates, references, max_n, smoothing, value):
    _whole(max_n, "max_n")
    require(smoothing in SMOOTHINGS, "smoothing", repr(smoothing), ", ".join(SMOOTHINGS))
    good = value is None or value > 0
    require(good, "value", given=value, allowed="None or a number above 0")
    count = len(candidates)
    require(count > 0, "candidates", given="none", allowed="at least one sentence")
    given = f"{len(references)} for {count} candidates"
    require(len(references) == count, "references", given, "one list of references for each")
    for name, sentences in (("candidates", candidates), *(("references", r) for r in references)):
        require(len(sentences) > 0, name, given="no sentence", allowed="at least one")
        text = [s for s in sentences if isinstance(s, str)]
        allowed = "lists of tokens: split the text first"
        require(not text, name, f"the string {text and text[0][:20]!r}", allowed, error=TypeError)
    empty = [i for i, own in enumerate(references) if any(len(ref) == 0 for ref in own)]
    allowed = "references of at least one token"
    require(
        not empty, "references", f"an empty reference of candidate {empty and empty[0]}", allowed
    )


def _whole(n, name):
    good = isinstance(n, int) and not isinstance(n, bool) and n >= 1
    require(good, name, given=repr(n), allowed="a whole number of at least 1")
