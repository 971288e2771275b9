"""The table that turns a token id into a vector."""

import torch
from torch import nn

from labcore.shapes import check_ids, number, whole


class TokenEmbedding(nn.Module):
    """Row `ids[b, t]` of a table [Y, D] for every id: vectors [..., D] of ids [...].

    `scale` multiplies the rows; the Transformer uses √D (Vaswani et al. 2017, section 3.4), BERT 1.

    >>> list(TokenEmbedding(10, 6)(torch.tensor([[1, 2, 9], [0, 0, 3]])).shape)
    [2, 3, 6]
    """

    def __init__(self, vocabulary, width, *, scale=1.0):
        super().__init__()
        whole("vocabulary", vocabulary), whole("width", width)
        self.scale = number("scale", scale)
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))

    def forward(self, ids):
        check_ids(ids, "ids", self.weight.shape[0])
        rows = nn.functional.embedding(ids, self.weight)
        return rows if self.scale == 1.0 else rows * self.scale
