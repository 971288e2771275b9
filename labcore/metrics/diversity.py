"""How varied generated text is: distinct n-grams, and the share that says something again."""

import torch

from labcore.metrics.bleu import check_tokens, ngrams
from labcore.shapes import require


def distinct_n(sequences, n):
    """Different n-grams over all n-grams of several token lists (Li et al. 2016, section 5.2).

    Raises ValueError when no sequence has n tokens.

    >>> distinct_n(["a b a b".split()], 2)
    0.6666666666666666
    """
    several = hasattr(sequences, "__iter__")
    require(several, "sequences", repr(sequences), "lists of tokens", TypeError)
    found = [gram for tokens in sequences for gram in ngrams(_listed(tokens), n).elements()]
    require(len(found) > 0, "sequences", "no n-gram", f"a sequence of at least {n} tokens")
    return len(set(found)) / len(found)


def repeated_share(tokens, n):
    """Share of a sequence's n-grams that stood before in it: 1 - different / all.

    >>> repeated_share("the cat the cat the cat".split(), 2)
    0.6
    """
    return 1 - distinct_n([tokens], n)


def _listed(tokens):
    if isinstance(tokens, torch.Tensor) and tokens.ndim == 1:
        return tokens.tolist()
    check_tokens(tokens, "sequences")
    return tokens
