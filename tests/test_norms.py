"""Layer normalisation against torch, at widths where a wrong variance shows."""

import pytest
import torch
import torch.nn.functional as F

from labcore.norms import LayerNorm, RMSNorm, layer_norm, rms_norm
from labcore.shapes import ShapeError

B, T = 3, 5


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 2, 6, 8, 511])
@pytest.mark.parametrize("affine", [False, True])
def test_equals_torch(width, affine):
    x = draw(B, T, width) * 7 + 3
    weight, bias = (draw(width, seed=1), draw(width, seed=2)) if affine else (None, None)
    wanted = F.layer_norm(x, (width,), weight, bias)
    assert (layer_norm(x, weight, bias) - wanted).abs().max() < 1e-9


def test_module_equals_torch_and_the_formula_with_gradients():
    ours, theirs = LayerNorm(6, eps=1e-3).double(), torch.nn.LayerNorm(6, eps=1e-3).double()
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(draw(6, seed=4))
            other.copy_(mine)
    x, pull = draw(B, T, 6).requires_grad_(), draw(B, T, 6, seed=3)
    wanted = torch.autograd.grad((theirs(x) * pull).sum(), [x, *theirs.parameters()])
    by_formula = layer_norm(x, ours.weight, ours.bias, 1e-3)
    for out in (ours(x), by_formula):
        got = torch.autograd.grad((out * pull).sum(), [x, *ours.parameters()])
        assert (out - theirs(x)).abs().max() < 1e-9
        assert all((g - w).abs().max() < 1e-9 for g, w in zip(got, wanted, strict=True))
    assert torch.autograd.gradcheck(lambda x: layer_norm(x), x)


def test_mean_zero_variance_one():
    out = layer_norm(draw(B, T, 64) * 100 - 40)
    assert out.mean(-1).abs().max() < 1e-9
    assert (out.var(-1, correction=0) - 1).abs().max() < 1e-6


def test_shift_and_scale_of_the_input_do_not_matter():
    x = draw(B, T, 9)
    assert (layer_norm(x * 5 + 2, eps=0) - layer_norm(x, eps=0)).abs().max() < 1e-9


def test_hostile_inputs():
    assert not layer_norm(torch.full((2, 7), 2.0**40, dtype=torch.float64)).any()
    assert layer_norm(torch.zeros(0, 7)).shape == (0, 7)
    large = draw(2, 100_003)
    assert (layer_norm(large) - F.layer_norm(large, (100_003,))).abs().max() < 1e-9


def test_without_bias():
    assert [n for n, _ in LayerNorm(6, bias=False).named_parameters()] == ["weight"]


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("x", TypeError, lambda: layer_norm(torch.zeros(2, 3).long())),
        ("x", ValueError, lambda: layer_norm(torch.zeros(2, 0))),
        ("x", ValueError, lambda: LayerNorm(6)(torch.zeros(2, 5))),
        ("x", TypeError, lambda: LayerNorm(6)(torch.zeros(2, 6).long())),
        ("weight", ValueError, lambda: layer_norm(torch.zeros(2, 6), torch.zeros(1))),
        ("bias", ValueError, lambda: layer_norm(torch.zeros(2, 6), None, torch.zeros(2, 6))),
        ("eps", ValueError, lambda: layer_norm(torch.zeros(2, 6), eps=-1e-5)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


@pytest.mark.parametrize("width", [1, 2, 6, 8])
def test_rms_norm_equals_torch_and_the_formula(width):
    x = torch.randn(3, 5, width, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(width, dtype=torch.float64, requires_grad=True)
    theirs = torch.nn.functional.rms_norm(x, (width,), weight, 1e-5)
    assert (rms_norm(x, weight, 1e-5) - theirs).abs().max() < 1e-12
    layer = RMSNorm(width, 1e-5).double()
    layer.weight.data.copy_(weight)
    assert (layer(x) - theirs).abs().max() < 1e-12
    assert torch.autograd.gradcheck(lambda a, b: rms_norm(a, b, 1e-5), (x, weight))


def test_rms_norm_keeps_the_mean_and_refuses_other_widths():
    x = torch.ones(3, 6) * 2
    assert torch.equal(rms_norm(x, eps=0.0), torch.ones(3, 6))
    assert rms_norm(torch.zeros(3, 6)).abs().max() == 0
    with pytest.raises(ShapeError, match="x: got shape"):
        RMSNorm(5)(x)
    with pytest.raises(ShapeError, match="weight: got shape"):
        rms_norm(x, torch.ones(5))
    with pytest.raises(ValueError, match="eps: got -1"):
        rms_norm(x, eps=-1)
    with pytest.raises(TypeError, match="x: got"):
        rms_norm(torch.ones(3, 6, dtype=torch.long))
