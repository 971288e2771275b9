"""The letter table and the shape check."""

import pytest
import torch

from labcore.shapes import LETTERS, ShapeError, check, require


def test_letters_are_unique_and_complete():
    assert "".join(LETTERS) == "BTSDHGKVFEANCWLMRPY"
    assert all(row.letter == key and all(row) for key, row in LETTERS.items())
    assert len({row.meaning for row in LETTERS.values()}) == len(LETTERS)


def test_check_returns_sizes_and_takes_leading_axes():
    x = torch.zeros(3, 4, 5, 6)
    assert check(x, "B H T K") == {"B": 3, "H": 4, "T": 5, "K": 6}
    assert check(x, "... T K", T=5) == {"T": 5, "K": 6}
    assert check(x, "3 H 5 K") == {"H": 4, "K": 6}
    assert check(torch.zeros(()), "...") == {}


@pytest.mark.parametrize(
    ("shape", "pattern", "known"),
    [
        ((3, 4, 5), "B H T K", {}),
        ((3, 4, 5, 6, 7), "B H T K", {}),
        ((3, 4, 5, 6), "B H T K", {"K": 8}),
        ((5, 7), "T T", {}),
        ((5, 7), "T 6", {}),
        ((5,), "... T K", {}),
    ],
)
def test_check_refuses_with_both_shapes(shape, pattern, known):
    with pytest.raises(ShapeError) as caught:
        check(torch.zeros(shape), pattern, name="keys", **known)
    assert f"keys: got shape {list(shape)}; allowed: [" in str(caught.value)


def test_unknown_letters_are_refused():
    with pytest.raises(ValueError, match="pattern: got 'B Z'"):
        check(torch.zeros(3, 4), "B Z")


def test_require_names_argument_given_and_allowed():
    require(True, "x", 1, "anything")
    with pytest.raises(TypeError, match="mask: got int64; allowed: bool"):
        require(False, "mask", "int64", "bool", error=TypeError)
