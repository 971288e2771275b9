"""The feed-forward layer against the formula written with torch's functions."""

import pytest
import torch
import torch.nn.functional as F

from labcore.ffn import ACTIVATIONS, FeedForward, GatedFeedForward
from labcore.shapes import ShapeError

B, T, D, HIDDEN = 3, 5, 6, 11


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def bend(name, x):
    """The activations in their own formulas."""
    if name == "gelu":
        return x * 0.5 * (1 + torch.erf(x / 2**0.5))
    if name == "gelu_tanh":
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    return {
        "relu": x.clamp(min=0),
        "silu": x / (1 + (-x).exp()),
        "tanh": (1 - (-2 * x).exp()) / (1 + (-2 * x).exp()),
        "identity": x,
    }[name]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_formula(name, bias):
    layer = FeedForward(D, HIDDEN, name, bias=bias).double()
    x = draw(B, T, D)
    up, down = layer.up_proj, layer.down_proj
    inner = x @ up.weight.T + (up.bias if bias else 0)
    wanted = bend(name, inner) @ down.weight.T + (down.bias if bias else 0)
    assert (layer(x) - wanted).abs().max() < 1e-9


def test_a_function_as_activation_and_the_default_width():
    layer = FeedForward(D, activation=F.mish)
    assert layer.up_proj.weight.shape == (4 * D, D)
    assert FeedForward(D, HIDDEN, torch.sin)(torch.zeros(B, T, D)).shape == (B, T, D)


def test_positions_do_not_see_each_other():
    layer = FeedForward(D, HIDDEN, "gelu").double()
    jacobian = torch.autograd.functional.jacobian(layer, draw(T, D))
    for i in range(T):
        for j in range(T):
            assert bool(jacobian[i, :, j].any()) is (i == j)


def test_gradients_and_empty_input():
    layer = FeedForward(D, HIDDEN, "gelu").double()
    assert torch.autograd.gradcheck(layer, draw(2, D).requires_grad_())
    assert layer(draw(0, T, D)).shape == (0, T, D)


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("activation", ValueError, lambda: FeedForward(D, HIDDEN, "swish")),
        ("hidden", ValueError, lambda: FeedForward(D, 0)),
        ("hidden", ValueError, lambda: FeedForward(D, 2.5)),
        ("width", ValueError, lambda: FeedForward(0, HIDDEN)),
        ("x", ValueError, lambda: FeedForward(D, HIDDEN)(torch.zeros(B, T, D + 1))),
        ("x", TypeError, lambda: FeedForward(D, HIDDEN)(torch.zeros(B, T, D).long())),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


@pytest.mark.parametrize("bias", [False, True])
def test_gated_layer_is_the_printed_formula(bias):
    layer = GatedFeedForward(6, 11, bias=bias).double()
    x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    gate, up = layer.gate_proj(x), layer.up_proj(x)
    wanted = layer.down_proj(gate / (1 + torch.exp(-gate)) * up)
    assert (layer(x) - wanted).abs().max() < 1e-12
    assert sum(p.numel() for p in layer.parameters()) == 3 * 6 * 11 + bias * (2 * 11 + 6)
    assert torch.autograd.gradcheck(layer, x)


def test_gated_layer_refuses_bad_input():
    assert GatedFeedForward(6).up_proj.out_features == 16
    with pytest.raises(ValueError, match="activation"):
        GatedFeedForward(6, activation="swish")
    with pytest.raises(ShapeError, match="x: got shape"):
        GatedFeedForward(6)(torch.ones(3, 7))
