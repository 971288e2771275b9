"""The key-value cache: what it holds, what it refuses, and what it costs."""

import pytest
import torch

from labcore.attention import KVCache, LayerCache
from labcore.metrics import kv_cache_bytes

B, T, G, K, V, L = 3, 5, 2, 6, 8, 4


def pieces(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_appending_piece_by_piece_is_concatenation():
    cache = LayerCache(B, 11, kv_heads=G, key_width=K, value_width=V, dtype=torch.float64)
    k, v = pieces(B, G, 9, K), pieces(B, G, 9, V)
    place = 0
    for size in (4, 1, 1, 3):
        found = cache.append(k[:, :, place : place + size], v[:, :, place : place + size])
        place += size
        assert torch.equal(found[0], k[:, :, :place])
        assert torch.equal(found[1], v[:, :, :place])
    assert cache.length == 9
    before = cache.keys.data_ptr()
    cache.append(k[:, :, :2], v[:, :, :2])
    assert cache.keys.data_ptr() == before
    with pytest.raises(ValueError, match="cache: got 12 tokens; allowed: up to max_length 11"):
        cache.append(k[:, :, :1], v[:, :, :1])


@pytest.mark.parametrize(
    ("k", "v", "error"),
    [
        (pieces(B, G, T, K + 1), pieces(B, G, T, V), "k: got shape"),
        (pieces(B + 1, G, T, K), pieces(B + 1, G, T, V), "k: got shape"),
        (pieces(B, G, T, K), pieces(B, G, T + 1, V), "v: got shape"),
        (pieces(B, G, T, K).requires_grad_(), pieces(B, G, T, V), "needs gradients"),
    ],
)
def test_bad_pieces_are_refused(k, v, error):
    cache = LayerCache(B, 11, kv_heads=G, key_width=K, value_width=V, dtype=torch.float64)
    with pytest.raises(ValueError, match=error):
        cache.append(k, v)
    assert cache.length == 0


def test_another_dtype_is_refused():
    cache = LayerCache(B, 11, kv_heads=G, key_width=K)
    with pytest.raises(TypeError, match="float64"):
        cache.append(pieces(B, G, T, K), pieces(B, G, T, K))


@pytest.mark.parametrize("name", ["batch", "max_length", "kv_heads", "key_width"])
def test_sizes_are_checked(name):
    sizes = {"batch": B, "max_length": 11, "kv_heads": G, "key_width": K, name: 0}
    with pytest.raises(ValueError, match=f"{name}: got 0"):
        LayerCache(sizes.pop("batch"), sizes.pop("max_length"), **sizes)
    with pytest.raises(ValueError, match="layers: got 0"):
        KVCache(0, B, 11, kv_heads=G, key_width=K)


def test_rows_change_places_and_numbers():
    cache = KVCache(L, B, 11, kv_heads=G, key_width=K, dtype=torch.float64)
    k = pieces(B, G, T, K)
    for layer in cache.layers:
        layer.append(k, k)
    cache.memory = [(k, k)] * L
    cache.memory_mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    cache.reorder(torch.tensor([2, 2, 0, 1, 2]))
    assert cache.batch == 5
    assert torch.equal(cache.layers[3].view()[0], k[[2, 2, 0, 1, 2]])
    assert torch.equal(cache.memory[1][1], k[[2, 2, 0, 1, 2]])
    assert cache.memory_mask.shape[0] == 5
    with pytest.raises(ValueError, match="parents"):
        cache.reorder(torch.tensor([5]))
    with pytest.raises(TypeError, match="parents"):
        cache.reorder([0, 1])
    cache.cut(2)
    assert cache.length == 2
    with pytest.raises(ValueError, match="length"):
        cache.cut(3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_bytes_are_those_of_the_tensors(dtype):
    sizes = {"kv_heads": G, "key_width": K, "value_width": V}
    cache = KVCache(L, B, 11, **sizes, dtype=dtype, device="meta")
    number = torch.empty((), dtype=dtype).element_size()
    assert cache.nbytes == kv_cache_bytes(L, 11, G, K, value_width=V, batch=B, number_bytes=number)


def test_calculator():
    assert kv_cache_bytes(12, 1024, 12, 64) == 36 * 2**20
    assert kv_cache_bytes(12, 1024, 12, 64, window=256) == 9 * 2**20
    assert kv_cache_bytes(12, 100, 12, 64, window=256) == kv_cache_bytes(12, 100, 12, 64)
    with pytest.raises(ValueError, match="batch: got 0"):
        kv_cache_bytes(12, 1024, 12, 64, batch=0)
