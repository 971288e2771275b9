"""The tables: nearest older GPU, override, and what is said when there is nothing."""

import pytest
import torch

from labcore.kernels.config import Table, Tile, assume, bits, capability, precision

OLD, NEW = Tile(128, 64, warps=4, stages=3), Tile(128, 128, warps=8, stages=3)
TABLE = Table("example", {(80, 16, 64): OLD, (90, 16, 64): NEW, (75, 32, 16): Tile(16, 16)})


@pytest.mark.parametrize(("found", "tile"), [(80, OLD), (86, OLD), (89, OLD), (90, NEW)])
def test_a_gpu_takes_its_own_entry_or_the_nearest_older_one(found, tile):
    assert TABLE.find(found, 16, 64) == tile


def test_what_is_not_there_is_named():
    assert not TABLE.has(75, 16, 64)
    assert TABLE.has(90, 32, 16)
    with pytest.raises(KeyError, match=r"example: got capability 75, 16 bits, width 64"):
        TABLE.find(75, 16, 64)


def test_override_holds_inside_its_block_alone():
    with TABLE.override((32, 16, 0, 2, 1)):
        assert TABLE.find(90, 16, 64) == Tile(32, 16, 0, 2, 1)
    assert TABLE.find(90, 16, 64) == NEW


def test_entries_are_all_there_in_order():
    assert [key[:3] for key in TABLE.entries()] == [(75, 32, 16), (80, 16, 64), (90, 16, 64)]


def test_precision_never_is_the_default_of_one_tf32_product(monkeypatch):
    x = torch.zeros(1)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for found, word in [(75, "ieee"), (80, "tf32x3"), (90, "tf32x3")]:
        with assume(found):
            assert (capability(x), precision(x)) == (found, word)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert precision(x) == "ieee"


def test_bits_and_assume_refuse_what_they_do_not_know():
    for dtype, count in [(torch.float16, 16), (torch.bfloat16, 16), (torch.float32, 32)]:
        assert bits(torch.zeros(1, dtype=dtype)) == count
    with pytest.raises(TypeError, match=r"dtype: got torch.float64"):
        bits(torch.zeros(1, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"capability: got 70"), assume(70):
        pass
