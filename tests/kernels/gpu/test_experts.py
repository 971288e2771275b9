"""The grouped product's kernels on a GPU: values, no waiting, one kernel for every distribution."""

import pytest
import torch

from labcore.kernels import experts_eager, use, why
from labcore.kernels.experts import expert_gemm, expert_gemm_eager, offsets_of

pytestmark = pytest.mark.gpu
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
SPREADS = {
    "even": ([300] * 8, 2400),
    "empty first": ([0, 127, 128, 129, 0, 1, 600, 15], 1000),
    "empty last and some for nobody": ([16, 17, 500, 3, 64, 63, 65, 0], 1000),
    "all empty": ([0] * 8, 50),
    "one takes all": ([0, 0, 0, 1500, 0, 0, 0, 0], 1500),
    "one row each": ([1] * 8, 8),
}


@pytest.fixture
def no_waiting():
    """Whatever makes the host wait for the GPU is an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def draw(*shape, dtype=torch.float32, seed=0):
    random = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return random.to("cuda", dtype)


def wanted(x, w, dy, counts):
    """y, dX and dW in float64, expert by expert."""
    x, w, dy = (m.double() for m in (x, w, dy))
    y, dx, dw, first = x.new_zeros(len(x), w.shape[2]), torch.zeros_like(x), torch.zeros_like(w), 0
    for expert, rows in enumerate(counts):
        mine = slice(first, first + rows)
        y[mine], dx[mine] = x[mine] @ w[expert], dy[mine] @ w[expert].t()
        dw[expert] = x[mine].t() @ dy[mine]
        first += rows
    return y, dx, dw


def run(x, w, dy, offsets, backend="triton"):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    with use(backend):
        y = expert_gemm(x, w, offsets)
        return (y.detach(), *torch.autograd.grad(y, (x, w), dy))


def close(found, right, dtype):
    for name, mine, theirs in zip(("y", "dx", "dw"), found, right, strict=True):
        error = (mine.double() - theirs).norm() / theirs.norm().clamp(min=1e-30)
        assert error.item() <= TOLERANCE[dtype], f"{name}: {error.item():.1e}"


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sizes", [(512, 256), (1000, 520), (33, 50)])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_and_gradients_agree_with_float64(spread, sizes, dtype):
    if torch.cuda.get_device_capability()[0] < 8 and dtype == torch.bfloat16:
        pytest.skip("bfloat16 needs compute capability 8.0")
    counts, rows = SPREADS[spread]
    (D, F), E = sizes, len(counts)
    x, w = draw(rows, D, dtype=dtype), draw(E, D, F, dtype=dtype, seed=1)
    dy, offsets = draw(rows, F, dtype=dtype, seed=2), offsets_of(torch.tensor(counts).cuda())
    found = run(x, w, dy, offsets)
    close(found, wanted(x, w, dy, counts), dtype)
    assert all(torch.equal(*pair) for pair in zip(found, run(x, w, dy, offsets), strict=True))
    assert found[0][sum(counts) :].abs().sum() == 0
    assert all(rows or found[2][e].abs().max() == 0 for e, rows in enumerate(counts))


@pytest.mark.parametrize("backend", ["triton", "eager"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_nothing_waits_for_the_gpu(no_waiting, backend, dtype):
    x, w = torch.ones(300, 64, device="cuda", dtype=dtype), torch.ones(4, 64, 48, device="cuda")
    x, w = x.requires_grad_(), w.to(dtype).requires_grad_()
    counts = torch.arange(4, device="cuda") * 40
    with use(backend):
        expert_gemm(x, w, offsets_of(counts)).sum().backward()


def test_a_graph_captured_once_serves_every_distribution():
    x, w = draw(64, 32, dtype=torch.float16), draw(4, 32, 48, dtype=torch.float16)
    offsets = torch.tensor([10, 20, 30, 40], device="cuda", dtype=torch.int32)
    with use("triton"):
        expert_gemm(x, w, offsets)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = expert_gemm(x, w, offsets)
        for counts in ([10, 10, 10, 10], [0, 64, 0, 0], [1, 0, 2, 61]):
            offsets.copy_(offsets_of(torch.tensor(counts)))
            graph.replay()
            right = wanted(x, w, y, counts)[0]
            assert (y.double() - right).norm() <= 2e-3 * right.norm()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_eager_form_on_a_gpu(dtype):
    counts, rows = SPREADS["empty first"]
    x, w = draw(rows, 40, dtype=dtype), draw(8, 40, 24, dtype=dtype, seed=1)
    dy, offsets = draw(rows, 24, dtype=dtype, seed=2), offsets_of(torch.tensor(counts).cuda())
    tensors = x.requires_grad_(), w.requires_grad_()
    y = expert_gemm_eager(*tensors, offsets)
    found = (y.detach(), *torch.autograd.grad(y, tensors, dy))
    right = wanted(x.detach(), w.detach(), dy, counts)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-3
    for mine, theirs in zip(found, right, strict=True):
        assert (mine.double() - theirs).norm() <= tolerance * theirs.norm()


def test_torchs_grouped_product_on_a_gpu():
    if torch.cuda.get_device_capability()[0] not in (9, 10):
        pytest.skip("torch's fast path needs compute capability 9.0 or 10.0")
    counts, rows = SPREADS["empty last and some for nobody"]
    x, w = (draw(*s, dtype=torch.bfloat16) for s in ((rows, 64), (8, 64, 128)))
    assert experts_eager._grouped_fits(x, w)
    dy, offsets = draw(rows, 128, dtype=torch.bfloat16), offsets_of(torch.tensor(counts).cuda())
    close(run(x, w, dy, offsets, "eager"), wanted(x, w, dy, counts), torch.bfloat16)


def test_views_and_pointers_that_are_not_aligned():
    offsets = torch.tensor([30, 30, 70, 100], device="cuda")
    counts, half = [30, 0, 40, 30], torch.float16
    x, w, dy = draw(110, 64, dtype=half), draw(4, 64, 80, dtype=half), draw(110, 80, dtype=half)
    for changed in (
        (draw(110, 192, dtype=half)[:, 64:128], w, dy),
        (draw(110 * 64 + 1, dtype=half)[1:].view(110, 64), w, dy),
        (x, draw(4 * 64 * 80 + 1, dtype=half)[1:].view(4, 64, 80), dy),
        (x, draw(4, 80, 64, dtype=half).transpose(1, 2), dy),
        (x, w, torch.ones((), device="cuda", dtype=half).expand(110, 80)),
        (draw(64, 110, dtype=half).t(), w, draw(80, 110, dtype=half).t()),
    ):
        close(run(*changed, offsets), wanted(*changed, counts), half)


def test_offsets_that_no_host_has_seen_are_held():
    x, w = draw(23, 16), draw(5, 16, 24)
    for values in ([3, 1, 9, 99, 12], [-4, 2, 2, 1, 23], [50, 40, 30, 20, 10]):
        given = torch.tensor(values, device="cuda")
        held = given.clamp(0, 23).cummax(0).values
        for backend in ("triton", "eager"):
            with use(backend):
                y, right = expert_gemm(x, w, given), expert_gemm(x, w, held)
            torch.testing.assert_close(y, right)


def test_rows_beyond_32_bits():
    memory = torch.empty(2**32 + 4096, dtype=torch.float16, device="cuda")
    x = memory.as_strided((3, 16), (2**31 + 8, 1)).copy_(draw(3, 16))
    w, offsets = draw(2, 16, 16, dtype=torch.float16), torch.tensor([1, 3], device="cuda")
    dy = draw(3, 16, dtype=torch.float16)
    close(run(x, w, dy, offsets), wanted(x, w, dy, [1, 2]), torch.float16)
    del memory, x
    torch.cuda.empty_cache()
    x = draw(2**20, 16, dtype=torch.float16)
    y = expert_gemm(x, draw(1, 16, 2064, dtype=torch.float16), torch.tensor([2**20]).cuda())
    assert y.numel() > 2**31 and torch.isfinite(y[-1]).all() and y[-1].abs().sum() > 0


def test_autocast_and_what_ran():
    x, w = draw(60, 32).requires_grad_(), draw(3, 32, 40).requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        y = expert_gemm(x, w, torch.tensor([20, 20, 60], device="cuda"))
    assert y.dtype == torch.float16
    y.sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.float32
    modern = torch.cuda.get_device_capability()[0] >= 8
    assert why("expert_gemm").startswith("triton" if modern else "eager")


def test_the_compiler_keeps_it_in_one_graph():
    torch._dynamo.reset()
    layer = torch.compile(expert_gemm, fullgraph=True, dynamic=True)
    w = draw(3, 32, 40, dtype=torch.float16)
    for rows in (60, 77, 128, 300):
        x = draw(rows, 32, dtype=torch.float16)
        offsets = torch.tensor([20, 20, 60], device="cuda")
        torch.testing.assert_close(layer(x, w, offsets), expert_gemm(x, w, offsets))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_second_gpu_that_is_not_the_current_one():
    x, w = draw(60, 32).to("cuda:1"), draw(3, 32, 40).to("cuda:1")
    offsets = torch.tensor([20, 20, 60], device="cuda:1")
    with use("triton"):
        y = expert_gemm(x, w, offsets)
    torch.testing.assert_close(y, expert_gemm_eager(x, w, offsets), rtol=1e-5, atol=1e-5)
