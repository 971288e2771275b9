"""Chains and layer counts on layers whose answer is known."""

import math

import pytest
import torch
from torch import nn

from labcore.blocks import ConvolutionMixer, RecurrentMixer, SelfAttentionMixer
from labcore.metrics import layers_to_connect, product_chain, sequential_steps


def test_chain_counts_products_in_a_row_not_in_all():
    x = torch.ones(5, 6)
    parallel = nn.Linear(6, 6), nn.Linear(6, 6)
    assert product_chain(lambda y: parallel[0](y) + parallel[1](y), x) == 1
    assert product_chain(nn.Sequential(*parallel, nn.ReLU()), x) == 2
    assert product_chain(lambda y: y.detach(), x) == 0
    assert product_chain(lambda y: y + 1, x) == 0


@pytest.mark.parametrize("n", [2, 7, 64])
def test_sequential_steps_of_the_three_mixers(n):
    x = torch.ones(n, 4)
    assert sequential_steps(SelfAttentionMixer(4, 2), x) == 1
    assert sequential_steps(lambda y: SelfAttentionMixer(4, 2)(y, need_weights=True)[0], x) == 1
    assert sequential_steps(ConvolutionMixer(4, 3), x) == 1
    assert sequential_steps(RecurrentMixer(4), x) == n
    assert sequential_steps(RecurrentMixer(4, project=False), x) == n


@pytest.mark.parametrize("n", [4, 10, 64])
def test_layers_that_connect_the_ends(n):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    assert layers_to_connect(lambda i: SelfAttentionMixer(2), x) == 1
    assert layers_to_connect(lambda i: RecurrentMixer(2, activation="linear"), x) == 1
    causal = layers_to_connect(lambda i: ConvolutionMixer(2, 3, causal=True), x)
    assert causal == math.ceil((n - 1) / 2)
    assert layers_to_connect(lambda i: ConvolutionMixer(2, 3), x) == n - 1
    dilated = layers_to_connect(lambda i: ConvolutionMixer(2, 3, causal=True, dilation=3**i), x)
    assert dilated == math.ceil(math.log(n, 3) - 1e-9)


def test_a_stack_that_never_connects_is_an_error():
    with pytest.raises(ValueError, match="most: got 5"):
        layers_to_connect(lambda i: nn.Linear(2, 2), torch.ones(9, 2), most=5)
