"""Where a sequence ends: at its first END, whatever stands behind it."""

from labcore.decode.checks import check_prefix
from labcore.shapes import whole


def truncate(tokens, end):
    """The tokens before the first `end`, as a list; all of them when there is none.

    >>> truncate(["深", "度", "END", "惯"], "END")
    ['深', '度']
    """
    tokens = list(tokens)
    return tokens[: tokens.index(end)] if end in tokens else tokens


def cut_at_end(ids, end, pad):
    """Ids [B, T] with `pad` in place of the first `end` of each row and of all behind it.

    >>> import torch
    >>> cut_at_end(torch.tensor([[5, 2, 6], [5, 6, 7]]), end=2, pad=0).tolist()
    [[5, 0, 0], [5, 6, 7]]
    """
    check_prefix(ids, "ids")
    over = (ids == whole("end", end, 0)).cumsum(-1) > 0
    return ids.masked_fill(over, whole("pad", pad, 0))
