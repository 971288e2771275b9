"""Masks against their definitions, key by key, and against each other."""

import pytest
import torch

from labcore.attention import causal_mask, chunk_mask, combine, padding_mask, window_mask

SIZES = [(5, 7), (7, 5), (6, 6), (1, 9), (4, 1), (0, 3), (3, 0)]


def by_definition(T, S, offset, rule):
    return [[rule(t + offset, s) for s in range(S)] for t in range(T)]


@pytest.mark.parametrize("T, S", SIZES)
def test_causal_window_and_chunk_pair_by_pair(T, S):
    offset = S - T
    assert causal_mask(T, S).tolist() == by_definition(T, S, offset, lambda p, s: s <= p)
    for size in (1, 2, 3, 11):
        wanted = by_definition(T, S, offset, lambda p, s, w=size: p - w < s <= p)
        assert window_mask(T, S, size).tolist() == wanted
        wanted = by_definition(T, S, offset, lambda p, s, c=size: s <= p and s // c == p // c)
        assert chunk_mask(T, S, size).tolist() == wanted


def test_shapes_dtype_and_defaults():
    assert causal_mask(5).shape == (5, 5)
    assert window_mask(5, None, 3).shape == (5, 5)
    assert padding_mask([3, 1, 2]).shape == (3, 1, 1, 3)
    assert all(m.dtype == torch.bool for m in (causal_mask(3), chunk_mask(3, 3, 2)))


def test_counts_of_visible_pairs():
    assert int(window_mask(8, 8, 3).sum()) == 3 * 8 - 3 * 2 // 2 == 21
    assert int(chunk_mask(8, 8, 4).sum()) == 2 * (4 * 5 // 2) == 20
    assert torch.equal(window_mask(6, 6, 6), causal_mask(6))
    assert torch.equal(chunk_mask(6, 6, 6), causal_mask(6))
    assert window_mask(9, 9, 4).sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("make", [causal_mask, window_mask, chunk_mask])
def test_offset_cuts_rows_out_of_the_whole(make):
    more = () if make is causal_mask else (3,)
    whole = make(9, 9, *more)
    for first in range(9):
        for last in range(first, 9):
            rows = make(last - first, 9, *more, offset=first)
            assert torch.equal(rows, whole[first:last])
            # A cache that holds only what came so far needs no offset.
            assert torch.equal(make(last - first, last, *more), whole[first:last, :last])


def test_padding_by_definition():
    for lengths in ([4, 0, 7], torch.tensor([4, 0, 7]), torch.tensor([4, 0, 7], dtype=torch.int32)):
        mask = padding_mask(lengths, 7)
        wanted = [[s < length for s in range(7)] for length in (4, 0, 7)]
        assert mask[:, 0, 0].tolist() == wanted
    assert padding_mask([], 5).shape == (0, 1, 1, 5)
    assert padding_mask([]).shape == (0, 1, 1, 0)


def test_combine_is_and():
    causal, padding = causal_mask(5, 7), padding_mask([7, 2, 4], 7)
    full = torch.rand(3, 4, 5, 7) < 0.5
    both = combine(causal, padding, full)
    for b in range(3):
        for h in range(4):
            assert torch.equal(both[b, h], causal & padding[b, 0] & full[b, h])
    assert combine() is None
    assert combine(None, None) is None
    assert combine(None, causal) is causal


def test_a_hostile_size():
    mask = window_mask(1, 100_003, 4097)
    assert int(mask.sum()) == 4097
    assert bool(mask[0, -1])


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("T", ValueError, lambda: causal_mask(-1)),
        ("T", ValueError, lambda: causal_mask(2.0)),
        ("S", ValueError, lambda: causal_mask(2, True)),
        ("offset", ValueError, lambda: causal_mask(2, 3, offset=-1)),
        ("window", ValueError, lambda: window_mask(2, 3, 0)),
        ("chunk", ValueError, lambda: chunk_mask(2, 3, 1.5)),
        ("lengths", ValueError, lambda: padding_mask([2, 8], 7)),
        ("lengths", ValueError, lambda: padding_mask([2, -1], 7)),
        ("lengths", TypeError, lambda: padding_mask([2.0], 7)),
        ("lengths", TypeError, lambda: padding_mask(torch.tensor([True]), 7)),
        ("lengths", ValueError, lambda: padding_mask(torch.tensor([[2]]), 7)),
        ("masks", TypeError, lambda: combine(torch.ones(2, 3))),
        ("masks", ValueError, lambda: combine(causal_mask(2, 3), causal_mask(3, 2))),
        ("masks", ValueError, lambda: combine(causal_mask(2)[None], padding_mask([2]))),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
