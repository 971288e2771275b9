"""Rows of beam search against greedy decoding: what k prefixes cost instead of one.

Both sides run the same model with a cache and write the same number of tokens, so the ratio, greedy
time over beam time, is the inverse of what the beam costs. With k = 1 both write the same text, and
what is left is the price of the search itself: ranking k·|V| scores, and moving the caches' rows.
"""

import functools

import torch

from labcore.bench.decode import LLAMA, NEW, PROMPT, SIZES
from labcore.bench.registry import row
from labcore.decode import beam_search, greedy
from labcore.decode.cached import CachedScore
from labcore.models.gpt import GPT, GPTConfig

BEAMS = (1, 2, 4, 8)


def model_on(device):
    """A GPT with Llama's switches and random weights, the size of the rows on cached decoding."""
    torch.manual_seed(0)
    return GPT(GPTConfig(**SIZES, **LLAMA)).to(device).eval()


def prompt_on(batch, device):
    """Random ids [B, T]."""
    draw = torch.Generator().manual_seed(1)
    return torch.randint(1, SIZES["vocabulary"], (batch, PROMPT), generator=draw).to(device)


def with_cache(model, prompt, k=1):
    """The score of `model` with an empty cache for k rows a prompt."""
    return CachedScore(model, model.new_cache(len(prompt) * k, PROMPT + NEW))


def greedily(model, prompt):
    """Ids [B, NEW] that greedy decoding writes behind the prompt."""
    score = with_cache(model, prompt)
    return greedy(score, prompt, eos=None, pad=0, max_new_tokens=NEW)[:, PROMPT:]


def searched(model, prompt, k):
    """Ids [B, NEW] of the best of k hypotheses behind each prompt."""
    score = with_cache(model, prompt, k)
    found = beam_search(score, prompt, beam=k, max_new_tokens=NEW).hypotheses
    return torch.tensor([best[0].ids for best in found], device=prompt.device)


def _pair(k, batch, device):
    model, prompt = model_on(device), prompt_on(batch, device)
    ours = functools.partial(searched, model, prompt, k)
    return ours, functools.partial(greedily, model, prompt)


def _register():
    for batch, beams in ((1, BEAMS), (8, (4,))):
        for k in beams:
            title = f"beam {k}, cached, 2 layers, width 256, prompt {PROMPT}, {NEW} new,"
            same = {"tolerance": 0.0 if k == 1 else None}
            build = functools.partial(_pair, k, batch)
            row("beam", f"{title} batch {batch}", against="greedy decoding", **same)(build)


_register()
