"""Seeds, device choice and what is said of the machine."""

import random
import subprocess
import sys

import numpy
import pytest
import torch

import labcore
from labcore import runtime


def test_one_seed_governs_every_generator():
    def draw():
        generator = runtime.seed_everything(7)
        drawn = torch.rand(2, generator=generator), torch.rand(2), numpy.random.rand(2)
        return [x.tolist() for x in drawn] + [random.random()]

    assert draw() == draw()
    assert draw() != [runtime.seed_everything(8)]


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "3", None])
def test_bad_seeds_are_named(seed):
    with pytest.raises(ValueError, match="seed: got"):
        runtime.seed_everything(seed)


def test_device_refuses_cuda_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.device() == torch.device("cpu")
    with pytest.raises(ValueError, match='prefer: got "cuda" on a machine without CUDA'):
        runtime.device("cuda")
    with pytest.raises(ValueError, match="prefer: got 'tpu'"):
        runtime.device("tpu")


def test_describe_tells_device_and_versions():
    text = runtime.describe()
    assert "GPU:" in text and f"torch {torch.__version__}" in text
    assert set(runtime.versions()) >= {"python", "torch", "numpy", "transformer-labcore"}


def test_the_driver_is_told_where_it_can_be_asked(monkeypatch):
    def asked(command, **options):
        assert command[0] == "nvidia-smi"
        return subprocess.CompletedProcess(command, 0, stdout="575.57.08\n575.57.08\n")

    monkeypatch.setattr(runtime.subprocess, "run", asked)
    assert runtime._driver.__wrapped__() == "575.57.08"
    for error in (FileNotFoundError(), subprocess.CalledProcessError(9, "nvidia-smi")):
        monkeypatch.setattr(runtime.subprocess, "run", lambda *a, e=error, **o: raise_it(e))
        assert runtime._driver.__wrapped__() is None


def raise_it(error):
    raise error


def test_importing_the_package_is_light_and_silent():
    code = "import sys, labcore; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False False\n", "")


def test_unknown_parts_are_named():
    assert "attention" in dir(labcore)
    with pytest.raises(AttributeError, match="no part 'nothing'"):
        _ = labcore.nothing
