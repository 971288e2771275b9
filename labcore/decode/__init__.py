"""Decoding: from a model's scores to a sequence, one token after another or several at once."""

from labcore.decode.cut import cut_at_end, truncate
from labcore.decode.greedy import greedy
from labcore.decode.iterative import fill

__all__ = ["cut_at_end", "fill", "greedy", "truncate"]
