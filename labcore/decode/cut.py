"""Where a sequence ends: at its first END, whatever stands behind it."""

import torch

from labcore.shapes import require


def truncate(tokens, end):
    """The tokens before the first `end`, as a list; all of them when there is none.

    >>> truncate(["深", "度", "END", "惯"], "END")
    ['深', '度']
    """
    tokens = list(tokens)
    return tokens[: tokens.index(end)] if end in tokens else tokens


def cut_at_end(ids, end, pad):
    """Ids [B, T] with `pad` in place of the first `end` of each row and of all behind it.

    >>> cut_at_end(torch.tensor([[5, 2, 6], [5, 6, 7]]), end=2, pad=0).tolist()
    [[5, 0, 0], [5, 6, 7]]
    """
    check_rows(ids, "ids")
    over = (ids == end).cumsum(-1) > 0
    return ids.masked_fill(over, pad)


def check_rows(ids, name):
    """None, or an error unless `ids` is an int64 tensor [B, T]."""
    given = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
    require(given is torch.int64, name, given, "an int64 tensor [B, T]", error=TypeError)
    require(ids.ndim == 2, name, f"shape {list(ids.shape)}", "[B, T]")
