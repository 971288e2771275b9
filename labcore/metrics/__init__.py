"""Measures: who reaches whom, how far, what a layer costs, and how good or varied a text is."""

from labcore.metrics.accounting import (
    Cost,
    cost_table,
    count_calls,
    kv_cache_bytes,
    multiply_adds,
    parameter_shares,
    parameters,
)
from labcore.metrics.bleu import (
    Bleu,
    brevity_penalty,
    clipped,
    corpus_bleu,
    geometric_mean,
    ngrams,
    sentence_bleu,
)
from labcore.metrics.diversity import distinct_n, repeated_share
from labcore.metrics.flow import Call, flow
from labcore.metrics.paths import layers_to_connect, product_chain, sequential_steps
from labcore.metrics.reach import influence, jacobian, off_diagonal_count, visible_positions

__all__ = [
    "Bleu",
    "Call",
    "Cost",
    "brevity_penalty",
    "clipped",
    "corpus_bleu",
    "cost_table",
    "count_calls",
    "distinct_n",
    "flow",
    "geometric_mean",
    "influence",
    "jacobian",
    "kv_cache_bytes",
    "layers_to_connect",
    "multiply_adds",
    "ngrams",
    "off_diagonal_count",
    "parameter_shares",
    "parameters",
    "product_chain",
    "repeated_share",
    "sentence_bleu",
    "sequential_steps",
    "visible_positions",
]
