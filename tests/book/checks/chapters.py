"""Which notebook holds which sections of the outline, and the outline and ledger themselves."""

import functools
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
LEDGER = ROOT / "book" / "ledger"

# First and last section of every notebook; the chapters beyond the documents (K) have no outline.
CHAPTERS = {
    "a01_self_attention": ("A01", "A03"),
    "a02_heads_and_positions": ("A04", "A06"),
    "a03_encoder": ("A07", "A09"),
    "a04_decoder": ("A10", "A12"),
    "a05_cross_attention_and_training": ("A13", "A14"),
    "a06_decoding_and_metrics": ("A15", "A16"),
    "a07_exposure_bias": ("A17", "A17"),
    "a08_three_families": ("A18", "A18"),
    "a09_vision_transformer": ("A19", "A20"),
    "a10_swin": ("A21", "A22"),
    "a11_mixture_of_experts": ("A23", "A26"),
    "a12_routing_and_collapse": ("A27", "A28"),
    "a13_capacity_and_balance": ("A29", "A31"),
    "a14_vision_moe_and_accounting": ("A32", "A33"),
    "b01_blocks_and_norms": ("B0", "B2.2"),
    "b02_activations_and_parallel_blocks": ("B3", "B4"),
    "b03_positions": ("B5", "B5.1"),
    "b04_hyperparameters": ("B6", "B6.5"),
    "b05_stability": ("B7", "B7.3"),
    "b06_shared_kv_and_windows": ("B8", "B8.2"),
    "b07_linear_attention": ("B8.3", "B8.5"),
    "b08_state_space_delta_and_sparse": ("B8.6", "B8.8"),
    "b09_routing": ("B9", "B10.1"),
    "b10_gating_and_experts": ("B10.1.1", "B11"),
    "b11_moe_training": ("B12", "B12.1.3.1"),
    "b12_balance_losses": ("B12.1.3.2", "B12.1.3.3"),
    "b13_moe_systems_and_deepseek": ("B12.1.4", "B15"),
    "c01_words_bpe_bytes": ("C0", "C1.3"),
    "c02_vocabulary_and_messages": ("C1.4", "C1.5"),
    "c03_embedding_and_decoder": ("C2", "C2.4"),
    "c04_attention_by_hand": ("C3", "C3.1.2"),
    "c05_scaling_and_training": ("C3.2", "C3.4"),
    "c06_positions_kv_gates": ("C4", "C4.4"),
    "c07_sparse_moe": ("C5", "C5.5"),
    "d01_attention_and_blocks": ("D1", "D3"),
    "d02_cost_and_modern_changes": ("D4", "D5.2"),
}


@functools.cache
def outline(folder=LEDGER):
    """All sections of the outline in order, each a dictionary."""
    files = sorted(folder.glob("outline_*.yml"))
    return tuple(s for path in files for s in yaml.safe_load(path.read_text(encoding="utf-8")))


@functools.cache
def ledger(folder=LEDGER):
    """All entries of the ledger by id."""
    files = sorted(folder.glob("ledger_*.yml"))
    entries = (e for path in files for e in yaml.safe_load(path.read_text(encoding="utf-8")) or ())
    return {entry["id"]: entry for entry in entries}


def expected_sections(name):
    """The outline's sections that the notebook called `name` holds, in order.

    >>> [s["section"] for s in expected_sections("a02_heads_and_positions")]
    ['A04', 'A05', 'A06']
    """
    if name not in CHAPTERS:
        return []
    order = [section["section"] for section in outline()]
    first, last = (order.index(section) for section in CHAPTERS[name])
    return list(outline()[first : last + 1])
