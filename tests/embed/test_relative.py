"""Relative position buckets and the bias looked up in them, against T5's own function."""

import pytest
import torch

from labcore.embed import RelativeBias, relative_bucket


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (32, 64), (8, 20), (16, 9), (64, 500)])
def test_equals_transformers(both, buckets, longest):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distance = torch.arange(-700, 701)
    theirs = t5.T5Attention._relative_position_bucket(distance, both, buckets, longest)
    ours = relative_bucket(distance, buckets, longest, both=both)
    assert torch.equal(ours, theirs)


def test_the_near_ones_have_their_own_and_the_far_ones_share():
    found = relative_bucket(torch.arange(0, -200, -1), both=False)
    assert found[:16].tolist() == list(range(16))
    assert (found.diff() >= 0).all()
    assert found[128:].tolist() == [31] * 72
    after = relative_bucket(torch.arange(1, 200))
    before = relative_bucket(-torch.arange(1, 200))
    assert torch.equal(after, before + 16)


def test_bias_is_a_row_of_the_table_and_follows_the_offset():
    bias = RelativeBias(4, 8, 20)
    full = bias(7, 7)
    assert full.shape == (1, 4, 7, 7)
    assert torch.equal(full[0, :, 2, 5], bias.weight[relative_bucket(torch.tensor(3), 8, 20)])
    assert torch.equal(bias(2, 7, offset=5), full[:, :, 5:])
    # The same distance, the same bias: every diagonal is constant.
    assert torch.equal(full[..., 1:, 1:], full[..., :-1, :-1])
    full.sum().backward()
    assert bias.weight.grad.sum() == 4 * 7 * 7


def test_bad_input():
    with pytest.raises(TypeError, match="distance"):
        relative_bucket(torch.zeros(3))
    with pytest.raises(ValueError, match="buckets: got 5"):
        relative_bucket(torch.zeros(1, dtype=torch.long), 5)
    with pytest.raises(ValueError, match="max_distance: got 8"):
        RelativeBias(4, 32, 8)
