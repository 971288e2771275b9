"""Packed documents give what each gives alone."""

import itertools

import pytest
import torch

from labcore.blocks import EncoderBlock
from labcore.embed import LearnedPositions, TokenEmbedding
from labcore.train.packing import pack, packed_inputs_and_labels, packed_mask

DOCUMENTS = [[5, 6, 7], [8, 9], [4, 4, 4, 3], [2], [7, 1, 5, 6, 2]]


def test_each_document_stays_whole_and_in_order():
    packed = pack(DOCUMENTS, 6)
    assert packed.ids.shape == (3, 6)
    for number, document in enumerate(DOCUMENTS):
        there = packed.documents == number
        assert packed.ids[there].tolist() == document
        assert packed.positions[there].tolist() == list(range(len(document)))
        assert there.any(1).sum() == 1
    assert int((packed.documents < 0).sum()) == 18 - 15


@pytest.mark.parametrize("causal", [True, False])
def test_packed_equals_alone(causal):
    torch.manual_seed(0)
    table, places = TokenEmbedding(10, 12).double(), LearnedPositions(6, 12).double()
    block = EncoderBlock(12, 4, 17).double()
    packed = pack(DOCUMENTS, 6)
    x = places(table(packed.ids), positions=packed.positions)
    together = block(x, packed_mask(packed.documents, causal=causal))
    leaking = block(x, causal=causal)
    for number, document in enumerate(DOCUMENTS):
        alone = block(places(table(torch.tensor([document]))), causal=causal)[0]
        there = packed.documents == number
        assert (together[there] - alone).abs().max() < 1e-9
    assert (leaking - together)[packed.documents == 1].abs().max() > 1e-3


def test_no_label_crosses_a_border():
    packed = pack(DOCUMENTS, 6)
    inputs, labels = packed_inputs_and_labels(packed)
    assert inputs.shape == labels.shape == (3, 5)
    asked = zip(inputs.flatten().tolist(), labels.flatten().tolist(), strict=True)
    wanted = [pair for document in DOCUMENTS for pair in itertools.pairwise(document)]
    pairs = sorted((token, label) for token, label in asked if label)
    wanted.sort()
    assert pairs == wanted


def test_bad_input():
    with pytest.raises(ValueError, match="^documents: got 7 tokens in number 1; allowed: 1 to 6"):
        pack([[1], [2] * 7], 6)
    with pytest.raises(ValueError, match="^documents: got 0 tokens in number 0"):
        pack([[]], 6)
    with pytest.raises(ValueError, match="^length: got 0"):
        pack([[1]], 0)
    with pytest.raises(ValueError, match=r"^documents: got shape \[4\]"):
        packed_mask(torch.zeros(4).long())
    assert pack([], 6).ids.shape == (0, 6)
