"""Listen, Attend and Spell in small: a recurrent encoder that shortens time, and soft alignment.

Listener: a bidirectional LSTM, then `levels` more, each of which reads pairs of neighbouring
states: (T, D) → (T/2, 2D) (Chan et al. 2016, section 3.1). Speller: an LSTM cell that, before each
character, asks the listener's states with its own state and gets their weighted mean.

Deviations: scores are plain dot products of two projections, the paper's pass through small
networks; the speller is one cell, the paper's two; an odd last frame is paired with zeros.
"""

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention import attend
from labcore.attention.scores import check_float, check_input
from labcore.shapes import ShapeError, check_ids, flag, number, require, whole


def halve(frames):
    """Frames [B, T, D] as pairs of neighbours, [B, ⌈T/2⌉, 2D]; an odd last one is paired with 0.

    >>> list(halve(torch.zeros(3, 40, 6)).shape), list(halve(torch.zeros(3, 5, 6)).shape)
    ([3, 20, 12], [3, 3, 12])
    """
    check_float(frames, "frames")
    fits = frames.ndim == 3
    require(fits, "frames", f"shape {list(frames.shape)}", "[B, T, D]", error=ShapeError)
    even = F.pad(frames, (0, 0, 0, frames.shape[1] % 2))
    return even.unflatten(1, (-1, 2)).flatten(2)


class Listener(nn.Module):
    """States [B, ⌈S/2^levels⌉, D] of frames [B, S, features]; D must be even.

    >>> list(Listener(6, 12, levels=3)(torch.zeros(3, 40, 6)).shape)
    [3, 5, 12]
    """

    def __init__(self, features, width, levels=3):
        super().__init__()
        whole("features", features), whole("levels", levels, 0)
        even = whole("width", width, 2) % 2 == 0
        require(even, "width", given=width, allowed="an even whole number of at least 2")
        sizes = [features] + [2 * width] * levels
        self.layers = nn.ModuleList(
            nn.LSTM(size, width // 2, batch_first=True, bidirectional=True) for size in sizes
        )

    def forward(self, frames):
        check_input(frames, "frames", self.layers[0].weight_ih_l0)
        given, features = f"shape {list(frames.shape)}", frames.shape[-1]
        fits = frames.ndim == 3 and frames.shape[1] >= 1
        require(fits, "frames", given, f"[B, S, {features}] with S ≥ 1", ShapeError)
        states, _ = self.layers[0](frames)
        for layer in self.layers[1:]:
            states, _ = layer(halve(states))
        return states


class ListenAttendSpell(nn.Module):
    """Logits [B, T, Y] for frames [B, S, features] and the characters before each, ids [B, T];
    with `need_weights` also the alignment [B, T, ⌈S/2^levels⌉].

    >>> model = ListenAttendSpell(6, 10, width=12, levels=2)
    >>> frames, before = torch.zeros(3, 40, 6), torch.zeros(3, 5, dtype=torch.long)
    >>> [list(part.shape) for part in model(frames, before, need_weights=True)]
    [[3, 5, 10], [3, 5, 10]]
    """

    def __init__(self, features, vocabulary, width=32, levels=3):
        super().__init__()
        whole("vocabulary", vocabulary)
        self.listener = Listener(features, width, levels)
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.LSTMCell(2 * width, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.output = nn.Linear(2 * width, vocabulary)

    def forward(self, frames, before, need_weights=False):
        check_ids(before, "before", self.output.out_features, "B T")
        flag("need_weights", need_weights)
        heard = self.listener(frames)
        rows, fits = f"{len(before)} rows", len(before) == len(heard) and before.shape[1] >= 1
        require(fits, "before", rows, f"{len(heard)}, as frames, and T ≥ 1", ShapeError)
        keys = self.key(heard)
        B, width = len(heard), heard.shape[-1]
        context = state = memory = heard.new_zeros(B, width)
        logits, rows = [], []
        for embedded in self.embedding(before).unbind(1):
            state, memory = self.cell(torch.cat([embedded, context], -1), (state, memory))
            query = self.query(state)[:, None]
            found, weights = attend(query, keys, heard, need_weights=True)
            context = found[:, 0]
            logits.append(self.output(torch.cat([state, context], -1)))
            rows.append(weights[:, 0])
        logits = torch.stack(logits, dim=1)
        return (logits, torch.stack(rows, dim=1)) if need_weights else logits


def spoken(texts, alphabet=10, features=12, frames=8, noise=0.3, seed=0):
    """Frames [B, S, features] of texts, int ids [B, T]: every character is a fixed random vector
    that lasts `frames` frames, with noise added. S = frames · T.

    >>> list(spoken(torch.tensor([[1, 2, 0]])).shape)
    [1, 24, 12]
    """
    for name, size in (("alphabet", alphabet), ("features", features), ("frames", frames)):
        whole(name, size)
    number("noise", noise, least=0), whole("seed", seed, 0)
    check_ids(texts, "texts", alphabet, "B T")
    voice = torch.Generator().manual_seed(2024)  # how each character sounds, for every seed
    sounds = torch.randn(alphabet, features, generator=voice)
    heard = sounds[texts].repeat_interleave(frames, dim=1)
    drawn = torch.Generator().manual_seed(seed)
    return heard + noise * torch.randn(heard.shape, generator=drawn)
