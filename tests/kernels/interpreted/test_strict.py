"""Every bug that the strict mode exists for, planted and caught; and a right kernel that passes."""

import pytest
import torch
import triton
import triton.language as tl

from labcore.kernels.verify.strict import MemoryFault, strict

SIZE, BLOCK = 37, 16


@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value + 1, mask=at < n)


@triton.jit
def loads_unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=at < n)


@triton.jit
def stores_unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0))


@triton.jit
def stores_twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def forgets_other(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n)))


@triton.jit
def adds_up_in_order(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(out) + tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    tl.store(out, total * 2)


@triton.jit
def product(a, b, out, BLOCK: tl.constexpr):
    row, col = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    at = row * BLOCK + col
    found = tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee")
    tl.store(out + at, found)


def launch(kernel, out, seed=None, write_once=True):
    x = torch.arange(SIZE, dtype=torch.float32)
    with strict(seed, write_once) as counts:
        kernel[(triton.cdiv(SIZE, BLOCK),)](x, out, SIZE, BLOCK=BLOCK)
    return out, counts


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_right_kernel_passes_and_its_accesses_are_counted(seed):
    out, counts = launch(add_one, torch.full((SIZE,), float("nan")), seed)
    assert torch.equal(out, torch.arange(SIZE) + 1.0)
    assert counts == {"loads": 3, "stores": 3}


def test_a_load_beside_the_tensor_is_caught():
    with pytest.raises(Exception, match=r"load: 11 of 16 addresses are outside"):
        launch(loads_unmasked, torch.zeros(SIZE))


def test_a_store_beside_the_tensor_is_caught():
    with pytest.raises(Exception, match=r"store: 11 of 16 addresses are outside"):
        launch(stores_unmasked, torch.zeros(SIZE))


def test_a_double_write_is_caught_and_may_be_allowed():
    with pytest.raises(Exception, match="written twice"):
        launch(stores_twice, torch.zeros(SIZE))
    launch(stores_twice, torch.zeros(SIZE), write_once=False)


def test_a_masked_lane_without_a_value_is_nan():
    assert torch.isnan(launch(forgets_other, torch.zeros(3))[0][2])


def test_a_result_that_depends_on_the_order_shows():
    found = {
        launch(adds_up_in_order, torch.zeros(1), seed, write_once=False)[0].item()
        for seed in range(6)
    }
    assert len(found) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_of_every_precision_are_right(dtype):
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(16, 16, generator=draw).to(dtype) for _ in range(2))
    out = torch.empty(16, 16)
    with strict():
        product[(1,)](a, b, out, BLOCK=16)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_bfloat16_without_the_strict_mode_is_wrong():
    """Why the mode exists: should a release mend this, the replacement of the dot can go."""
    a = torch.ones(16, 16, dtype=torch.bfloat16)
    out = torch.empty(16, 16)
    product[(1,)](a, a, out, BLOCK=16)
    assert not torch.allclose(out, torch.full((16, 16), 16.0), rtol=0.1)


def test_the_interpreter_is_itself_again_afterwards():
    with pytest.raises(Exception, match="outside"):
        launch(loads_unmasked, torch.zeros(SIZE))
    x, out = torch.zeros(SIZE + BLOCK), torch.zeros(SIZE + BLOCK)
    loads_unmasked[(3,)](x[:SIZE], out, SIZE, BLOCK=BLOCK)


@triton.jit
def copy_strided(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * stride, mask=at < n, other=0.0)
    tl.store(out + at, value, mask=at < n)


def test_a_strided_view_ends_with_its_own_last_element():
    column, out = torch.arange(2.0 * SIZE).reshape(SIZE, 2)[:, 0], torch.zeros(SIZE)
    with strict():
        copy_strided[(3,)](column, out, SIZE, 2, BLOCK=BLOCK)
    assert torch.equal(out, column)
    with strict(), pytest.raises(Exception, match=r"load: 1 of 6 addresses"):
        # One element further lies in the same storage, but not in the view.
        copy_strided[(3,)](column, torch.zeros(SIZE + 1), SIZE + 1, 2, BLOCK=BLOCK)


def test_memory_fault_is_what_is_raised():
    with pytest.raises(Exception) as caught:
        launch(loads_unmasked, torch.zeros(SIZE))
    chain, error = [], caught.value
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ or error.__context__
    assert MemoryFault in chain


@pytest.mark.parametrize("bad", [True, 1.5, "0"])
def test_seeds_must_be_whole(bad):
    with pytest.raises(ValueError, match="seed"), strict(bad):
        pass
