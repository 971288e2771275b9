"""Packing: several short documents in one row, without one reading the other.

Padding a batch to its longest row wastes the rest. Packing fills rows with whole documents; what
keeps them apart is a block-diagonal mask, and what keeps their positions right is a count that
starts anew in each.
"""

from typing import NamedTuple

import torch

from labcore.attention.masks import causal_mask
from labcore.attention.masks import packed_mask as own_document
from labcore.shapes import flag, require, whole


class Packed(NamedTuple):
    """Rows of documents: ids [B, T], the number of the document [B, T] (-1 at padding), and the
    position within it [B, T] (0 at padding)."""

    ids: torch.Tensor
    documents: torch.Tensor
    positions: torch.Tensor


def pack(documents, length, padding=0):
    """The `Packed` rows of `length` tokens that hold lists of ids, each whole and in order.

    A document goes into the first row with room for it (first fit). Empty documents are refused,
    and so are those longer than a row.

    >>> packed = pack([[5, 6, 7], [8, 9], [4, 4, 4]], length=5)
    >>> packed.ids.tolist()
    [[5, 6, 7, 8, 9], [4, 4, 4, 0, 0]]
    >>> packed.positions[0].tolist(), packed.documents[1].tolist()
    ([0, 1, 2, 0, 1], [2, 2, 2, -1, -1])
    """
    whole("length", length), whole("padding", padding, 0)
    rows = []
    for number, document in enumerate(documents):
        fits = 1 <= len(document) <= length
        allowed = f"1 to {length} tokens each"
        require(fits, "documents", f"{len(document)} tokens in number {number}", allowed)
        document = [whole("documents", token, 0) for token in document]
        room = (row for row in rows if length - len(row) >= len(document))
        row = next(room, None)
        if row is None:
            rows.append(row := [])
        row += [(token, number, place) for place, token in enumerate(document)]
    rows = [row + [(padding, -1, 0)] * (length - len(row)) for row in rows]
    parts = torch.tensor(rows, dtype=torch.long).reshape(len(rows), length, 3)
    return Packed(*parts.unbind(-1))


def packed_mask(documents, *, causal=True):
    """The mask [B, 1, T, T] in which a token sees tokens of its own document only: the one of
    `labcore.attention`, and unless told otherwise causal too.

    `documents` [B, T] numbers them, -1 is padding, which sees nothing and is seen by nothing.

    >>> packed_mask(torch.tensor([[0, 0, 1, -1]]))[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    mask = own_document(documents)
    if flag("causal", causal):
        mask = mask & causal_mask(mask.shape[-1], device=mask.device)
    return mask


def packed_inputs_and_labels(packed, padding=0):
    """The pair (inputs, labels), each [B, T - 1]: the next token, or `padding` where the next
    token belongs to another document and must not be asked for.

    >>> packed = pack([[5, 6, 7], [8, 9]], length=5)
    >>> [part.tolist() for part in packed_inputs_and_labels(packed)]
    [[[5, 6, 7, 8]], [[6, 7, 0, 9]]]
    """
    whole("padding", padding, 0)
    inside = packed.documents[:, 1:] == packed.documents[:, :-1]
    return packed.ids[:, :-1], packed.ids[:, 1:].masked_fill(~inside, padding)
