"""Influence maps against a Jacobian by hand, torch's own, and the facts the chapter states."""

import pytest
import torch
from torch import nn

from labcore.blocks import ConvolutionMixer, EncoderBlock, RecurrentMixer, SelfAttentionMixer
from labcore.metrics import influence, jacobian, off_diagonal_count, visible_positions
from labcore.shapes import ShapeError

N, D, OUT = 5, 6, 4


def sequence(n=N, d=D, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LAYERS = {
    "attention": lambda: SelfAttentionMixer(D, 2),
    "convolution": lambda: ConvolutionMixer(D, 3),
    "recurrence": lambda: RecurrentMixer(D),
    "block": lambda: EncoderBlock(D, 3, 11),
    "wider": lambda: nn.Linear(D, OUT),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_jacobian_equals_torchs_own(kind):
    torch.manual_seed(1)
    layer, x = LAYERS[kind]().double(), sequence()
    wanted = torch.autograd.functional.jacobian(lambda y: layer(y[None])[0], x)
    found = jacobian(layer, x)
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 1e-12
    assert torch.equal(jacobian(layer, x, [3, -1]), found[[3, -1]])
    assert layer(x[None]).requires_grad  # the layer is left as it was
    assert all(p.grad is None for p in layer.parameters())


def test_jacobian_in_pieces_and_under_no_grad(monkeypatch):
    torch.manual_seed(1)
    layer, x = SelfAttentionMixer(D, 2).double(), sequence()
    whole = jacobian(layer, x)
    monkeypatch.setattr("labcore.metrics.reach._ENTRIES", 3 * N * D)
    with torch.no_grad():
        assert (jacobian(layer, x) - whole).abs().max() < 1e-12


def test_norms_of_blocks():
    torch.manual_seed(1)
    layer, x = SelfAttentionMixer(D, 2).double(), sequence()
    blocks = jacobian(layer, x)
    for i, j in ((0, 0), (2, 4), (4, 1)):
        block = blocks[i, :, j]
        assert influence(layer, x)[i, j] == pytest.approx(block.square().sum().sqrt().item())
        top = torch.linalg.svdvals(block)[0].item()
        assert influence(layer, x, [i], "spectral")[0, j] == pytest.approx(top)


def test_positionwise_layer_is_block_diagonal_and_attention_is_full():
    for seed in range(3):
        torch.manual_seed(seed)
        mlp = nn.Sequential(nn.Linear(D, 11), nn.Tanh(), nn.Linear(11, D)).double()
        assert off_diagonal_count(jacobian(mlp, sequence())) == 0
        full = influence(SelfAttentionMixer(D).double(), sequence())
        assert full.shape == (N, N) and full.min() > 1e-3
        late = influence(SelfAttentionMixer(D, causal=True).double(), sequence())
        assert torch.equal(late > 0, torch.ones(N, N).tril().bool())


def test_receptive_fields_of_stacked_convolutions():
    fields = []
    for layers in (1, 2, 3, 4):
        stack = nn.Sequential(*(ConvolutionMixer(2, 3) for _ in range(layers)))
        for p in stack.parameters():
            nn.init.ones_(p)
        fields.append(len(visible_positions(stack, torch.ones(33, 2))))
    assert fields == [3, 5, 7, 9]
    assert len(visible_positions(SelfAttentionMixer(2).double(), sequence(32, 2))) == 32
    assert visible_positions(SelfAttentionMixer(2, causal=True).double(), sequence(9, 2), 1) == [
        0,
        1,
    ]


def test_influence_in_a_linear_recurrence_is_a_power():
    torch.manual_seed(0)
    layer = RecurrentMixer(8, activation="linear", project=False).double()
    with torch.no_grad():
        nn.init.orthogonal_(layer.state_proj.weight, gain=0.8)  # again, now in float64
    for length in (2, 8, 32):
        last = influence(layer, sequence(length, 8), [length - 1], "spectral")[0, 0]
        assert last.item() == pytest.approx(0.8 ** (length - 1), abs=1e-9)


def test_layers_without_a_graph_give_zeros():
    assert jacobian(lambda x: torch.zeros_like(x), sequence()).abs().max() == 0
    weight = torch.ones(D, requires_grad=True)
    assert jacobian(lambda x: x.detach() * weight, sequence()).abs().max() == 0
    assert jacobian(nn.Linear(D, OUT).double(), sequence(), []).shape == (0, OUT, N, D)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: jacobian(nn.Linear(D, D), torch.ones(N, D).int()), TypeError, "x: got"),
        (lambda: jacobian(nn.Linear(D, D), torch.ones(2, N, D)), ShapeError, r"x: got shape \[2"),
        (lambda: jacobian(nn.Linear(D, D), torch.ones(0, D)), ShapeError, "at least one position"),
        (lambda: jacobian(nn.Linear(D, D), torch.ones(N, D), [N]), ValueError, "outputs: got"),
        (lambda: jacobian(lambda x: x.sum(1), torch.ones(N, D)), ShapeError, "layer: got output"),
        (lambda: influence(nn.Linear(D, D), torch.ones(N, D), norm="max"), ValueError, "norm: got"),
        (lambda: off_diagonal_count(torch.ones(N, D, OUT, D)), ShapeError, "blocks: got shape"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
