"""What a search may be told and what a score may answer, checked in one place for all of them."""

import torch

from labcore.shapes import check_ids, require, whole


class CheckedScore:
    """`score(ids)` whose answers are checked: logits [B, Y] of ids [B, T], the same Y each time.

    Neither NaN nor +∞ is let through (their argmax would be a token all the same), nor a row in
    which no token is left, unless `dead` rows are the caller's business. The `forbidden` ids get
    -∞. They, the `forced` ones and the ids given by name (`eos=2`) are checked at once, and against
    the vocabulary as soon as it is known: from a score's attribute `Y`, else from its first answer.

    >>> ask = CheckedScore(lambda ids: torch.zeros(len(ids), 4), eos=7)
    >>> ask(torch.tensor([[1, 2]]))
    Traceback (most recent call last):
    ValueError: eos: got 7; allowed: an id from 0 to 3
    """

    def __init__(self, score, *, forbidden=(), forced=(), dead=False, **named):
        told = type(score).__name__
        require(callable(score), "score", told, "a function of ids [B, T]", TypeError)
        self.score, self.dead, self.Y = score, dead, None
        self.named = {name: [] if one is None else [one] for name, one in named.items()}
        self.named |= {"forbidden": forbidden, "forced": forced}
        for name, tokens in self.named.items():
            check_tokens(tokens, name)
        self.never = torch.tensor(sorted({int(token) for token in forbidden}), dtype=torch.int64)
        Y = getattr(score, "Y", None)
        if isinstance(Y, int):
            self._know(Y)

    def __call__(self, ids):
        logits = self.score(ids)
        fits = isinstance(logits, torch.Tensor) and logits.ndim == 2 and len(logits) == len(ids)
        if not fits or logits.shape[1] != self.Y:
            told = f"shape {list(logits.shape)}" if fits or hasattr(logits, "shape") else None
            given = f"scores of {told or type(logits).__name__}"
            width = "Y" if self.Y is None else f"Y={self.Y}"
            fits = fits and logits.shape[1] >= 1 and self.Y is None
            require(fits, "score", given, f"[B={len(ids)}, {width}]")
            self._know(logits.shape[1])
        if len(self.never):
            logits = logits.index_fill(1, self.never.to(logits.device), -torch.inf)
        check_top(logits.amax(-1), "score", self.dead)
        return logits

    def _know(self, Y):
        for name, tokens in self.named.items():
            check_tokens(tokens, name, Y)
        self.Y = Y


def check_tokens(tokens, name, Y=None):
    """None, or an error unless `tokens` are several ids, perhaps none, from 0 to Y - 1.

    >>> check_tokens([1, 4], "forbidden", Y=4)
    Traceback (most recent call last):
    ValueError: forbidden: got 4; allowed: an id from 0 to 3
    """
    listed = hasattr(tokens, "__iter__") and not isinstance(tokens, str)
    require(listed, name, repr(tokens), "several ids, perhaps none", TypeError)
    for token in tokens:
        whole(name, token, 0)
        require(Y is None or token < Y, name, token, f"an id from 0 to {Y and Y - 1}")


def check_top(top, name, dead=False):
    """None, or an error unless the largest score of each row says that the row can be used.

    The largest is NaN where the row holds NaN, and -∞ where nothing is left to choose.

    >>> check_top(torch.tensor([0.5, -torch.inf]), "score")
    Traceback (most recent call last):
    ValueError: score: got a row of -inf only; allowed: a token that may be chosen in every row
    """
    if bool((top < torch.inf).all() if dead else top.isfinite().all()):
        return
    require(not bool(top.isnan().any()), name, "NaN", "numbers and -inf")
    require(not bool((top == torch.inf).any()), name, "+inf", "numbers and -inf")
    require(False, name, "a row of -inf only", "a token that may be chosen in every row")


def check_prefix(x, name, least=0):
    """None, or an error unless `x` is an int64 tensor [B, T] of ids, T at least `least`."""
    check_ids(x, name, pattern="B T", dtypes=(torch.int64,))
    require(x.shape[1] >= least, name, f"shape {list(x.shape)}", f"[B, T] with T ≥ {least}")


def check_generator(generator):
    """None, or an error unless `generator` is one of torch, or None for torch's global one."""
    ours, told = isinstance(generator, torch.Generator), type(generator).__name__
    require(generator is None or ours, "generator", told, "a torch.Generator or None", TypeError)
