"""The grouped matrix product where no Triton is: its forms, its gradients, its registration."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from labcore.kernels import experts_eager, use, why
from labcore.kernels.experts import (
    expert_gemm,
    expert_gemm_eager,
    expert_gemm_naive,
    offsets_of,
    refusal,
)

# Rows of each of five experts, of 23: the last rows of some belong to nobody.
SPREADS = {
    "even": [4, 4, 4, 4, 4],
    "empty first": [0, 7, 5, 3, 8],
    "empty middle": [6, 0, 0, 9, 8],
    "empty last": [5, 9, 6, 3, 0],
    "all empty": [0, 0, 0, 0, 0],
    "one takes all": [0, 0, 23, 0, 0],
    "some for nobody": [3, 1, 0, 7, 2],
}
N, D, F = 23, 6, 7


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_expert(x, w, offsets):
    """y in float64, expert by expert, and zero where no expert is."""
    parts, first = [], 0
    for expert, end in enumerate(offsets.tolist()):
        parts.append(x[first:end].double() @ w[expert].double())
        first = end
    parts.append(x.new_zeros(len(x) - first, w.shape[2], dtype=torch.float64))
    return torch.cat(parts)


def close(found, wanted, tolerance):
    wanted = wanted.double()
    assert found.shape == wanted.shape
    error = (found.double() - wanted).norm().item()
    assert error <= tolerance * max(wanted.norm().item(), 1e-30)


FORMS = {"naive": expert_gemm_naive, "eager": expert_gemm_eager, "door": expert_gemm}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_and_its_gradients_agree_with_a_product_per_expert(form, spread):
    offsets = offsets_of(torch.tensor(SPREADS[spread]))
    x, w = draw(N, D).requires_grad_(), draw(5, D, F, seed=1).requires_grad_()
    dy = draw(N, F, seed=2)
    wanted = by_expert(x, w, offsets)
    dx, dw = torch.autograd.grad(wanted, (x, w), dy, materialize_grads=True)
    y = FORMS[form](x, w, offsets)
    found = torch.autograd.grad(y, (x, w), dy)
    close(y, wanted, 1e-13)
    close(found[0], dx, 1e-13)
    close(found[1], dw, 1e-13)
    for expert, rows in enumerate(SPREADS[spread]):
        assert rows or found[1][expert].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(8, 12), (33, 50), (48, 16)])
def test_every_dtype_agrees_with_float64(dtype, sizes):
    D, F = sizes
    x, w = draw(N, D, dtype=dtype), draw(5, D, F, dtype=dtype, seed=1)
    dy, offsets = draw(N, F, dtype=dtype, seed=2), offsets_of(torch.tensor([6, 0, 5, 9, 1]))
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    wanted = [m.double().requires_grad_() for m in (x, w)]
    y = by_expert(*wanted, offsets)
    found = [m.requires_grad_() for m in (x, w)]
    mine = expert_gemm(*found, offsets)
    assert mine.dtype == dtype
    close(mine, y, tolerance)
    pairs = zip(
        torch.autograd.grad(mine, found, dy),
        torch.autograd.grad(y, wanted, dy.double()),
        strict=True,
    )
    for mine, theirs in pairs:
        assert mine.dtype == dtype
        close(mine, theirs, tolerance)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="older torch")
def test_grouped_mm_agrees_and_is_what_runs_where_it_fits(monkeypatch):
    x, w = draw(N, 8, dtype=torch.float32), draw(5, 8, 12, dtype=torch.float32)
    offsets = offsets_of(torch.tensor([6, 0, 5, 9, 3]))
    wanted = torch.nn.functional.grouped_mm(x, w, offs=offsets)
    calls, real = [], torch.nn.functional.grouped_mm

    def counted(*args, **kwargs):
        calls.append(args[0].shape)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "grouped_mm", counted)
    torch.testing.assert_close(expert_gemm(x, w, offsets), wanted)
    assert len(calls) == 1
    expert_gemm(draw(N, 7, dtype=torch.float32), draw(5, 7, 12, dtype=torch.float32), offsets)
    expert_gemm(x.double(), w.double(), offsets)
    assert len(calls) == 1


@pytest.mark.parametrize("without", [True, False])
def test_an_older_torch_has_no_grouped_product_and_gives_the_same(monkeypatch, without):
    if without:
        monkeypatch.delattr(torch.nn.functional, "grouped_mm", raising=False)
    x, w = draw(N, 8, dtype=torch.float32), draw(5, 8, 12, dtype=torch.float32, seed=1)
    offsets = offsets_of(torch.tensor([6, 0, 5, 2, 3]))
    close(expert_gemm(x, w, offsets), by_expert(x, w, offsets), 1e-6)
    dy = draw(N, 12, dtype=torch.float32, seed=2)
    dw = experts_eager.weight_gradient(x, dy, offsets)
    assert dw[1].abs().max() == 0
    close(dw[2], x[6:11].double().t() @ dy[6:11].double(), 1e-6)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("gathered", [2**26, 2 * D * F])
def test_row_tiles_give_what_the_loop_gives(spread, dtype, gathered, monkeypatch):
    """What a GPU without the kernel runs, with all weights at once and in small portions."""
    monkeypatch.setattr(experts_eager, "GATHERED", gathered)
    offsets = offsets_of(torch.tensor(SPREADS[spread]))
    x, w, dy = draw(N, D, dtype=dtype), draw(5, D, F, dtype=dtype), draw(N, F, dtype=dtype)
    spans = experts_eager.bounds(offsets, N)
    tolerance = 1e-13 if dtype == torch.float64 else 1e-3
    y = experts_eager._tiled_forward(x, w, offsets)
    close(y, experts_eager._looped_forward(x, w, spans), tolerance)
    assert y.is_contiguous()
    dw = experts_eager._tiled_gradient(x, dy, offsets)
    close(dw, experts_eager._looped_gradient(x, dy, spans), tolerance)


def test_row_tiles_never_ask_for_a_value():
    """Meta tensors have none: what runs on them cannot wait for a device."""
    x, w, dy = (torch.empty(s, device="meta") for s in ((N, D), (5, D, F), (N, F)))
    offsets = torch.empty(5, dtype=torch.int32, device="meta")
    assert experts_eager._tiled_forward(x, w, offsets).shape == (N, F)
    assert experts_eager._tiled_gradient(x, dy, offsets).shape == (5, D, F)


@pytest.mark.parametrize("values", [[3, 1, 9, 99, 12], [-4, 2, 2, 1, 23]])
def test_row_tiles_hold_offsets_that_a_gpu_cannot_refuse(values):
    offsets = torch.tensor(values)
    held = offsets.clamp(0, N).cummax(0).values
    x, w, dy = draw(N, D), draw(5, D, F), draw(N, F)
    close(experts_eager._tiled_forward(x, w, offsets), by_expert(x, w, held), 1e-13)
    dw = experts_eager._looped_gradient(x, dy, experts_eager.bounds(held, N))
    close(experts_eager._tiled_gradient(x, dy, offsets), dw, 1e-13)


def test_gradients_of_first_and_second_order():
    x, w = draw(7, 3).requires_grad_(), draw(4, 3, 5).requires_grad_()
    offsets = torch.tensor([2, 2, 5, 6])
    assert torch.autograd.gradcheck(expert_gemm, (x, w, offsets))
    assert torch.autograd.gradgradcheck(expert_gemm, (x, w, offsets))


def test_rows_for_nobody_are_zero_and_their_nan_goes_nowhere():
    x, w = draw(N, D), draw(5, D, F)
    x[13:] = float("nan")
    x, w = x.requires_grad_(), w.requires_grad_()
    y = expert_gemm(x, w, torch.tensor([3, 4, 4, 11, 13]))
    assert y[13:].abs().max() == 0
    (y * draw(N, 1)).sum().backward()
    assert x.grad[13:].abs().max() == 0
    assert torch.isfinite(w.grad).all() and w.grad[2].abs().max() == 0


def test_half_precision_sums_in_float32():
    x = torch.full((3, 96), 60000.0, dtype=torch.float16)
    x[:, 47:95] = -60000  # running sums pass 65504 by far; the true sum is 0
    y = expert_gemm(x, torch.ones(2, 96, 16, dtype=torch.float16), torch.tensor([1, 3]))
    assert y.abs().max() == 0
    y = expert_gemm(x[:, :2], torch.ones(2, 2, 16, dtype=torch.float16), torch.tensor([1, 3]))
    assert torch.isposinf(y).all()


class Watched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("of", "runs"), [("x", "gemm.default"), ("w", "gemm_dw.default")])
def test_only_the_gradient_that_is_asked_for_is_computed(of, runs):
    given = {"x": draw(N, D), "w": draw(5, D, F)}
    given[of].requires_grad_()
    y = expert_gemm(given["x"], given["w"], torch.tensor([4, 4, 9, 15, 20]))
    with Watched() as watch:
        y.sum().backward()
    assert [s for s in watch.seen if "expert" in s] == [f"labcore.expert_{runs}"]


def test_views_are_read_as_they_are():
    offsets = torch.tensor([4, 4, 9, 15, 20])
    flipped = draw(5, F, D).transpose(1, 2)
    spread, columns = draw(N, 2 * D)[:, ::2], draw(D, N).t()
    moved = draw(N * D + 1)[1:].reshape(N, D)
    for x in (spread, columns, moved):
        for w in (flipped, flipped.contiguous(), draw(D, F).expand(5, D, F)):
            close(expert_gemm(x, w, offsets), by_expert(x, w, offsets), 1e-13)


def test_gradients_that_are_expanded_or_transposed():
    offsets = torch.tensor([4, 4, 9, 15, 20])
    x, w = (m.float().requires_grad_() for m in (draw(N, 8), draw(5, 8, 12)))
    for dy in (torch.ones(()).expand(N, 12), draw(12, N).float().t(), draw(N, 1).float() + 0):
        dy = dy.expand(N, 12)
        found = torch.autograd.grad(expert_gemm(x, w, offsets), (x, w), dy)
        wanted = torch.autograd.grad(by_expert(x, w, offsets), (x, w), dy.double())
        for mine, theirs in zip(found, wanted, strict=True):
            close(mine, theirs, 1e-6)


@pytest.mark.parametrize("sizes", [(0, D, F, 5), (N, 0, F, 5), (N, D, 0, 5), (N, D, F, 0)])
def test_sizes_of_zero(sizes):
    rows, depth, width, experts = sizes
    x, w = draw(rows, depth).requires_grad_(), draw(experts, depth, width).requires_grad_()
    for form in FORMS.values():
        y = form(x, w, torch.zeros(experts, dtype=torch.int32))
        assert y.shape == (rows, width) and not y.abs().sum()
        dx, dw = torch.autograd.grad(y.sum(), (x, w), allow_unused=True, materialize_grads=True)
        assert dx.shape == x.shape and dw.shape == w.shape and not dx.abs().sum() + dw.abs().sum()


def test_inputs_stay_and_outputs_are_new():
    x, w, offsets = draw(N, D), draw(5, D, F), torch.tensor([4, 4, 9, 15, 20])
    before = [m.clone() for m in (x, w, offsets)]
    y = expert_gemm(x, w, offsets)
    assert y.is_contiguous() and y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert all(torch.equal(*pair) for pair in zip(before, (x, w, offsets), strict=True))


def samples():
    offsets = torch.tensor([4, 4, 9, 15, 20], dtype=torch.int32)
    x, w = draw(N, D, dtype=torch.float32), draw(5, D, F, dtype=torch.float32)
    dy = draw(N, F, dtype=torch.float32)
    return [
        (torch.ops.labcore.expert_gemm, (x, w, offsets)),
        (torch.ops.labcore.expert_gemm, (x, w.mT.contiguous().mT, offsets.long())),
        (torch.ops.labcore.expert_gemm_dw, (x, dy, offsets)),
    ]


@pytest.mark.parametrize("sample", range(3))
@pytest.mark.parametrize("needs", [False, True])
def test_the_operators_are_registered_as_torch_wants_it(sample, needs):
    op, (first, second, offsets) = samples()[sample]
    first, second = (m.detach().requires_grad_(needs) for m in (first, second))
    found = torch.library.opcheck(op, (first, second, offsets))
    assert set(found.values()) == {"SUCCESS"}


def test_meta_tensors_have_shapes_only():
    x, w = torch.empty(N, D, device="meta"), torch.empty(5, D, F, device="meta")
    y = expert_gemm(x, w, torch.empty(5, dtype=torch.int64, device="meta"))
    assert y.shape == (N, F) and y.device.type == "meta"


def test_one_graph_for_every_length():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    layer = torch.compile(expert_gemm, fullgraph=True, dynamic=True, backend=backend)
    w = draw(5, D, F)
    for rows in (23, 31, 47, 64):
        x, offsets = draw(rows, D), torch.tensor([4, 4, 9, 15, 20])
        close(layer(x, w, offsets), by_expert(x, w, offsets), 1e-13)
    assert len(graphs) == 1


def test_the_whole_compiler_takes_it_with_gradients():
    torch._dynamo.reset()
    layer = torch.compile(expert_gemm, fullgraph=True, backend="aot_eager")
    x, w, offsets = (
        draw(N, D).requires_grad_(),
        draw(5, D, F).requires_grad_(),
        torch.tensor([4] * 5),
    )
    found = torch.autograd.grad(layer(x, w, offsets).square().sum(), (x, w))
    wanted = torch.autograd.grad(by_expert(x, w, offsets).square().sum(), (x, w))
    for mine, theirs in zip(found, wanted, strict=True):
        close(mine, theirs, 1e-13)


class Layer(torch.nn.Module):
    def forward(self, x, w, offsets):
        return expert_gemm(x, w, offsets)


def test_export_checkpoint_and_inference_mode():
    x, w, offsets = draw(N, D).requires_grad_(), draw(5, D, F), torch.tensor([4, 4, 9, 15, 20])
    wanted = by_expert(x, w, offsets)
    program = torch.export.export(Layer(), (x, w, offsets))
    close(program.module()(x, w, offsets), wanted, 1e-13)
    y = checkpoint(expert_gemm, x, w, offsets, use_reentrant=False)
    close(*(torch.autograd.grad(m.sum(), x)[0] for m in (y, wanted)), 1e-13)
    with torch.inference_mode():
        close(expert_gemm(x, w, offsets), wanted, 1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_both_and_gives_gradients_of_each_dtype(dtype):
    x, w = draw(N, D, dtype=torch.float32), draw(5, D, F, dtype=torch.bfloat16)
    x, w = x.requires_grad_(), w.requires_grad_()
    offsets = torch.tensor([4, 4, 9, 15, 20])
    with torch.autocast("cpu", dtype=dtype):
        y = expert_gemm(x, w, offsets)
    assert y.dtype == dtype
    y.float().sum().backward()
    assert x.grad.dtype == torch.float32 and w.grad.dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=dtype):
        assert expert_gemm(x.double(), w.double(), offsets).dtype == torch.float64
        raw = torch.ops.labcore.expert_gemm(x, w.float(), offsets)
    assert raw.dtype == torch.float32  # the operator itself keeps what it was given


GOOD = {"x": draw(N, D), "w": draw(5, D, F), "offsets": torch.tensor([4, 4, 9, 15, 20])}
BAD = [
    ({"w": draw(5, D, F).float()}, TypeError, "x and w: got torch.float64 .* and torch.float32"),
    ({"x": [1.0]}, TypeError, "x and w: got .1.0."),
    ({"x": draw(N, D).long(), "w": draw(5, D, F).long()}, TypeError, "x and w"),
    ({"x": draw(N, D + 1)}, ValueError, r"x and w: got shapes \[23, 7\] and \[5, 6, 7\]"),
    ({"x": draw(2, N, D)}, ValueError, "x and w: got shapes"),
    ({"w": draw(D, F)}, ValueError, "x and w: got shapes"),
    ({"offsets": torch.tensor([4, 4, 9, 15])}, ValueError, r"offsets: got shape \[4\]"),
    ({"offsets": torch.tensor([4.0] * 5)}, TypeError, "offsets: got torch.float32"),
    ({"offsets": [4, 4, 9, 15, 20]}, TypeError, "offsets: got .4, 4"),
    ({"offsets": torch.tensor([4, 3, 9, 15, 20])}, ValueError, "offsets: got .*not decreasing"),
    ({"offsets": torch.tensor([-1, 3, 9, 15, 20])}, ValueError, "offsets: got .-1"),
    ({"offsets": torch.tensor([4, 4, 9, 15, 24])}, ValueError, "offsets: got .*23 rows"),
    ({"w": draw(5, D, F).to("meta")}, ValueError, "x, w and offsets: got devices cpu, meta"),
]


@pytest.mark.parametrize(("change", "error", "words"), BAD)
@pytest.mark.parametrize("form", FORMS)
def test_bad_input_is_refused_by_name(form, change, error, words):
    with pytest.raises(error, match=words):
        FORMS[form](**{**GOOD, **change})


@pytest.mark.parametrize("counts", [[1, 2], torch.tensor([1.5]), torch.tensor([[1]])])
def test_bad_counts_are_refused(counts):
    with pytest.raises(TypeError, match="counts"):
        offsets_of(counts)


def test_the_backend_is_told_and_limits_are_named():
    expert_gemm(**GOOD)
    assert why("expert_gemm") == "eager: the tensors are on cpu"
    with use("triton"), pytest.raises(ValueError, match="float64: the kernel sums in float32"):
        expert_gemm(**GOOD)
    x = torch.empty(2, 3, dtype=torch.float16)
    assert refusal(x, range(1025)) == "1025 experts, the kernel takes at most 1024"
    assert refusal(x, range(1024)) is None
    assert "2147483648 rows" in refusal(torch.empty(2**31, 1, device="meta"), [1])


def test_a_t4_is_not_given_bfloat16():
    from labcore.kernels.config import assume

    with assume(75):
        assert "8.0" in refusal(torch.empty(1, dtype=torch.bfloat16), [1])
        assert refusal(torch.empty(1, dtype=torch.float16), [1]) is None


def test_the_module_works_where_triton_cannot_be_imported():
    code = """
import sys
sys.modules["triton"] = None
import torch
from labcore.kernels.experts import expert_gemm
print(expert_gemm(torch.ones(2, 3), torch.ones(1, 3, 4), torch.tensor([1])).sum().item())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "12.0\n", ran.stderr


def test_functional_transforms_are_refused_not_wrong():
    w, offsets = GOOD["w"], GOOD["offsets"]
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: expert_gemm(x, w, offsets).sum())(GOOD["x"])
