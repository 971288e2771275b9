"""Distinct n-grams and repeated share against sets written out."""

import pytest
import torch

from labcore.metrics import distinct_n, repeated_share


def test_by_hand():
    lines = [["a", "b", "a", "b"], ["a", "b", "c"]]
    assert distinct_n(lines, 1) == 3 / 7
    assert distinct_n(lines, 2) == 3 / 5  # ab, ba, bc of ab ba ab ab bc
    assert distinct_n(lines, 3) == 3 / 3  # aba, bab, abc
    assert repeated_share(["x", "x", "x", "x", "x"], 2) == 0.75
    assert repeated_share(["a", "b", "c", "d"], 4) == 0
    assert repeated_share(torch.tensor([1, 2, 1, 2, 1]), 2) == 0.5


def test_n_grams_do_not_cross_sequences():
    assert distinct_n([["a"], ["b", "a"]], 2) == 1.0


def test_bad_input():
    with pytest.raises(ValueError, match="sequences: got no n-gram"):
        distinct_n([["a", "b"]], 3)
    with pytest.raises(ValueError, match="n: got 0"):
        distinct_n([["a"]], 0)
    with pytest.raises(TypeError, match="sequences: got the string"):
        repeated_share("the cat", 2)
