"""Which form runs: by device, capability, refusal, and by what was asked for."""

import subprocess
import sys
import threading

import pytest
import torch

from labcore.kernels import attention, dispatch, expert_gemm, use, why, window_attention
from labcore.kernels.dispatch import choose


class OnGpu:
    """As much of a CUDA tensor as the choice looks at."""

    device = torch.device("cuda", 1)


@pytest.fixture
def gpu(monkeypatch):
    """A machine with one GPU of each capability asked for."""

    def set_capability(major, minor, triton=True):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, minor))
        monkeypatch.setattr(dispatch, "_triton_there", lambda: triton)
        return OnGpu()

    return set_capability


@pytest.mark.parametrize(
    ("capability", "triton", "refusal", "runs", "told"),
    [
        ((9, 0), True, None, True, "triton: compute capability 9.0"),
        ((8, 0), True, None, True, "triton: compute capability 8.0"),
        ((7, 5), True, None, False, "eager: compute capability 7.5: torch's own"),
        ((9, 0), False, None, False, "eager: Triton is not installed"),
        ((9, 0), True, "width 8", False, "eager: width 8"),
    ],
)
def test_auto_never_raises_and_says_why(gpu, capability, triton, refusal, runs, told):
    assert choose("example", gpu(*capability, triton=triton), refusal) is runs
    assert why("example").startswith(told)
    assert why()["example"] == why("example")


def test_eager_is_eager_even_where_triton_would_run(gpu):
    with use("eager"):
        assert choose("example", gpu(9, 0)) is False
    assert why("example") == 'eager: asked for by use("eager")'
    assert choose("example", gpu(9, 0)) is True


def test_triton_runs_on_an_old_gpu_when_asked_for(gpu):
    with use("triton"):
        assert choose("example", gpu(7, 5)) is True


def test_triton_refuses_what_the_kernel_does_not_take(gpu):
    with use("triton"), pytest.raises(ValueError, match=r"example: .*width 8"):
        choose("example", gpu(9, 0), "width 8")


def test_triton_without_triton_or_gpu_is_a_clear_error(gpu, monkeypatch):
    with use("triton"), pytest.raises(RuntimeError, match="pip install"):
        choose("example", gpu(9, 0, triton=False))
    monkeypatch.setattr(dispatch, "_triton_there", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with use("triton"), pytest.raises(RuntimeError, match="tensors are on cpu"):
        choose("example", torch.zeros(1))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with use("triton"):
        assert choose("example", torch.zeros(1)) is True


def test_auto_on_the_cpu_is_eager_also_in_an_interpreting_process(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose("example", torch.zeros(1)) is False
    assert why("example") == "eager: the tensors are on cpu"


def test_use_nests_and_gives_back_after_an_error():
    with use("eager"), pytest.raises(KeyError), use("triton") as inner:
        assert inner == "triton"
        raise KeyError
    with use("eager"):
        with use("triton"):
            pass
        assert choose("example", torch.zeros(1)) is False
        assert 'use("eager")' in why("example")


def test_use_is_the_thread_s_own():
    seen = []
    with use("eager"):
        thread = threading.Thread(target=lambda: seen.append(dispatch._asked.get()))
        thread.start()
        thread.join()
    assert seen == ["auto"]


def _operators():
    """Each operator's name, and a call of it on inputs that need gradients."""
    q, x = torch.randn(3, 2, 5, 6, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    windows = torch.randn(3, 2, 16, 6, requires_grad=True)
    w, offsets = torch.randn(2, 4, 3, requires_grad=True), torch.tensor([2, 5])
    return {
        "attention": lambda: attention(q, q, q)[0],
        "window_attention": lambda: window_attention(windows, windows, windows),
        "expert_gemm": lambda: expert_gemm(x, w, offsets),
        "expert_gemm_dw": lambda: expert_gemm(x, w, offsets),
    }


@pytest.mark.parametrize("operator", _operators())
def test_backward_in_another_thread_keeps_the_backend_of_its_forward(operator):
    with use("eager"):
        loss = _operators()[operator]().sum()
    dispatch._reasons.clear()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert why(operator) == 'eager: asked for by use("eager")'


@pytest.mark.parametrize("bad", ["cuda", "", None, True, ["eager"]])
def test_unknown_backends_are_refused(bad):
    with pytest.raises(ValueError, match=r"backend: got .*; allowed: 'auto', 'eager', 'triton'"):
        use(bad)


def test_importing_the_package_imports_no_triton():
    code = "import sys, labcore.kernels; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_package_works_where_triton_cannot_be_imported():
    code = """
import importlib.util, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'triton':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == 'triton' else real(name, *rest)
import torch
from labcore.kernels import use, why
from labcore.kernels.dispatch import choose
assert choose('example', torch.zeros(1)) is False
try:
    with use('triton'):
        choose('example', torch.zeros(1))
except RuntimeError as error:
    assert 'not installed' in str(error)
else:
    raise SystemExit('no error')
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
