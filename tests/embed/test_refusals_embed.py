"""Position codes refuse what they would read from another place, repeat, or turn into NaN."""

import math

import pytest
import torch

from labcore.embed import (
    LearnedPositions,
    RelativeBias,
    RotaryPositions,
    SinusoidalPositions,
    relative_bucket,
    rope_angles,
    rotate,
    to_halves,
)

B, H, T, S, K, D = 3, 4, 2, 7, 6, 12
X = torch.ones(B, T, D)
Q, KEYS = torch.ones(B, H, T, K), torch.ones(B, 2, T, K)
PLACES = torch.arange(T)


def warm():
    """A layer whose table is kept already: a negative offset would read from its end."""
    layer = RotaryPositions(K)
    layer(Q)
    return layer


CODES = {
    "rope": lambda **how: warm()(Q, **how),
    "turn": lambda **how: warm().turn(X, **how),
    "learned": lambda **how: LearnedPositions(9, D)(X, **how),
    "sinusoidal": lambda **how: SinusoidalPositions(D)(X, **how),
}
REFUSED = [
    *[
        ("offset", ValueError, lambda call=call, offset=offset: call(offset=offset))
        for call in CODES.values()
        for offset in (-3, 1.5, math.nan, "x", True, None)
    ],
    *[
        ("positions", error, lambda call=call, places=places: call(positions=places))
        for call in CODES.values()
        for places, error in (
            (PLACES.float(), TypeError),
            (PLACES.bool(), TypeError),
            (PLACES.tolist(), TypeError),
            (PLACES - 1, ValueError),
            (torch.arange(T + 1), ValueError),
            (torch.zeros(B + 1, T, dtype=torch.long), ValueError),
            (torch.zeros(1, B, T, dtype=torch.long), ValueError),
            (torch.tensor(0), ValueError),
        )
    ],
    ("x", ValueError, lambda: warm().turn(X[0])),
    ("q", ValueError, lambda: warm().turn(torch.ones(B, 5, D))(Q[:, :, :1], KEYS)),
    ("k", ValueError, lambda: warm().turn(X)(Q, KEYS[:, :, :1])),
    ("q", ValueError, lambda: warm().turn(X)(Q[..., :1], KEYS)),
    ("q", ValueError, lambda: warm().turn(X, positions=PLACES.expand(B, T))(Q[:1], KEYS)),
    ("q", ValueError, lambda: warm().turn(X)(Q[0], KEYS)),
    *[
        ("positions", error, lambda places=places: rope_angles(places, K))
        for places, error in (
            (torch.tensor([math.nan]), ValueError),
            (torch.tensor([math.inf]), ValueError),
            (torch.tensor([2**53 + 2]), ValueError),
            (torch.tensor([1j]), TypeError),
            (torch.tensor([True]), TypeError),
            ([0, 1], TypeError),
        )
    ],
    *[
        ("base", ValueError, lambda make=make, base=base: make(base))
        for make in (
            lambda base: rope_angles(PLACES, K, base),
            lambda base: RotaryPositions(K, base),
        )
        for base in (True, 1e-320, 10**400, math.inf, "2", -1.0)
    ],
    *[("width", ValueError, lambda w=w: RotaryPositions(w)) for w in (0, 3, 2.0, True)],
    ("x", ValueError, lambda: rotate(torch.ones(K), torch.zeros(T, K // 2))),
    ("angles", TypeError, lambda: rotate(torch.ones(T, K), torch.zeros(T, K // 2).long())),
    *[
        ("heads", ValueError, lambda heads=heads: to_halves(torch.ones(24, 5), heads))
        for heads in (0, -1, True, 1.5)
    ],
    ("weight", TypeError, lambda: to_halves([[1.0]], 1)),
    *[
        ("distance", TypeError, lambda x=x: relative_bucket(x))
        for x in (torch.tensor([True]), torch.tensor([1j]), torch.tensor([1.0]), [1], 3)
    ],
    ("both", TypeError, lambda: relative_bucket(PLACES, both="no")),
    *[("buckets", ValueError, lambda n=n: RelativeBias(4, n)) for n in (5, 2, True, 8.0)],
    ("max_distance", ValueError, lambda: RelativeBias(4, 32, True)),
    *[("heads", ValueError, lambda heads=heads: RelativeBias(heads)) for heads in (0, True, "a")],
    *[
        (name, ValueError, lambda name=name, n=n: RelativeBias(4)(**{"T": T, "S": S, name: n}))
        for name in ("T", "S", "offset")
        for n in (-1, 1.5, True)
    ],
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_buckets_do_not_depend_on_the_integer_type(dtype, both):
    ends = torch.iinfo(dtype)
    distance = torch.tensor([max(ends.min, -300), 0, 3, 20, min(ends.max, 300)])
    wanted = relative_bucket(distance, both=both)
    found = relative_bucket(distance.to(dtype), both=both)
    assert found.dtype == torch.int64 and torch.equal(found, wanted)


def test_the_farthest_distances_share_the_last_bucket():
    ends = torch.iinfo(torch.int64)
    far = torch.tensor([ends.min, -(2**40), 2**40, ends.max])
    assert relative_bucket(far).tolist() == [15, 15, 31, 31]
    assert relative_bucket(far, both=False).tolist() == [31, 31, 0, 0]


def test_sinusoidal_positions_of_each_row():
    layer, x = SinusoidalPositions(D), torch.zeros(B, T, D, dtype=torch.float64)
    rows = torch.tensor([[0, 1], [4, 5], [0, 0]])
    found = layer(x, positions=rows)
    assert torch.equal(found[0], layer(x)[0])
    assert torch.equal(found[1], layer(x, offset=4)[1])
    assert torch.equal(found[2, 0], found[2, 1])
    assert torch.equal(layer(x, positions=rows[1]), layer(x, offset=4))
