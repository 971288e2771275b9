"""The three mixers: one interface, three patterns of who sees whom."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labcore.blocks import ConvolutionMixer, RecurrentMixer, SelfAttentionMixer
from labcore.blocks.mixers import longest_path, receptive_field

B, N, D = 3, 7, 6


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def make(kind):
    torch.manual_seed(0)
    made = {
        "attention": lambda: SelfAttentionMixer(D, 2),
        "causal attention": lambda: SelfAttentionMixer(D, 2, causal=True),
        "zeros": lambda: ConvolutionMixer(D, 3),
        "circular": lambda: ConvolutionMixer(D, 5, padding="circular"),
        "dilated": lambda: ConvolutionMixer(D, 3, dilation=2),
        "causal": lambda: ConvolutionMixer(D, 4, causal=True),
        "depthwise": lambda: ConvolutionMixer(D, 3, depthwise=True),
        "tanh": lambda: RecurrentMixer(D),
        "linear": lambda: RecurrentMixer(D, activation="linear"),
    }[kind]()
    return made.double()


KINDS = ["attention", "causal attention", "zeros", "circular", "dilated", "causal"]
KINDS += ["depthwise", "tanh", "linear"]

SEES = {
    "attention": lambda t, s: True,
    "causal attention": lambda t, s: s <= t,
    "zeros": lambda t, s: abs(t - s) <= 1,
    "circular": lambda t, s: min((t - s) % N, (s - t) % N) <= 2,
    "dilated": lambda t, s: abs(t - s) in (0, 2),
    "causal": lambda t, s: 0 <= t - s <= 3,
    "depthwise": lambda t, s: abs(t - s) <= 1,
    "tanh": lambda t, s: s <= t,
    "linear": lambda t, s: s <= t,
}


@pytest.mark.parametrize("kind", KINDS)
def test_shape_pattern_and_gradient(kind):
    mixer, x = make(kind), draw(B, N, D)
    assert mixer(x).shape == (B, N, D)
    assert mixer(x[:0]).shape == (0, N, D)
    assert mixer(x[:, :0]).shape == (B, 0, D)
    jacobian = torch.autograd.functional.jacobian(mixer, x[:1])[0, :, :, 0]
    influence = jacobian.permute(0, 2, 1, 3).flatten(2).abs().sum(-1)
    wanted = [[SEES[kind](t, s) for s in range(N)] for t in range(N)]
    assert (influence > 0).tolist() == wanted
    assert torch.autograd.gradcheck(mixer, draw(1, 3, D, seed=1).requires_grad_())


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_a_batch_do_not_meet(kind):
    mixer, x = make(kind), draw(B, N, D)
    alone = torch.cat([mixer(x[b : b + 1]) for b in range(B)])
    assert (mixer(x) - alone).abs().max() < 1e-9


@pytest.mark.parametrize("kernel, dilation", [(1, 1), (3, 1), (5, 1), (3, 3), (9, 1), (5, 4)])
def test_convolution_equals_a_sum_over_neighbours(kernel, dilation):
    """Also where the kernel is longer than the sequence, and goes around the ring twice."""
    x = draw(B, N, D)
    for padding in ("zeros", "circular"):
        mixer = ConvolutionMixer(D, kernel, padding=padding, dilation=dilation).double()
        weight, bias = mixer.convolution.weight, mixer.convolution.bias
        for t in range(N):
            wanted = bias.expand(B, D)
            for j in range(kernel):
                s = t + dilation * (j - kernel // 2)
                if padding == "circular":
                    wanted = wanted + x[:, s % N] @ weight[:, :, j].T
                elif 0 <= s < N:
                    wanted = wanted + x[:, s] @ weight[:, :, j].T
            assert (mixer(x)[:, t] - wanted).abs().max() < 1e-9


def test_convolution_equals_torch():
    x = draw(B, N, D)
    for padding, mode in (("zeros", "zeros"), ("circular", "circular")):
        mixer = ConvolutionMixer(D, 3, padding=padding).double()
        theirs = nn.Conv1d(D, D, 3, padding=1, padding_mode=mode).double()
        theirs.load_state_dict(mixer.convolution.state_dict())
        assert (mixer(x) - theirs(x.mT).mT).abs().max() < 1e-9


def test_shifts_and_permutations():
    x, order = draw(B, N, D), torch.tensor([3, 0, 6, 1, 2, 5, 4])
    ring, attention = make("circular"), make("attention")
    assert (ring(x.roll(3, 1)) - ring(x).roll(3, 1)).abs().max() < 1e-9
    assert (ring(x[:, order]) - ring(x)[:, order]).abs().max() > 0.1
    assert (attention(x[:, order]) - attention(x)[:, order]).abs().max() < 1e-9


def test_attention_mixer_gives_weights():
    out, weights = make("attention")(draw(B, N, D), need_weights=True)
    assert out.shape == (B, N, D)
    assert weights.shape == (B, 2, N, N)


def test_recurrence_equals_torch():
    mixer = make("tanh")
    theirs = nn.RNN(D, D, batch_first=True).double()
    mine = mixer.state_dict()
    theirs.load_state_dict(
        {
            "weight_ih_l0": mine["input_proj.weight"],
            "bias_ih_l0": mine["input_proj.bias"],
            "weight_hh_l0": mine["state_proj.weight"],
            "bias_hh_l0": torch.zeros(D),
        }
    )
    assert (mixer(draw(B, N, D)) - theirs(draw(B, N, D))[0]).abs().max() < 1e-9


def test_linear_recurrence_forgets_by_the_power_of_its_matrix():
    mixer = RecurrentMixer(D, activation="linear", project=False).double()
    with torch.no_grad():
        mixer.state_proj.weight.mul_(0.8)
    x = draw(1, N, D)
    jacobian = torch.autograd.functional.jacobian(mixer, x)[0, :, :, 0, 0]
    norms = [float(torch.linalg.matrix_norm(block, 2)) for block in jacobian]
    # The orthogonal start was drawn in float32: its length is 1 to seven digits.
    assert norms == pytest.approx([0.8**t for t in range(N)], rel=1e-5)


def test_layers_reach_as_far_as_the_formula_says():
    for layers in (1, 2, 3, 4):
        stack = nn.Sequential(*(ConvolutionMixer(1, 3) for _ in range(layers))).double()
        for mixer in stack:
            nn.init.ones_(mixer.convolution.weight)
        x = draw(1, 21, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(stack(x)[0, 10, 0], x)
        assert int((gradient != 0).sum()) == receptive_field(layers, 3) == 2 * layers + 1
    assert longest_path("convolution", 64, kernel=3, dilated=False) == pytest.approx(64 / 3)
    assert longest_path("attention", 64) == 1
    assert longest_path("recurrence", 64) == 64


def test_a_long_sequence():
    x = draw(1, 1023, D)
    assert all(make(kind)(x).isfinite().all() for kind in KINDS)


def test_depthwise_keeps_features_apart():
    mixer, x = make("depthwise"), draw(B, N, D)
    wanted = F.conv1d(
        x.mT, mixer.convolution.weight, mixer.convolution.bias, padding=1, groups=D
    ).mT
    assert (mixer(x) - wanted).abs().max() < 1e-9


ZERO = torch.zeros


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("heads", ValueError, lambda: SelfAttentionMixer(D, 4)),
        ("kernel", ValueError, lambda: ConvolutionMixer(D, 4)),
        ("kernel", ValueError, lambda: ConvolutionMixer(D, 0)),
        ("padding", ValueError, lambda: ConvolutionMixer(D, 3, padding="same")),
        ("padding", ValueError, lambda: ConvolutionMixer(D, 3, padding="circular", causal=True)),
        ("dilation", ValueError, lambda: ConvolutionMixer(D, 3, dilation=0)),
        ("activation", ValueError, lambda: RecurrentMixer(D, activation="relu")),
        ("x", ValueError, lambda: ConvolutionMixer(D, 3)(ZERO(N, D))),
        ("x", ValueError, lambda: RecurrentMixer(D)(ZERO(B, N, D + 1))),
        ("x", TypeError, lambda: RecurrentMixer(D)(ZERO(B, N, D).long())),
        ("kind", ValueError, lambda: longest_path("graph", 4)),
        ("N", ValueError, lambda: longest_path("attention", 0)),
        ("kernel", ValueError, lambda: longest_path("convolution", 4, kernel=1)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
