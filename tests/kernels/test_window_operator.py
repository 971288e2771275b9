"""Window attention as an operator of torch: its rules, compilers, autocast, and its backends."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from labcore.kernels import use, why
from labcore.kernels.window import (
    window_attention,
    window_attention_backward,
    window_attention_forward,
)
from tests.kernels.window_cases import (
    MM,
    WINDOWS,
    H,
    K,
    close,
    draw,
    gradients,
    leaves,
    packed,
    some_mask,
)


def sample(dtype=torch.float64, kind=bool):
    inputs = leaves(*packed(dtype=dtype), draw(2, H, MM, MM, dtype=dtype))
    return (*inputs, some_mask(kind), 0.7)


@pytest.mark.parametrize("kind", [None, bool, -100.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_operators_keep_the_rules_of_operators(dtype, kind):
    arguments = sample(dtype, kind)
    torch.library.opcheck(window_attention_forward, arguments)
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments]
    for need_bias in (False, True):
        upstream = torch.ones(WINDOWS, MM, H, K, dtype=dtype)
        torch.library.opcheck(window_attention_backward, (upstream, *plain, need_bias))
    torch.library.opcheck(window_attention_forward, (*arguments[:3], None, None, 0.7))


def test_shapes_are_known_without_data():
    q, k, v, bias = (x.detach().to("meta") for x in sample()[:4])
    out = window_attention(q, k, v, bias, some_mask(bool).to("meta"))
    assert (out.device.type, list(out.shape)) == ("meta", [WINDOWS, H, MM, K])


def test_one_graph_serves_every_number_of_windows():
    torch._dynamo.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    def run(q, k, v, bias, mask):
        return window_attention(q, k, v, bias, mask).sum(-1)

    fast = torch.compile(run, backend=count, fullgraph=True, dynamic=True)
    bias, mask = draw(2, H, MM, MM), some_mask(bool)
    for windows in (6, 9, 12, 15):
        q, k, v = packed(windows)
        close(fast(q, k, v, bias, mask), run(q, k, v, bias, mask))
    assert len(graphs) == 1


def test_a_compiled_function_trains():
    torch._dynamo.reset()
    inputs, mask = leaves(*packed(), draw(2, H, MM, MM)), some_mask(bool)
    fast = torch.compile(window_attention, backend="aot_eager", fullgraph=True)
    upstream = draw(3, WINDOWS, H, MM, K)
    found = gradients(fast(*inputs, mask), upstream, *inputs)
    for one, other in zip(
        found, gradients(window_attention(*inputs, mask), upstream, *inputs), strict=True
    ):
        close(one, other)


class Layer(torch.nn.Module):
    def forward(self, q, k, v, bias):
        return window_attention(q, k, v, bias)


def test_it_exports_and_runs_again():
    inputs = (*packed(), draw(2, H, MM, MM))
    windows = {0: torch.export.Dim("windows", min=2)}
    shapes = {"q": windows, "k": windows, "v": windows, "bias": None}
    program = torch.export.export(Layer(), inputs, dynamic_shapes=shapes)
    other = (*packed(4), inputs[3])
    close(program.module()(*other), window_attention(*other))


def test_checkpoint_and_inference_mode_change_nothing():
    inputs = leaves(*packed(), draw(2, H, MM, MM))
    out = window_attention(*inputs)
    again = checkpoint(window_attention, *inputs, use_reentrant=False)
    found, wanted = (gradients(x, torch.ones_like(x), *inputs) for x in (again, out))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    with torch.inference_mode():
        assert torch.equal(window_attention(*inputs), out)


def test_autocast_casts_what_is_multiplied_and_nothing_else():
    q, k, v = packed(dtype=torch.float32)
    bias = draw(2, H, MM, MM, dtype=torch.float32).requires_grad_()
    inputs = leaves(q, k, v)
    with torch.autocast("cpu", torch.bfloat16):
        out = window_attention(*inputs, bias)
        mixed = window_attention(q.bfloat16(), k, v, bias)
    plain = window_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), bias)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, plain) and torch.equal(mixed, plain)
    found = gradients(out, torch.ones_like(out), *inputs, bias)
    assert {x.dtype for x in found} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        assert window_attention(q.double(), k.double(), v.double()).dtype == torch.float64


def test_the_backend_can_be_asked_for():
    q, k, v = packed()
    window_attention(q, k, v)
    assert why("window_attention") == "eager: the tensors are on cpu"
    with use("eager"):
        window_attention(q, k, v)
    assert why("window_attention") == 'eager: asked for by use("eager")'
    with use("triton"), pytest.raises(ValueError, match="float64; the kernels take"):
        window_attention(q, k, v)
    with use("triton"), pytest.raises(ValueError, match="windows of 169 tokens"):
        window_attention(*packed(1, 1, 169, 8, torch.float32))
    with use("triton"), pytest.raises(ValueError, match="heads of width 72"):
        window_attention(*packed(1, 1, 16, 72, torch.float32))
