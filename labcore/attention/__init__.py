"""Attention: scores, weights, masks, the formula, and its multi-head form."""

from labcore.attention.attend import attend, attend_naive
from labcore.attention.cache import KVCache, LayerCache
from labcore.attention.masks import (
    causal_mask,
    chunk_mask,
    combine,
    packed_mask,
    padding_mask,
    prefix_mask,
    reach_after,
    window_mask,
)
from labcore.attention.multihead import MultiHeadAttention
from labcore.attention.scores import (
    AdditiveScore,
    additive_scores,
    dot_scores,
    scaled_dot_scores,
    softmax,
)
from labcore.attention.window import (
    relative_index,
    shift_mask,
    window_partition,
    window_reverse,
)

__all__ = [
    "AdditiveScore",
    "KVCache",
    "LayerCache",
    "MultiHeadAttention",
    "additive_scores",
    "attend",
    "attend_naive",
    "causal_mask",
    "chunk_mask",
    "combine",
    "dot_scores",
    "packed_mask",
    "padding_mask",
    "prefix_mask",
    "reach_after",
    "relative_index",
    "scaled_dot_scores",
    "shift_mask",
    "softmax",
    "window_mask",
    "window_partition",
    "window_reverse",
]
