"""Which form of an operator runs, and why: one decision for all of them, and a record of it."""

import contextvars
import importlib.util
import os

import torch

from labcore.kernels.config import capability
from labcore.shapes import require

BACKENDS = ("auto", "eager", "triton")
# Older GPUs have no tensor-core path in Triton; torch's own kernels are faster there.
OLDEST = 80

_asked = contextvars.ContextVar("labcore_kernels_backend", default="auto")
_reasons = {}


class use:
    """Sets the backend of this thread, at once, and takes it back where it ends a `with` block.

    "auto" takes Triton where it is faster and can run, and never raises; "eager" runs plain torch;
    "triton" runs the kernel or raises: ValueError for a call that the kernel does not take,
    RuntimeError for a machine that cannot run it. Raises ValueError for any other name.

    >>> with use("eager") as backend:
    ...     backend
    'eager'
    """

    def __init__(self, backend):
        require(backend in BACKENDS, "backend", repr(backend), ", ".join(map(repr, BACKENDS)))
        self._token = _asked.set(backend)

    def __enter__(self):
        return _asked.get()

    def __exit__(self, *_):
        _asked.reset(self._token)


def why(operator=None):
    """The reason for the form that ran last: one sentence, or {operator: sentence} for all.

    >>> why("attention that never ran")
    'not called yet'
    """
    if operator is None:
        return dict(_reasons)
    return _reasons.get(operator, "not called yet")


def choose(operator, x, refusal=None):
    """True when Triton runs this call of `operator` on the device of `x`, False for the eager form.

    `refusal` says why the kernel cannot take the call (a width, a dtype), or is None.
    """
    asked = _asked.get()
    obstacle = None if asked == "eager" else _obstacle(x)
    if asked == "triton":
        if refusal:
            raise ValueError(f'{operator}: use("triton") cannot run this call: {refusal}')
        if obstacle:
            raise RuntimeError(f'{operator}: use("triton") cannot run here: {obstacle}')
        return _note(operator, True, 'asked for by use("triton")')
    if asked == "eager":
        return _note(operator, False, 'asked for by use("eager")')
    if x.device.type != "cuda":
        return _note(operator, False, f"the tensors are on {x.device.type}")
    if obstacle or refusal:
        return _note(operator, False, obstacle or refusal)
    if (found := capability(x)) < OLDEST:
        told = f"compute capability {found // 10}.{found % 10}: torch's own kernel is faster there"
        return _note(operator, False, told)
    return _note(operator, True, f"compute capability {found // 10}.{found % 10}")


def register_gradient(operator, backward, *, setup_context):
    """Registers `backward(ctx, *grads)` of a custom operator, under the backend of its forward.

    On a GPU autograd calls it in a thread of its own, where `use` was never said.
    """

    def keep(ctx, inputs, output):
        ctx.backend = _asked.get()
        setup_context(ctx, inputs, output)

    def run(ctx, *grads):
        with use(ctx.backend):
            return backward(ctx, *grads)

    operator.register_autograd(run, setup_context=keep)


def interpreting():
    """Whether Triton's interpreter was asked for: kernels then run on the CPU, in NumPy."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _obstacle(x):
    """Why no kernel at all can run on the device of `x`, or None."""
    if not _triton_there():
        return 'Triton is not installed: pip install "transformer-labcore[triton]" (Linux)'
    if x.device.type == "cuda" or (x.device.type == "cpu" and interpreting()):
        return None
    return f"the tensors are on {x.device.type}, and Triton's kernels need a CUDA device"


def _triton_there():
    return importlib.util.find_spec("triton") is not None


def _note(operator, triton, reason):
    # Under a compiler's trace the sizes are symbols and nothing runs: the real call notes itself.
    if not torch.compiler.is_compiling():
        _reasons[operator] = f"{'triton' if triton else 'eager'}: {reason}"
    return triton
