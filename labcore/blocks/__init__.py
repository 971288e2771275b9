"""Blocks: layers put together with residual paths, and the mixers they may be built on."""

from labcore.blocks.decoder import DecoderBlock
from labcore.blocks.encoder import EncoderBlock, MixerBlock, placed
from labcore.blocks.mixers import (
    ConvolutionMixer,
    RecurrentMixer,
    SelfAttentionMixer,
    longest_path,
    receptive_field,
)
from labcore.blocks.wiring import WIRINGS, WiredAttention, connections

__all__ = [
    "ConvolutionMixer",
    "DecoderBlock",
    "EncoderBlock",
    "MixerBlock",
    "RecurrentMixer",
    "SelfAttentionMixer",
    "WIRINGS",
    "WiredAttention",
    "connections",
    "longest_path",
    "placed",
    "receptive_field",
]
