"""Who may look at whom: bool masks, True = may attend, ready for `attend` and for `&`.

Positions count from 0. `offset` is the position of the first query: a decoder that has S - T keys
in its cache and asks T new queries stands at offset S - T, which is the default (the last query
sees the last key: masks are aligned to the bottom right).
"""

import torch

from labcore.shapes import flag, require, whole


def causal_mask(T, S=None, *, offset=None, device=None):
    """A mask [T, S]: query t, at position offset + t, sees the keys 0 … offset + t.

    Vaswani et al. 2017, section 3.2.3. `S` defaults to `T`, `offset` to S - T. With more queries
    than keys the first T - S queries see nothing, and attention gives them zeros.

    >>> causal_mask(2, 4).int().tolist()
    [[1, 1, 1, 0], [1, 1, 1, 1]]
    """
    queries, keys = _positions(T, S, offset, device)
    return keys <= queries


def window_mask(T, S, window, *, offset=None, device=None):
    """A causal mask [T, S] in which every query sees the last `window` keys, itself included.

    The query at position p sees p - window + 1 … p; a window of S or more is the causal mask.
    `S` = None stands for `T`.

    >>> window_mask(4, 4, 2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    whole("window", window, 1)
    queries, keys = _positions(T, S, offset, device)
    return (keys <= queries) & (keys > queries - window)


def chunk_mask(T, S, chunk, *, offset=None, device=None):
    """A causal mask [T, S] in which a query sees only keys of its own chunk of `chunk` positions.

    Chunks are cut at the positions 0, chunk, 2·chunk, …; nothing crosses a cut. `S` = None stands
    for `T`.

    >>> chunk_mask(4, 4, 2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """
    whole("chunk", chunk, 1)
    queries, keys = _positions(T, S, offset, device)
    return (keys <= queries) & (keys // chunk == queries // chunk)


def padding_mask(lengths, S=None, *, device=None):
    """A mask [B, 1, 1, S] that hides, in sequence b, the keys from `lengths[b]` on.

    `lengths` is a list or an integer tensor [B] of values 0 … S; `S` defaults to the longest. The
    two axes of size 1 stand for heads and queries, so that it cannot land on the wrong axis.

    >>> padding_mask([3, 1], 4)[:, 0, 0].int().tolist()
    [[1, 1, 1, 0], [1, 0, 0, 0]]
    """
    given = lengths
    if not isinstance(given, torch.Tensor):
        listed = isinstance(given, (list, tuple))
        listed = listed and all(isinstance(n, int) and not isinstance(n, bool) for n in given)
        allowed = "a list of whole numbers or an integer tensor [B]"
        require(listed, "lengths", given=repr(given), allowed=allowed, error=TypeError)
        given = torch.tensor(given, dtype=torch.long)
    integer = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    require(integer, "lengths", given=given.dtype, allowed="integers", error=TypeError)
    require(given.ndim == 1, "lengths", given=f"shape {list(given.shape)}", allowed="shape [B]")
    longest = int(given.max()) if given.numel() else 0
    shortest = int(given.min()) if given.numel() else 0
    S = longest if S is None else S
    whole("S", S, 0)
    fits = shortest >= 0 and longest <= S
    require(fits, "lengths", given=f"values {shortest} to {longest}", allowed=f"values 0 to S={S}")
    given = given.to(device=device) if device is not None else given
    return (torch.arange(S, device=given.device) < given[:, None])[:, None, None, :]


def packed_mask(documents):
    """A mask [B, 1, T, T] in which a token sees exactly the tokens of its own document.

    `documents` is an integer tensor [B, T] (or a list of lists) that numbers the document of every
    token; a negative number marks padding, which sees nothing and is seen by nobody. Together with
    `causal_mask` it lets several documents share one row without reading each other (Raffel et al.
    2020, section 2.2, pack rows in this way to waste no padding).

    >>> packed_mask([[7, 7, 8, -1]])[0, 0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    given = documents if isinstance(documents, torch.Tensor) else torch.tensor(documents)
    integer = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    require(integer, "documents", given=given.dtype, allowed="integers", error=TypeError)
    shape = f"shape {list(given.shape)}"
    require(given.ndim == 2, "documents", given=shape, allowed="shape [B, T]")
    real = given >= 0
    same = given[:, :, None] == given[:, None, :]
    return (same & real[:, :, None] & real[:, None, :])[:, None]


def prefix_mask(prefix, T, *, causal=True, device=None):
    """A mask [P + T, P + T] for `prefix` P given positions and `T` positions to be generated.

    The prefix sees all of itself and nothing behind it; a generated position sees the prefix and
    its own past, or with `causal=False` every generated position (Raffel et al. 2020, figure 4).

    >>> prefix_mask(1, 2).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> prefix_mask(1, 2, causal=False).int().tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    """
    whole("prefix", prefix, 0), whole("T", T, 0), flag("causal", causal)
    places = torch.arange(prefix + T, device=device)
    queries, keys = places[:, None], places[None, :]
    return (keys < prefix) | ((queries >= prefix) & ((keys <= queries) | (not causal)))


def reach_after(mask, layers):
    """Who can read whom after `layers` layers with this mask: bool [T, T].

    A layer lets i read j where `mask[i, j]`; a path of `layers` such steps is a non-zero entry in
    that power of the mask.

    >>> reach_after(window_mask(5, 5, 2), 3)[4].int().tolist()
    [0, 1, 1, 1, 1]
    """
    check_mask_type(mask)
    square = mask.ndim == 2 and mask.shape[0] == mask.shape[1]
    require(square, "mask", given=f"shape {list(mask.shape)}", allowed="[T, T]")
    whole("layers", layers, 0)
    reach = torch.eye(len(mask), dtype=torch.bool, device=mask.device)
    for _ in range(layers):
        reach = (mask.double() @ reach.double()) > 0
    return reach


def combine(*masks):
    """One mask that allows what every given mask allows; `None` among them allows all.

    Masks of two axes stand for [T, S], of four for [B, H, T, S]; axes of size 1 are repeated.

    >>> list(combine(causal_mask(5, 7), None, padding_mask([7, 2, 4], 7)).shape)
    [3, 1, 5, 7]
    """
    found = [m for m in masks if m is not None]
    for mask in found:
        check_mask_type(mask, "masks")
        require(mask.ndim >= 2, "masks", f"shape {list(mask.shape)}", "[T, S] or [B, H, T, S]")
    ranks = sorted({m.ndim for m in found if m.ndim != 2})
    require(len(ranks) < 2, "masks", given=f"ranks {ranks}", allowed="rank 2 and one other rank")
    if not found:
        return None
    result = found[0]
    for mask in found[1:]:
        pairs = zip(reversed(result.shape), reversed(mask.shape), strict=False)
        fits = all(a == b or 1 in (a, b) for a, b in pairs)
        shapes = f"shapes {list(result.shape)} and {list(mask.shape)}"
        require(fits, "masks", given=shapes, allowed="sizes that are equal or 1")
        result = result & mask
    return result


def check_mask(mask, shape, device):
    """None, or an error unless `mask` is bool, on `device`, and fits scores of this `shape`.

    Fitting means rank 2 ([T, S]) or the scores' own rank; every axis has the scores' size or 1,
    the last one exactly S. Other ranks are refused: a [B, S] or [H, T, S] mask that torch would
    repeat along the wrong axis must not pass.
    """
    check_mask_type(mask)
    given, wanted = tuple(mask.shape), tuple(shape)
    tail = wanted[-len(given) :]
    ranked = len(given) in (2, len(wanted)) and len(given) == len(tail)
    same = ranked and given == tail
    sizes = zip(given[:-1], tail[:-1], strict=True) if ranked else ()
    if not (same or (ranked and given[-1] == tail[-1] and all(a in (b, 1) for a, b in sizes))):
        own = f"{list(wanted)} with 1 allowed before the last axis"
        full = own if len(wanted) <= 2 else f"{list(wanted[-2:])} or {own}"
        require(False, "mask", given=f"shape {list(given)}", allowed=full)
    if mask.device != device:
        require(False, "mask", given=f"device {mask.device}", allowed=str(device))


def check_mask_type(mask, name="mask"):
    """None, or a TypeError: only bool masks say without doubt which way round they are."""
    given = mask.dtype if isinstance(mask, torch.Tensor) else type(mask).__name__
    if given is not torch.bool:
        allowed = "a bool tensor, True = may attend"
        require(False, name, given=given, allowed=allowed, error=TypeError)


def _positions(T, S, offset, device):
    """Positions of the queries [T, 1] and of the keys [1, S], checked."""
    S = T if S is None else S
    whole("T", T, 0)
    whole("S", S, 0)
    if offset is None:
        offset = S - T
    else:
        whole("offset", offset, 0)
    queries = torch.arange(T, device=device)[:, None] + offset
    return queries, torch.arange(S, device=device)[None, :]
