"""BLEU from its definition: clipped n-gram counts, brevity penalty, geometric mean, smoothing.

Sentences are lists of tokens: how a text is cut into tokens is no part of the formula, and changes
the number. Scores lie in 0 … 1; most reports multiply by 100. Smoothing follows Chen and Cherry
(2014) in the forms that sacrebleu uses, so that both give the same numbers.
"""

import math
from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

import torch

from labcore.shapes import flag, number, require, whole

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
    whole("n", n), check_tokens(tokens, "tokens")
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def clipped(candidate, references, n):
    """(matched, total): n-grams of the candidate that a reference accounts for, and all of them.

    An n-gram counts at most as often as the reference that has it most often
    (Papineni et al. 2002, section 2.1.1).

    >>> clipped("the the the the the the the".split(), ["the cat is on the mat".split()], 1)
    (2, 7)
    """
    check_tokens(candidate, "candidate"), check_references(references)
    mine, most = ngrams(candidate, n), Counter()
    for reference in references:
        most |= ngrams(reference, n)
    return sum((mine & most).values()), sum(mine.values())


def brevity_penalty(c, r):
    """1 for c > r, else exp(1 - r/c) (Papineni et al. 2002, section 2.3); 0 for an empty candidate.

    >>> brevity_penalty(7, 6), round(brevity_penalty(2, 6), 4)
    (1.0, 0.1353)
    """
    number("c", c, least=0), number("r", r, least=1)
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
    candidate, the shorter one of two. `smoothing` is "none", "floor" (`value` matches, at most 1,
    in place of 0), "add_k" (`value` added to matches and totals for n ≥ 2) or "exp" (the j-th order
    without a match gets 1/(2^j · total)); "none" and "exp" take no `value`. With `effective_order`
    only orders that the candidate has count.

    >>> one, other = "a b c d e".split(), "a b c d".split()
    >>> round(corpus_bleu([one, other], [[one], [one]]).score, 4)
    0.8948
    """
    _check(candidates, references, max_n)
    flag("effective_order", effective_order), smoothing_value(smoothing, value)
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
    value = smoothing_value(smoothing, value)
    pairs = list(zip(matched, total, strict=True))
    fits = all(0 <= number("matched", hits) <= number("total", all_) for hits, all_ in pairs)
    require(fits, "matched", f"{list(matched)} of {list(total)}", "at least 0, at most the total")
    precisions, zeros = [0.0] * len(matched), 0
    for i, (hits, all_) in enumerate(pairs):
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
    """exp of the mean logarithm of numbers that are not negative; 0 where one of them is 0.

    >>> geometric_mean([0.5, 0.125])
    0.25
    """
    numbers = [number("numbers", x, least=0) for x in numbers]
    if not numbers or min(numbers) <= 0:
        return 0.0
    return math.exp(sum(math.log(x) for x in numbers) / len(numbers))


def smoothing_value(smoothing, value=None):
    """The number that this smoothing works with: `value`, its default, or None.

    >>> smoothing_value("floor"), smoothing_value("add_k", 2), smoothing_value("exp")
    (0.1, 2.0, None)
    """
    require(smoothing in list(SMOOTHINGS), "smoothing", repr(smoothing), ", ".join(SMOOTHINGS))
    default = SMOOTHINGS[smoothing]
    if value is None:
        return default
    require(default is not None, "value", value, f"None: smoothing {smoothing!r} takes none")
    # More matches than n-grams would be a precision above 1.
    return number("value", value, above=0, most=1 if smoothing == "floor" else math.inf)


def check_tokens(tokens, name):
    """None, or a TypeError unless `tokens` is a list or tuple of tokens that can be compared.

    >>> check_tokens("the cat", "candidates")
    Traceback (most recent call last):
    TypeError: candidates: got the string 'the cat'; allowed: a list of tokens: split the text first
    """
    text, told = isinstance(tokens, str), f"the string {str(tokens)[:20]!r}"
    require(not text, name, told, "a list of tokens: split the text first", TypeError)
    listed, told = isinstance(tokens, (list, tuple)), type(tokens).__name__
    require(listed, name, told, "a list of tokens; of a tensor, its tolist()", TypeError)
    # Two tensors of the same number are never the same n-gram.
    kinds = {kind for kind in map(type, tokens) if issubclass(kind, torch.Tensor)}
    kinds |= {kind for kind in map(type, tokens) if not issubclass(kind, Hashable)}
    told = f"tokens of type {sorted(kind.__name__ for kind in kinds)}"
    require(not kinds, name, told, "tokens such as words and numbers", TypeError)


def check_references(references):
    """None, or an error unless `references` is a list of token lists, at least one, none empty."""
    listed, told = isinstance(references, (list, tuple)), type(references).__name__
    told = f"the string {references[:20]!r}" if isinstance(references, str) else told
    require(listed, "references", told, "a list of lists of tokens", TypeError)
    require(len(references) > 0, "references", given="no sentence", allowed="at least one")
    for reference in references:
        check_tokens(reference, "references")
        allowed = "references of at least one token"
        require(len(reference) > 0, "references", "an empty reference", allowed)


def _check(candidates, references, max_n):
    whole("max_n", max_n)
    for name, sentences in (("candidates", candidates), ("references", references)):
        listed, told = isinstance(sentences, (list, tuple)), type(sentences).__name__
        require(listed, name, told, "a list with one entry for each sentence", TypeError)
    count = len(candidates)
    require(count > 0, "candidates", given="none", allowed="at least one sentence")
    given = f"{len(references)} for {count} candidates"
    require(len(references) == count, "references", given, "one list of references for each")
    for candidate, own in zip(candidates, references, strict=True):
        check_tokens(candidate, "candidates")
        check_references(own)
