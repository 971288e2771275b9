"""Two ways to make a task out of plain text: hide tokens, or cut out spans.

BERT hides single tokens and asks what stood there (Devlin et al. 2019, section 3.1). T5 cuts out
spans, puts one sentinel in the place of each, and lets the decoder write down what is missing
(Raffel et al. 2020, section 3.1.4).
"""

import torch

from labcore.decode.checks import check_generator
from labcore.shapes import check_ids, number, require, whole

IGNORED = -100  # a label that `torch.nn.functional.cross_entropy` leaves out


def hide_tokens(ids, hidden_id, words, *, share=0.15, never=(), generator=None):
    """The pair (ids with some hidden, labels): labels are `IGNORED` where nothing is asked.

    Each token outside `never` is chosen with probability `share`. Of the chosen ones 80 % become
    `hidden_id`, 10 % a random one of the ids `words`, 10 % stay: the model must not learn that a
    token in sight is always right.

    >>> ids = torch.arange(4, 204).reshape(10, 20)
    >>> draw = torch.Generator().manual_seed(0)
    >>> seen, labels = hide_tokens(ids, 3, range(4, 204), generator=draw)
    >>> bool((seen[labels == IGNORED] == ids[labels == IGNORED]).all())
    True
    """
    check_ids(ids, "ids")
    whole("hidden_id", hidden_id, 0), number("share", share, above=0, most=1)
    check_generator(generator)
    words = torch.tensor([whole("words", token, 0) for token in words], dtype=ids.dtype)
    require(len(words) > 0, "words", given="none", allowed="at least one id")
    never = [whole("never", token, 0) for token in never]
    free = ~torch.isin(ids, torch.tensor(never, dtype=ids.dtype))
    chosen = (torch.rand(ids.shape, generator=generator) < share) & free
    labels = torch.where(chosen, ids, IGNORED)
    fate = torch.rand(ids.shape, generator=generator)
    drawn = words[torch.randint(len(words), ids.shape, generator=generator)]
    seen = torch.where(chosen & (fate < 0.8), hidden_id, ids)
    return torch.where(chosen & (fate >= 0.9), drawn, seen), labels


def cut_spans(tokens, spans, sentinels):
    """The pair (what is left, what was cut): span i, from spans[i][0] to before spans[i][1].

    In the source sentinel i stands for span i; in the target it announces the tokens of span i, and
    one more sentinel ends the target. The sentinels used are distinct and no tokens of the text.

    >>> words = "Thank you for inviting me to your party last week".split()
    >>> source, target = cut_spans(words, [(2, 4), (8, 9)], ["<X>", "<Y>", "<Z>"])
    >>> print(*source, "|", *target)
    Thank you <X> me to your party <Y> week | <X> for inviting <Y> last <Z>
    """
    many = len(sentinels) > len(spans)
    require(many, "sentinels", f"{len(sentinels)}", f"more than the {len(spans)} spans")
    used = list(sentinels[: len(spans) + 1])
    alone = all(used.count(one) == 1 and one not in tokens for one in used)
    allowed = "distinct ones that do not occur among the tokens"
    require(alone, "sentinels", used, allowed)
    source, target, place = [], [], 0
    for (start, end), sentinel in zip(spans, sentinels, strict=False):
        ok = place <= start < end <= len(tokens)
        require(ok, "spans", f"({start}, {end})", f"in order, within {place} to {len(tokens)}")
        source += [*tokens[place:start], sentinel]
        target += [sentinel, *tokens[start:end]]
        place = end
    return source + list(tokens[place:]), [*target, sentinels[len(spans)]]


def join_spans(source, target, sentinels):
    """The tokens that `cut_spans` took apart.

    >>> join_spans(["a", "<X>", "d"], ["<X>", "b", "c", "<Y>"], ["<X>", "<Y>"])
    ['a', 'b', 'c', 'd']
    """
    spans, current = {}, None
    for token in target:
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            require(current is not None, "target", repr(token), "a sentinel first")
            current.append(token)
    whole = []
    for token in source:
        whole += spans.get(token, []) if token in sentinels else [token]
    return whole


def random_spans(length, *, density=0.15, mean_length=3.0, generator=None):
    """Spans (start, end) that cover about `density` of `length` tokens, never touching each other.

    The number of hidden tokens and of spans is fixed by the arguments; where the cuts fall is
    drawn, every way of cutting both the hidden and the kept tokens being equally likely.

    >>> spans = random_spans(100, generator=torch.Generator().manual_seed(0))
    >>> sum(end - start for start, end in spans), len(spans)
    (15, 5)
    """
    whole("length", length, 2), number("mean_length", mean_length, least=1)
    check_generator(generator)
    open_ = number("density", density, above=0) < 1
    require(open_, "density", given=density, allowed="a number in (0, 1)")
    hidden = min(max(round(length * density), 1), length - 1)
    count = min(max(round(hidden / mean_length), 1), hidden, length - hidden)
    cut, kept = _pieces(hidden, count, generator), _pieces(length - hidden, count, generator)
    spans, place = [], 0
    for before, size in zip(kept, cut, strict=True):
        spans.append((place + before, place + before + size))
        place += before + size
    return spans


def _pieces(total, count, generator):
    """`count` sizes of at least 1 that add up to `total`."""
    order = torch.randperm(total - 1, generator=generator)[: count - 1]
    borders = [0, *sorted((order + 1).tolist()), total]
    return [b - a for a, b in zip(borders, borders[1:], strict=False)]
