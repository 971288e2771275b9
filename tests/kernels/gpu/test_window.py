"""The window kernels on a GPU: numbers, bits, devices, and what surrounds an operator there."""

import math

import pytest
import torch

from labcore.kernels import use, why
from labcore.kernels.window import (
    window_attention,
    window_attention_eager,
    window_attention_forward,
)
from tests.kernels.window_cases import draw, gradients, leaves, packed, relative_error, some_mask

pytestmark = pytest.mark.gpu
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
NAMES = ("o", "dq", "dk", "dv", "dbias")


def case(windows, heads, tokens, width, dtype, bias=torch.float32):
    q, k, v = (x.cuda() for x in packed(windows, heads, tokens, width, dtype))
    bias = None if bias is None else draw(2, heads, tokens, tokens, dtype=bias).cuda()
    upstream = draw(3, windows, heads, tokens, width, dtype=dtype).cuda()
    return leaves(q, k, v, bias), upstream


def run(inputs, mask, upstream, backend="triton"):
    with use(backend):
        out = window_attention(*inputs, mask)
        found = [out.detach(), *gradients(out, upstream, *inputs)]
    assert why("window_attention").startswith(backend)
    return found


def check(inputs, mask, upstream):
    wide = leaves(*(None if x is None else x.detach().double() for x in inputs))
    out = window_attention_eager(*wide, mask)
    wanted = [out.detach(), *gradients(out, upstream.double(), *wide)]
    found = run(inputs, mask, upstream)
    for name, one, other in zip(NAMES, found, wanted, strict=False):
        error = relative_error(one, other)
        assert error <= TOLERANCE[inputs[0].dtype], f"{name}: {error}"
    return found


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [16, 24, 30, 32, 48, 64])
@pytest.mark.parametrize("tokens", [16, 25, 49, 64, 81, 144])
def test_every_window_and_width(tokens, width, dtype):
    inputs, upstream = case(24, 3, tokens, width, dtype)
    check(inputs, some_mask(bool, tokens, 4).cuda(), upstream)


@pytest.mark.parametrize("kind", [None, -100.0, -math.inf])
@pytest.mark.parametrize("bias", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [49, 144])
def test_every_bias_and_mask(tokens, bias, kind):
    inputs, upstream = case(24, 3, tokens, 32, torch.float16, bias)
    mask = some_mask(kind, tokens, 4)
    check(inputs, None if mask is None else mask.cuda(), upstream)


@pytest.mark.parametrize("windows", [1, 7, 64 * 131])
def test_few_windows_and_many(windows):
    inputs, upstream = case(windows, 2, 49, 32, torch.bfloat16)
    check(inputs, None, upstream)


@pytest.mark.parametrize("tokens", [49, 144])
def test_two_runs_give_the_same_bits(tokens):
    inputs, upstream = case(512, 3, tokens, 32, torch.bfloat16)
    mask = some_mask(bool, tokens, 64).cuda()
    first, second = (run(inputs, mask, upstream) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_upstream_gradients_of_any_stride_and_views_that_start_late():
    inputs, upstream = case(24, 3, 49, 32, torch.float16)
    late = torch.zeros(inputs[0].numel() + 1, dtype=torch.float16, device="cuda")[1:]
    late = late.view(inputs[0].shape).copy_(inputs[0].detach())
    for grad in (upstream.mT.contiguous().mT, upstream[:1, :1, :1, :1].expand_as(upstream)):
        check(leaves(late, *inputs[1:]), None, grad)


def test_strides_beyond_32_bits():
    far = 2**31 + 4096
    q = torch.empty(far + 4096, dtype=torch.float16, device="cuda").as_strided(
        (2, 1, 16, 16), (far, 256, 16, 1)
    )
    q.copy_(draw(0, 2, 1, 16, 16).half())
    inputs, upstream = case(2, 1, 16, 16, torch.float16)
    check(leaves(q, *inputs[1:]), None, upstream)


def test_auto_takes_the_kernel_and_the_operator_keeps_the_rules():
    inputs, _ = case(8, 2, 49, 32, torch.float16)
    window_attention(*inputs)
    capability = torch.cuda.get_device_capability()
    assert why("window_attention").startswith("triton" if capability >= (8, 0) else "eager")
    mask = some_mask(bool, 49, 4).cuda()
    torch.library.opcheck(window_attention_forward, (*inputs, mask, 0.5))


def test_a_compiled_function_and_a_graph_replay_give_the_same():
    inputs, _ = case(64, 3, 49, 32, torch.float16)
    plain = [x.detach() for x in inputs]
    wanted = window_attention(*plain)
    fast = torch.compile(window_attention, fullgraph=True)
    assert torch.equal(fast(*plain), wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = window_attention(*plain)
    graph.replay()
    assert torch.equal(out, wanted)


def test_autocast():
    inputs, upstream = case(8, 2, 49, 32, torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        out = window_attention(*inputs)
    assert out.dtype == torch.bfloat16
    found = gradients(out, upstream.bfloat16(), *inputs)
    assert {x.dtype for x in found} == {torch.float32}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_current_device_does_not_matter():
    inputs, upstream = case(8, 2, 49, 32, torch.float16)
    there = leaves(*(x.detach().to("cuda:1") for x in inputs))
    with torch.cuda.device(0):
        found = run(there, None, upstream.to("cuda:1"))
    for one, other in zip(found, run(inputs, None, upstream), strict=True):
        assert torch.equal(one.to("cuda:0"), other)
