"""Position codes against the formula in plain Python, and the tables around them."""

import math

import pytest
import torch

from labcore.embed import LearnedPositions, SinusoidalPositions, sinusoidal

B, T, D = 3, 5, 8


def one(position, component, width, base=10000.0):
    angle = position / base ** (2 * (component // 2) / width)
    return math.cos(angle) if component % 2 else math.sin(angle)


@pytest.mark.parametrize("width, base", [(2, 10000.0), (8, 10000.0), (64, 500.0)])
def test_every_number_equals_the_formula(width, base):
    places = [0, 1, 17, 4096, 100_003]
    codes = sinusoidal(places, width, base)
    wanted = [[one(p, i, width, base) for i in range(width)] for p in places]
    assert codes.dtype == torch.float64
    assert (codes - torch.tensor(wanted, dtype=torch.float64)).abs().max() < 1e-9


def test_first_rows_of_width_four():
    wanted = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414709848078965, 0.5403023058681398, 0.009999833334166664, 0.9999500004166653],
        [0.9092974268256817, -0.4161468365471424, 0.01999866669333308, 0.9998000066665778],
    ]
    assert (sinusoidal(3, 4) - torch.tensor(wanted, dtype=torch.float64)).abs().max() < 1e-12


def test_a_count_a_list_and_a_tensor_agree():
    wanted = sinusoidal(T, D)
    assert wanted.shape == (T, D)
    assert torch.equal(sinusoidal(list(range(T)), D), wanted)
    assert torch.equal(sinusoidal(torch.arange(T), D), wanted)
    assert torch.equal(sinusoidal(torch.arange(T).float(), D), wanted)
    assert sinusoidal(0, D).shape == (0, D)
    assert sinusoidal(T, D, dtype=torch.float32).dtype == torch.float32


def test_norm_and_dot_product_depend_on_the_distance_alone():
    codes = sinusoidal(200, 512)
    assert (codes.square().sum(-1) - 256).abs().max() < 1e-9
    near = [float(codes[p] @ codes[p + 13]) for p in (0, 5, 100)]
    wanted = sum(math.cos(13 / 10000 ** (2 * i / 512)) for i in range(256))
    assert near == pytest.approx([wanted] * 3, abs=1e-9)


def test_a_shift_is_a_rotation_of_each_pair():
    """PE(p + k) is a fixed linear map of PE(p): the property the paper chose sines for."""
    shift, frequencies = 6, 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    sine, cosine = (shift * frequencies).sin(), (shift * frequencies).cos()
    codes = sinusoidal(50, D)
    s, c = codes[:-shift, 0::2], codes[:-shift, 1::2]
    turned = torch.stack([s * cosine + c * sine, c * cosine - s * sine], -1).flatten(1)
    assert (turned - codes[shift:]).abs().max() < 1e-9


def test_modules_add_their_rows():
    x = torch.randn(B, T, D, dtype=torch.float64)
    fixed, table = SinusoidalPositions(D), LearnedPositions(9, D).double()
    codes = sinusoidal(20, D)
    assert torch.equal(fixed(x), x + codes[:T])
    assert torch.equal(fixed(x, offset=7), x + codes[7 : 7 + T])
    assert fixed(x.float()).dtype == torch.float32
    assert torch.equal(table(x), x + table.weight[:T])
    assert torch.equal(table(x, offset=4), x + table.weight[4:9])
    places = torch.tensor([4, 0, 8, 8, 1])
    assert torch.equal(table(x, positions=places), x + table.weight[places])
    each = torch.randint(0, 9, (B, T), generator=torch.Generator().manual_seed(0))
    assert torch.equal(table(x, positions=each), x + table.weight[each])
    assert list(fixed.parameters()) == []
    assert fixed(x[:0]).shape == (0, T, D)
    assert table(x[:, :0]).shape == (B, 0, D)


def test_only_rows_that_were_used_get_gradients():
    table = LearnedPositions(9, D)
    table(torch.zeros(B, T, D), offset=2).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [0, 0, 3, 3, 3, 3, 3, 0, 0]


ZERO = torch.zeros


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("width", ValueError, lambda: sinusoidal(T, 7)),
        ("width", ValueError, lambda: sinusoidal(T, 0)),
        ("width", ValueError, lambda: SinusoidalPositions(6.0)),
        ("base", ValueError, lambda: sinusoidal(T, D, 0.0)),
        ("base", ValueError, lambda: sinusoidal(T, D, math.nan)),
        ("positions", ValueError, lambda: sinusoidal(-1, D)),
        ("positions", ValueError, lambda: sinusoidal([0.0, math.nan], D)),
        ("positions", ValueError, lambda: sinusoidal([[0, 1]], D)),
        ("positions", TypeError, lambda: sinusoidal(ZERO(T).bool(), D)),
        ("x", ValueError, lambda: SinusoidalPositions(D)(ZERO(D))),
        ("x", ValueError, lambda: SinusoidalPositions(D)(ZERO(B, T, D + 2))),
        ("x", TypeError, lambda: SinusoidalPositions(D)(ZERO(B, T, D).long())),
        ("offset", ValueError, lambda: SinusoidalPositions(D)(ZERO(B, T, D), -1)),
        ("x", ValueError, lambda: LearnedPositions(4, D)(ZERO(B, T, D))),
        ("x", ValueError, lambda: LearnedPositions(9, D)(ZERO(B, T, D), offset=5)),
        ("max_length", ValueError, lambda: LearnedPositions(0, D)),
        (
            "positions",
            ValueError,
            lambda: LearnedPositions(4, D)(ZERO(B, T, D), positions=torch.full((T,), 4)),
        ),
        (
            "positions",
            ValueError,
            lambda: LearnedPositions(4, D)(ZERO(B, T, D), positions=ZERO(B).long()),
        ),
        (
            "positions",
            TypeError,
            lambda: LearnedPositions(4, D)(ZERO(B, T, D), positions=ZERO(T)),
        ),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
