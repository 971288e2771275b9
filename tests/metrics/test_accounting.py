"""Counted costs against the formulas, and counters that leave no trace."""

import math

import pytest
import torch
from torch import nn

from labcore.blocks import ConvolutionMixer, EncoderBlock, RecurrentMixer, SelfAttentionMixer
from labcore.metrics import cost_table, count_calls, multiply_adds, parameter_shares, parameters


def test_cost_table_is_the_published_one():
    table = cost_table(64, 512, 3)
    assert [cost.layer for cost in table] == ["attention", "recurrence", "convolution"]
    assert [cost.multiply_adds for cost in table] == [2_097_152, 16_777_216, 50_331_648]
    assert [cost.sequential_steps for cost in table] == [1, 64, 1]
    paths = [cost.longest_path for cost in table]
    assert paths == pytest.approx([1.0, 64.0, 3.785578521428744], abs=1e-9)
    assert cost_table(64, 512, dilated=False)[2].longest_path == pytest.approx(64 / 3)


@pytest.mark.parametrize(("n", "d", "k"), [(7, 5, 3), (4, 6, 5), (1, 3, 2), (11, 2, 4)])
def test_cost_table_follows_the_leading_terms(n, d, k):
    counts = [cost.multiply_adds for cost in cost_table(n, d, k)]
    assert counts == [n * n * d, n * d * d, k * n * d * d]


def test_attention_is_cheaper_exactly_below_the_width():
    ratios = []
    for n in (256, 512, 1024):
        attention, recurrence, _ = cost_table(n, 512)
        ratios.append(attention.multiply_adds / recurrence.multiply_adds)
    assert ratios == [0.5, 1.0, 2.0]


def test_whole_layers():
    n, d, f = 7, 6, 11
    x = torch.ones(1, n, d)
    assert multiply_adds(SelfAttentionMixer(d, 2), x) == 4 * n * d * d + 2 * n * n * d
    assert multiply_adds(ConvolutionMixer(d, 3), x) == 3 * n * d * d
    assert multiply_adds(RecurrentMixer(d), x) == 2 * n * d * d
    block = 4 * n * d * d + 2 * n * n * d + 2 * n * d * f
    assert multiply_adds(EncoderBlock(d, 2, f), x) == block
    assert multiply_adds(torch.mv, torch.ones(3, 5), torch.ones(5)) == 15
    assert multiply_adds(torch.dot, torch.ones(5), torch.ones(5)) == 5
    assert multiply_adds(torch.relu, x) == 0


@pytest.mark.parametrize("bad", [{"n": 0}, {"n": 2.0}, {"d": True}, {"k": 1}])
def test_cost_table_refuses(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: got"):
        cost_table(**({"n": 4, "d": 6, "k": 3} | bad))


def test_parameters_count_shared_ones_once():
    linear = nn.Linear(5, 5)
    assert parameters(nn.Sequential(linear, linear)) == 30
    linear.bias.requires_grad_(False)
    assert parameters(linear, trainable=True) == 25
    block = EncoderBlock(6, 2, 11)
    shares = parameter_shares(block)
    assert sum(shares.values()) == parameters(block)
    assert shares["attention"] == 4 * (36 + 6)
    block.scale = nn.Parameter(torch.ones(3))
    assert parameter_shares(block)["(own)"] == 3


def test_calls_are_counted_only_while_open():
    layer = nn.Linear(6, 6)
    with count_calls(layer) as calls:
        layer(torch.ones(10, 6))
        for t in range(10):
            layer(torch.ones(t + 1, 6))
    layer(torch.ones(2, 6))
    assert calls.count == 11
    assert calls.shapes[:3] == [[10, 6], [1, 6], [2, 6]]
    assert not layer._forward_pre_hooks
    with pytest.raises(ZeroDivisionError), count_calls(layer):
        math.floor(1 / 0)
    assert not layer._forward_pre_hooks
