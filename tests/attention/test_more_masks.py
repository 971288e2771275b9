"""Packed documents, prefixes and reach: against definitions, and as what a layer really reads."""

import pytest
import torch

from labcore.attention import (
    MultiHeadAttention,
    causal_mask,
    chunk_mask,
    combine,
    packed_mask,
    padding_mask,
    prefix_mask,
    reach_after,
    window_mask,
)
from labcore.metrics import influence

DOCUMENTS = [[4, 4, 4, 9, 9, 2, 2], [0, 0, 1, 1, 1, -1, -1], [5, 5, 5, 5, 5, 5, -3]]


def test_packed_pair_by_pair():
    for given in (DOCUMENTS, torch.tensor(DOCUMENTS), torch.tensor(DOCUMENTS, dtype=torch.int32)):
        mask = packed_mask(given)
        assert mask.shape == (3, 1, 7, 7) and mask.dtype == torch.bool
        for b, row in enumerate(DOCUMENTS):
            wanted = [[i == j and i >= 0 for j in row] for i in row]
            assert mask[b, 0].tolist() == wanted


def test_packed_and_causal_counts_triangles():
    both = combine(causal_mask(7), packed_mask(DOCUMENTS))
    assert both.sum((1, 2, 3)).tolist() == [6 + 3 + 3, 3 + 6, 21]


@pytest.mark.parametrize("prefix, T", [(0, 5), (4, 0), (3, 5), (5, 1)])
def test_prefix_by_definition(prefix, T):
    for causal in (True, False):
        mask = prefix_mask(prefix, T, causal=causal)
        for q in range(prefix + T):
            for k in range(prefix + T):
                wanted = k < prefix or (q >= prefix and (k <= q or not causal))
                assert bool(mask[q, k]) == wanted
    assert torch.equal(prefix_mask(0, T), causal_mask(T))
    assert bool(prefix_mask(prefix, T)[:prefix, prefix:].any()) is False


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 6])
def test_reach_by_walking(layers):
    for mask in (causal_mask(9), window_mask(9, 9, 3), chunk_mask(9, 9, 4), torch.eye(9) > 0):
        reach = reach_after(mask, layers)
        for start in range(9):
            seen = {start}
            for _ in range(layers):
                seen = {k for q in seen for k in range(9) if mask[q, k]} | (
                    seen if layers == 0 else set()
                )
            assert set(reach[start].nonzero().flatten().tolist()) == seen


def test_reach_of_windows_by_formula():
    T = 23
    for window in (1, 2, 5):
        for layers in (1, 2, 3):
            counts = reach_after(window_mask(T, T, window), layers).sum(-1)
            assert int(counts[-1]) == min(T, layers * (window - 1) + 1)


MASKS = {
    "causal": causal_mask(7),
    "window": window_mask(7, 7, 3),
    "chunk": chunk_mask(7, 7, 4),
    "prefix": prefix_mask(3, 4),
    "padded": combine(causal_mask(7), padding_mask([5], 7))[0, 0],
    "packed": combine(causal_mask(7), packed_mask(DOCUMENTS[:1]))[0, 0],
    "packed window": combine(window_mask(7, 7, 2), packed_mask(DOCUMENTS[1:2]))[0, 0],
}


def read_by(mask):
    """Which inputs an output depends on: the keys it sees, and its own input, which asks.

    The query of a position is made from that position even where its key is hidden; only a row
    that sees nothing at all depends on nothing.
    """
    asking = torch.eye(len(mask), dtype=torch.bool) & mask.any(-1, keepdim=True)
    return mask | asking


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_layer_reads_exactly_what_its_mask_allows(name, layers):
    """No leak and no blind spot: the pattern of the Jacobian is the mask, or its power."""
    torch.manual_seed(0)
    stack = [MultiHeadAttention(6, 2).double() for _ in range(layers)]

    def run(x):
        for layer in stack:
            x = layer(x, mask=MASKS[name])
        return x

    x = torch.randn(7, 6, dtype=torch.float64)
    assert torch.equal(influence(run, x) > 0, reach_after(read_by(MASKS[name]), layers))


@pytest.mark.parametrize("name", MASKS)
def test_a_change_of_a_hidden_input_changes_nothing(name):
    torch.manual_seed(1)
    layer, mask = MultiHeadAttention(6, 2).double(), MASKS[name]
    x = torch.randn(1, 7, 6, dtype=torch.float64)
    before = layer(x, mask=mask)
    for j in range(7):
        other = x.clone()
        other[0, j] += 1e6
        moved = (layer(other, mask=mask) - before)[0].abs().amax(-1) > 0
        assert not bool((moved & ~read_by(mask)[:, j]).any())


def test_packed_documents_equal_separate_ones():
    torch.manual_seed(2)
    layer = MultiHeadAttention(12, 4).double()
    x = torch.randn(1, 7, 12, dtype=torch.float64)
    packed = layer(x, mask=combine(causal_mask(7), packed_mask(DOCUMENTS[:1])))
    for first, last in ((0, 3), (3, 5), (5, 7)):
        alone = layer(x[:, first:last], causal=True)
        assert (packed[:, first:last] - alone).abs().max() < 1e-12


def test_padding_gets_zeros_and_no_gradient():
    torch.manual_seed(3)
    layer = MultiHeadAttention(12, 4, bias=False).double()
    x = torch.randn(3, 7, 12, dtype=torch.float64, requires_grad=True)
    out = layer(x, mask=packed_mask(DOCUMENTS))
    assert bool((out[1, 5:] == 0).all()) and bool((out[2, 6:] == 0).all())
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert bool(gradient.isfinite().all())
    assert bool((gradient[1, 5:] == 0).all())


def test_a_hostile_size():
    documents = torch.arange(3001)[None] // 7
    assert int(packed_mask(documents).sum()) == 428 * 49 + 25
    assert packed_mask(torch.zeros(0, 5, dtype=torch.long)).shape == (0, 1, 5, 5)


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("documents", TypeError, lambda: packed_mask([[0.5]])),
        ("documents", TypeError, lambda: packed_mask([[True]])),
        ("documents", ValueError, lambda: packed_mask([1, 2])),
        ("prefix", ValueError, lambda: prefix_mask(-1, 2)),
        ("T", ValueError, lambda: prefix_mask(1, 2.0)),
        ("mask", TypeError, lambda: reach_after(torch.ones(3, 3), 1)),
        ("mask", ValueError, lambda: reach_after(causal_mask(2, 3), 1)),
        ("layers", ValueError, lambda: reach_after(causal_mask(2), -1)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
