"""Which encoder layers may a decoder layer read? Six wirings of cross-attention.

The encoder's layers give the memories M_1 … M_L; decoder layer i of L reads

last      M_L                                     (Vaswani et al. 2017, section 3.2.3)
same      M_i
parallel  Attn(M_L) + Attn(M_i), one set of weights for both
fine      head h reads M_((h mod L) + 1), heads counted from 0
full      all of M_1 … M_L, joined along the source axis: L·S keys
adaptive  Σ_j softmax(w_i)_j M_j, with learned w_i (zeros at first: the mean)

The names are those of the lecture and of work on such wirings (Liu et al. 2020); the formulas for
all but "last" are our reading of the names, not taken from a paper.
"""

import torch
from torch import nn

from labcore.attention import MultiHeadAttention, attend
from labcore.attention.scores import check_float
from labcore.shapes import ShapeError, require, whole

WIRINGS = ("last", "same", "parallel", "fine", "full", "adaptive")


def connections(wiring, layers):
    """Shares [L, L]: how much of what decoder layer i reads comes from memory j, untrained.

    "parallel" adds two readings of weight 1 each, which is what its rows add up to.

    >>> connections("parallel", 3).int().tolist()
    [[1, 0, 1], [0, 1, 1], [0, 0, 2]]
    """
    _check_wiring(wiring)
    whole("layers", layers)
    own, last = torch.eye(layers), torch.zeros(layers, layers)
    last[:, -1] = 1
    even = torch.full((layers, layers), 1 / layers)
    return {"last": last, "same": own, "parallel": own + last}.get(wiring, even)


class WiredAttention(nn.Module):
    """The cross-attention `attention` of decoder layer `layer` (from 0) of `layers`, rewired: x
    [B, T, D] reads `memories` [L, B, S, D]; outputs [B, T, D], with `need_weights` also weights.

    Weights are [B, H, T, S]; [B, H, T, L·S] for "full", where the first S keys are of M_1; for
    "parallel" the mean of the two readings.

    >>> from labcore.attention import MultiHeadAttention
    >>> reader = WiredAttention(MultiHeadAttention(12, 4), "full", layer=0, layers=3)
    >>> out, weights = reader(torch.ones(2, 5, 12), torch.ones(3, 2, 7, 12), need_weights=True)
    >>> list(out.shape), list(weights.shape)
    ([2, 5, 12], [2, 4, 5, 21])
    """

    def __init__(self, attention, wiring, layer, layers):
        super().__init__()
        _check_wiring(wiring)
        whole("layers", layers)
        require(whole("layer", layer, 0) < layers, "layer", layer, f"0 to {layers - 1}")
        told, ours = type(attention).__name__, isinstance(attention, MultiHeadAttention)
        require(ours, "attention", told, "a MultiHeadAttention", TypeError)
        self.wiring, self.layer, self.layers = wiring, layer, layers
        self.attention = attention
        self.mix = nn.Parameter(torch.zeros(layers)) if wiring == "adaptive" else None

    def forward(self, x, memories, mask=None, *, need_weights=False):
        check_float(memories, "memories")
        given = list(memories.shape)
        fits = memories.ndim == 4 and given[0] == self.layers
        require(fits, "memories", f"shape {given}", f"[L={self.layers}, B, S, D]", ShapeError)
        if self.wiring == "parallel":
            found = [
                self.attention(x, memory, mask, need_weights=need_weights)
                for memory in (memories[-1], memories[self.layer])
            ]
            if not need_weights:
                return found[0] + found[1]
            return found[0][0] + found[1][0], (found[0][1] + found[1][1]) / 2
        if self.wiring == "fine":
            return self._fine(x, memories, mask, need_weights)
        memory = self._one_memory(memories)
        if self.wiring == "full" and mask is not None:
            mask = mask.repeat(*[1] * (mask.ndim - 1), self.layers)
        return self.attention(x, memory, mask, need_weights=need_weights)

    def _one_memory(self, memories):
        """The one sequence that is read: [B, S, D], or [B, L·S, D] for "full"."""
        if self.wiring == "last":
            return memories[-1]
        if self.wiring == "same":
            return memories[self.layer]
        if self.wiring == "full":
            return torch.cat(memories.unbind(0), dim=1)
        return torch.einsum("l,lbsd->bsd", self.mix.softmax(0), memories)

    def _fine(self, x, memories, mask, need_weights):
        """Every head projects the memory that it reads, and only that one."""
        projected = [self.attention.project(x, memory) for memory in memories]
        chosen = [head % self.layers for head in range(self.attention.heads)]
        k = torch.stack([projected[j][1][:, head] for head, j in enumerate(chosen)], dim=1)
        v = torch.stack([projected[j][2][:, head] for head, j in enumerate(chosen)], dim=1)
        found = attend(projected[0][0], k, v, mask, need_weights=need_weights)
        if not need_weights:
            return self.attention.join(found)
        return self.attention.join(found[0]), found[1]


def _check_wiring(wiring):
    require(wiring in WIRINGS, "wiring", repr(wiring), ", ".join(map(repr, WIRINGS)))
