"""Blocks: layers put together with residual paths, and the mixers they may be built on."""

from labcore.blocks.decoder import DecoderBlock
from labcore.blocks.encoder import EncoderBlock
from labcore.blocks.mixers import (
    ConvolutionMixer,
    RecurrentMixer,
    SelfAttentionMixer,
    longest_path,
    receptive_field,
)
from labcore.blocks.wiring import WIRINGS, WiredAttention, connections

__all__ = [
    "WIRINGS",
    "ConvolutionMixer",
    "DecoderBlock",
    "EncoderBlock",
    "RecurrentMixer",
    "SelfAttentionMixer",
    "WiredAttention",
    "connections",
    "longest_path",
    "receptive_field",
]
