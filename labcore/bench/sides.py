"""The other sides of the kernel rows: what torch offers for the same work, each under its name."""

import functools
import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from labcore.bench.harness import backward_only

BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cuDNN": "CUDNN_ATTENTION",
    "math": "MATH",
}


class NotThere(Exception):
    """This device or this version does not have a side; the message says why."""


class Side(NamedTuple):
    """One other side. `make()` gives its function, or raises with the reason why it is not there.

    With a `share` the side is a yardstick and no competitor: that share of its time is what ours is
    held against, and its result is not compared.
    """

    make: Callable
    share: float | None = None


def reason(error, told=()):
    """One line on why a side is not there: the exception, and the warnings that came with it.

    >>> reason(RuntimeError("No available kernel.  Aborting execution."))
    'RuntimeError: No available kernel'
    >>> reason(NotThere("it came with 2.10"))
    'it came with 2.10'
    """
    # torch says in its warnings why a backend refuses, and adds where in its own source that is.
    said = [re.sub(r"\(Triggered internally.*", "", str(w.message), flags=re.S) for w in told]
    texts = [re.split(r"\. |\.?\s*\n|\.?$", text.strip())[0] for text in (str(error), *said)]
    kind = [] if isinstance(error, NotThere) else [type(error).__name__]
    words = [text.strip() for text in texts if text.strip() and not text.endswith("because:")]
    return ": ".join(kind + ["; ".join(dict.fromkeys(words))[:300]]).rstrip(": ")


def tried(side):
    """(function, its result, None) of a side that runs here, or (None, None, why it does not)."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            function = side.make()
            return function, function(), None
        except Exception as error:  # whatever keeps a side from running is its reason
            return None, None, reason(error, told)


def ready(function, inputs=None):
    """`function` without gradients, or with `inputs` its backward pass alone."""
    return torch.no_grad()(function) if inputs is None else backward_only(function, inputs)


def sdpa(q, k, v, name="SDPA", mask=None, shape=None, inputs=None, **options):
    """Sides by name: `F.scaled_dot_product_attention` on each of its backends.

    `mask()` gives the additive mask of each call, `shape` what the result is viewed as.
    """

    def run(backend):
        from torch.nn.attention import sdpa_kernel

        with sdpa_kernel([backend]):
            made = None if mask is None else mask()
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=made, **options)
        return out if shape is None else out.reshape(shape)

    def make(member):
        from torch.nn.attention import SDPBackend

        if not hasattr(SDPBackend, member):
            raise NotThere(f"torch {torch.__version__} has no such backend")
        return ready(functools.partial(run, getattr(SDPBackend, member)), inputs)

    return {
        f"{name} {words}": Side(functools.partial(make, member))
        for words, member in BACKENDS.items()
    }


def flex(q, k, v, causal=False, window=None, inputs=None):
    """One side: FlexAttention compiled for these very sizes, which is its best case."""

    def visible(b, h, t, s):
        seen = s <= t
        return seen if window is None else seen & (s > t - window)

    def make():
        if not q.is_cuda:
            raise NotThere("it is compiled on CUDA only")
        from torch._functorch import config
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch.compiler.reset()  # at most eight sizes of one function stay compiled
        T, S = q.shape[2], k.shape[2]
        mask = create_block_mask(visible, None, None, T, S, device=q.device) if causal else None
        compiled = torch.compile(flex_attention, dynamic=False)
        call = functools.partial(compiled, q, k, v, block_mask=mask)
        # A backward pass that may reuse its saved buffers could run only once.
        with config.patch(donated_buffer=False):
            function = ready(call, inputs)
            function()
        return function

    return {"FlexAttention": Side(make)}


def swin(q, k, v, bias, mask, inputs=None):
    """One side: window attention in the plain operations that Swin's own layer uses."""
    N, H, MM, K = q.shape

    def run():
        scores = (q * K**-0.5) @ k.transpose(-2, -1) + bias
        if mask is not None:
            R = mask.shape[0]
            scores = (scores.view(N // R, R, H, MM, MM) + mask[:, None]).view(N, H, MM, MM)
        return scores.softmax(-1) @ v

    return {"eager Swin": Side(lambda: ready(run, inputs))}


def sdpa_mask(q, k, v, bias, mask, inputs=None):
    """Sides by name: SDPA with bias and mask as one additive mask, on each backend.

    Images become the batch and (window, head) the heads, so that one mask serves all images. For
    the forward pass it is made before, with rows that begin at multiples of 16 bytes, as the
    backends want it; for the backward pass it is made anew, because the bias needs its gradient.
    """
    N, H, MM, K = q.shape
    R = mask.shape[0]
    q, k, v = (x.reshape(N // R, R * H, MM, K) for x in (q, k, v))

    def together():
        return (bias + mask[:, None]).view(1, R * H, MM, MM).expand(N // R, -1, -1, -1)

    padded = F.pad((bias + mask[:, None]).detach().view(1, R * H, MM, MM), (0, -MM % 8))[..., :MM]
    ready_made = padded.expand(N // R, -1, -1, -1)
    made = together if inputs else lambda: ready_made
    return sdpa(q, k, v, name="SDPA + mask", mask=made, shape=(N, H, MM, K), inputs=inputs)


def grouped(x, w, offsets, inputs=None):
    """One side: torch's grouped matrix product, which takes the same ends of the experts' rows."""

    def make():
        product = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
        if product is None:
            raise NotThere(f"torch {torch.__version__} has none; it came with 2.10")
        return ready(functools.partial(product, x, w, offs=offsets.int()), inputs)

    return {"F.grouped_mm": Side(make)}


def loop(x, w, counts, inputs=None):
    """One side: a Python loop over the experts, which knows the counts without asking the device.

    The parts are put together by one `cat`: writing into a buffer would copy it in the backward
    pass.
    """

    def run():
        parts = x.split(counts)
        return torch.cat([rows @ w[expert] for expert, rows in enumerate(parts)])

    return {"loop over experts": Side(lambda: ready(run, inputs))}
