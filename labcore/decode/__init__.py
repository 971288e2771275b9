"""Decoding: from a model's scores to a sequence, one token after another or several at once."""

from labcore.decode.beam import (
    BeamResult,
    Hypothesis,
    Round,
    backtrack,
    beam_search,
    beam_step,
    length_penalty,
    log_probabilities,
)
from labcore.decode.cut import cut_at_end, truncate
from labcore.decode.greedy import greedy
from labcore.decode.iterative import fill
from labcore.decode.sample import draw, keep_top_k, keep_top_p, next_probabilities, sample
from labcore.decode.tree import (
    Node,
    RandomTree,
    Search,
    TableScore,
    exhaustive,
    nodes,
    paths,
    word_tree,
)

__all__ = [
    "BeamResult",
    "Hypothesis",
    "Node",
    "RandomTree",
    "Round",
    "Search",
    "TableScore",
    "backtrack",
    "beam_search",
    "beam_step",
    "cut_at_end",
    "draw",
    "exhaustive",
    "fill",
    "greedy",
    "keep_top_k",
    "keep_top_p",
    "length_penalty",
    "log_probabilities",
    "next_probabilities",
    "nodes",
    "paths",
    "sample",
    "truncate",
    "word_tree",
]
