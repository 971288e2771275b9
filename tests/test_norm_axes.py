"""The norms over other axes against torch.nn, in training and evaluation, with gradients."""

import pytest
import torch
from torch import nn

from labcore.norms import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    layer_norm,
    normalise,
    pooled_sets,
    standardise,
)

N, C, H, W, G = 3, 6, 4, 5, 2


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def alike(ours, theirs):
    """Both in float64, with the same random weight and bias."""
    ours, theirs = ours.double(), theirs.double()
    with torch.no_grad():
        for seed, name in enumerate(("weight", "bias")):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert (mine is None) is (other is None)
            if mine is not None:
                mine.copy_(draw(*mine.shape, seed=seed + 9))
                other.copy_(mine)
    return ours, theirs


def assert_equal(ours, theirs, x, seed=5):
    """Outputs and the gradients of input and parameters agree to 1e-9."""
    x = x.clone().requires_grad_()
    pull = draw(*x.shape, seed=seed)
    out, wanted = ours(x), theirs(x)
    assert (out - wanted).abs().max() < 1e-9
    got = torch.autograd.grad((out * pull).sum(), [x, *ours.parameters()])
    want = torch.autograd.grad((wanted * pull).sum(), [x, *theirs.parameters()])
    assert all((g - w).abs().max() < 1e-9 for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("shape", [(N, C), (N, C, W), (N, C, H, W)])
@pytest.mark.parametrize("momentum", [0.1, 0.37, 1.0, None])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_equals_torch_while_training_and_after(shape, momentum, affine):
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    mine = BatchNorm(C, 1e-3, momentum, affine)
    ours, theirs = alike(mine, kind(C, 1e-3, momentum, affine))
    for seed in range(4):
        assert_equal(ours, theirs, draw(*shape, seed=seed) * (seed + 1) + seed)
        assert (ours.running_mean - theirs.running_mean).abs().max() < 1e-9
        assert (ours.running_var - theirs.running_var).abs().max() < 1e-9
        assert ours.batches == theirs.num_batches_tracked
    ours.eval(), theirs.eval()
    kept = ours.running_mean.clone()
    assert_equal(ours, theirs, draw(*shape, seed=8) * 3 - 1)
    assert_equal(ours, theirs, draw(1, *shape[1:], seed=8))
    assert torch.equal(ours.running_mean, kept)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_instance_and_group_norm_equal_torch_in_both_modes(affine, training):
    pairs = [(InstanceNorm(C, 1e-3, affine), nn.InstanceNorm2d(C, 1e-3, affine=affine))]
    for groups in (1, 2, 3, 6):
        pairs += [(GroupNorm(groups, C, 1e-3, affine), nn.GroupNorm(groups, C, 1e-3, affine))]
    for ours, theirs in pairs:
        ours, theirs = alike(ours.train(training), theirs.train(training))
        assert_equal(ours, theirs, draw(N, C, H, W) * 4 + 2)


@pytest.mark.parametrize("shape", [(W,), (H, W), (C, H, W)])
@pytest.mark.parametrize("training", [True, False])
def test_layer_norm_over_several_axes_equals_torch(shape, training):
    ours, theirs = alike(LayerNorm(shape, 1e-3), nn.LayerNorm(shape, 1e-3))
    x = draw(N, C, H, W) * 4 + 2
    assert_equal(ours.train(training), theirs.train(training), x)
    by_formula = layer_norm(x, ours.weight, ours.bias, 1e-3, axes=len(shape))
    assert (by_formula - theirs(x)).abs().max() < 1e-9


@pytest.mark.parametrize("kind, axes", [("batch", (0, 2, 3)), ("layer", (1, 2, 3))])
def test_sets_have_mean_zero_and_variance_one(kind, axes):
    out = normalise(draw(N, C, H, W) * 9 + 4, kind, eps=0)
    assert out.mean(axes).abs().max() < 1e-9
    assert (out.var(axes, correction=0) - 1).abs().max() < 1e-9


@pytest.mark.parametrize("kind", ["batch", "layer", "instance", "group", "token"])
def test_the_sets_are_the_ones_that_are_pooled(kind):
    """Change one element: exactly the elements of its set move."""
    x = draw(N, C, H, W)
    groups = G if kind == "group" else None
    sets = pooled_sets(x.shape, kind, groups)
    counts = {"batch": C, "layer": N, "instance": N * C, "group": N * G, "token": N * C * H}
    assert sets.unique().tolist() == list(range(counts[kind]))
    changed = x.clone()
    changed[1, 4, 2, 3] += 0.7
    moved = normalise(changed, kind, groups) != normalise(x, kind, groups)
    assert torch.equal(moved, sets == sets[1, 4, 2, 3])


def test_group_norm_is_layer_norm_at_one_end_and_instance_norm_at_the_other():
    x = draw(N, C, H, W)
    assert torch.equal(normalise(x, "group", 1), normalise(x, "layer"))
    assert torch.equal(normalise(x, "group", C), normalise(x, "instance"))


def test_gradients_by_finite_differences():
    x = draw(2, 4, 3).requires_grad_()
    for kind in ("batch", "layer", "instance", "group", "token"):
        groups = 2 if kind == "group" else None
        assert torch.autograd.gradcheck(lambda x, k=kind, g=groups: normalise(x, k, g), x)


def test_hostile_inputs():
    flat = torch.full((N, C, H, W), 2.0**40, dtype=torch.float64)
    for kind in ("batch", "layer", "instance", "token"):
        assert not normalise(flat, kind).any()
    assert GroupNorm(G, C)(torch.zeros(0, C, H, W)).shape == (0, C, H, W)
    assert InstanceNorm(C)(torch.zeros(0, C, H, W)).shape == (0, C, H, W)
    assert BatchNorm(C).eval()(torch.zeros(0, C)).shape == (0, C)
    far = draw(N, C, 211, 97) * 1e-2 + 10
    wanted = nn.functional.batch_norm(far, None, None, training=True)
    assert (normalise(far, "batch") - wanted).abs().max() < 1e-9


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("kind", ValueError, lambda: normalise(torch.zeros(N, C), "space")),
        ("groups", ValueError, lambda: GroupNorm(4, C)),
        ("groups", ValueError, lambda: GroupNorm(0, C)),
        ("groups", ValueError, lambda: normalise(torch.zeros(N, C), "group")),
        ("groups", ValueError, lambda: pooled_sets((N, C), "group", 5)),
        ("x", ValueError, lambda: BatchNorm(C)(torch.zeros(1, C))),
        ("x", ValueError, lambda: BatchNorm(C)(torch.zeros(N, C + 1))),
        ("x", ValueError, lambda: BatchNorm(C)(torch.zeros(C))),
        ("x", TypeError, lambda: BatchNorm(C)(torch.zeros(N, C).long())),
        ("x", ValueError, lambda: InstanceNorm(C)(torch.zeros(N, C, 1, 1))),
        ("x", ValueError, lambda: InstanceNorm(C)(torch.zeros(N, C))),
        ("x", ValueError, lambda: normalise(torch.zeros(N, C), "instance")),
        ("x", ValueError, lambda: normalise(torch.zeros(C), "layer")),
        ("x", ValueError, lambda: GroupNorm(G, C)(torch.zeros(N, W))),
        ("x", ValueError, lambda: LayerNorm((C, H))(torch.zeros(N, C, W))),
        ("x", ValueError, lambda: layer_norm(torch.zeros(4), axes=2)),
        ("weight", ValueError, lambda: layer_norm(torch.zeros(N, C, W), torch.ones(W), axes=2)),
        ("momentum", ValueError, lambda: BatchNorm(C, momentum=1.5)),
        ("eps", ValueError, lambda: standardise(torch.zeros(N, C), (1,), -1.0)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
