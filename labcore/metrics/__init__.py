"""Measures: who reaches whom, how far, and what a layer costs."""

from labcore.metrics.accounting import (
    Cost,
    cost_table,
    count_calls,
    kv_cache_bytes,
    multiply_adds,
    parameter_shares,
    parameters,
)
from labcore.metrics.flow import Call, flow
from labcore.metrics.paths import layers_to_connect, product_chain, sequential_steps
from labcore.metrics.reach import influence, jacobian, off_diagonal_count, visible_positions

__all__ = [
    "Call",
    "Cost",
    "cost_table",
    "count_calls",
    "flow",
    "influence",
    "jacobian",
    "kv_cache_bytes",
    "layers_to_connect",
    "multiply_adds",
    "off_diagonal_count",
    "parameter_shares",
    "parameters",
    "product_chain",
    "sequential_steps",
    "visible_positions",
]
