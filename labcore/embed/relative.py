"""T5's position code: a learned number for each distance and head, added to the scores.

Raffel et al. 2020, section 2.1. Distances share buckets: near ones have a bucket each, farther ones
share wider and wider buckets (logarithmically), all beyond `max_distance` the last one. In both
directions half of the buckets are for keys after the query; a causal decoder has no such keys and
gives all buckets to the past.
"""

import math

import torch
from torch import nn

from labcore.shapes import flag, require, whole

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def relative_bucket(distance, buckets=32, max_distance=128, *, both=True):
    """Bucket numbers 0 … buckets - 1 of distances, key position minus query position, any shape.

    `both` says whether keys after the query count; if not they fall into bucket 0, like distance 0.
    The logarithm is taken in float32, as in the published code: bucket borders depend on it.

    >>> relative_bucket(torch.tensor([-20, -3, 0, 3, 20])).tolist()
    [10, 3, 0, 19, 26]
    >>> relative_bucket(torch.tensor([-20, -3, 0, 3, 20]), both=False).tolist()
    [17, 3, 0, 0, 0]
    """
    _check(distance, buckets, max_distance, both)
    side = buckets // 2 if both else buckets
    exact = side // 2
    # 64 bits with room: the negative of the smallest number of a type would not fit into it.
    distance = distance.long().clamp(-(2**31), 2**31)
    start = (distance > 0).long() * side if both else torch.zeros_like(distance)
    size = distance.abs() if both else (-distance).clamp(min=0)
    growth = torch.log(size.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (growth * (side - exact)).long()).clamp(max=side - 1)
    return start + torch.where(size < exact, size, wide)


def _check(distance, buckets, max_distance, both):
    given = distance.dtype if isinstance(distance, torch.Tensor) else type(distance).__name__
    require(given in INTEGERS, "distance", given, "an integer tensor", TypeError)
    flag("both", both)
    whole("buckets", buckets, 4 if both else 2)
    require(not both or buckets % 2 == 0, "buckets", buckets, "an even number, for both sides")
    exact = buckets // 4 if both else buckets // 2
    whole("max_distance", max_distance, exact + 1)


class RelativeBias(nn.Module):
    """A bias [1, H, T, S] for the scores of T queries, the first at `offset`, and S keys.

    >>> list(RelativeBias(4)(5, 7).shape)
    [1, 4, 5, 7]
    """

    def __init__(self, heads, buckets=32, max_distance=128, *, both=True):
        super().__init__()
        whole("heads", heads)
        self.buckets, self.max_distance, self.both = buckets, max_distance, both
        relative_bucket(torch.zeros(1, dtype=torch.long), buckets, max_distance, both=both)
        # Deviation 1: every head prefers some distances from the start; nothing else tells order.
        self.weight = nn.Parameter(torch.empty(buckets, heads).normal_(std=1.0))

    def forward(self, T, S, offset=0):
        whole("T", T, 0), whole("S", S, 0), whole("offset", offset, 0)
        device = self.weight.device
        queries = torch.arange(offset, offset + T, device=device)[:, None]
        distance = torch.arange(S, device=device)[None, :] - queries
        found = relative_bucket(distance, self.buckets, self.max_distance, both=self.both)
        return self.weight[found].permute(2, 0, 1)[None]
