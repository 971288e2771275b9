"""The table that turns a token id into a vector."""

import torch
from torch import nn

from labcore.shapes import number, require, whole


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


def check_ids(ids, name, count):
    """None, or an error unless `ids` is an int64 or int32 tensor of values 0 … count - 1.

    The range is checked on the CPU only: on a GPU it would wait for the device, which reports a
    bad index itself.

    >>> check_ids(torch.tensor([3]), "ids", 3)
    Traceback (most recent call last):
    ValueError: ids: got values 3 to 3; allowed: values 0 to 2
    """
    given = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
    whole = given in (torch.int64, torch.int32)
    allowed = "an int64 or int32 tensor"
    require(whole, name, given=given, allowed=allowed, error=TypeError)
    if ids.device.type == "cpu" and ids.numel():
        low, high = int(ids.min()), int(ids.max())
        inside = low >= 0 and high < count
        require(inside, name, f"values {low} to {high}", f"values 0 to {count - 1}")
