"""Blocks: layers put together with residual paths, and the mixers they may be built on."""

from labcore.blocks.encoder import EncoderBlock
from labcore.blocks.mixers import (
    ConvolutionMixer,
    RecurrentMixer,
    SelfAttentionMixer,
    longest_path,
    receptive_field,
)

__all__ = [
    "ConvolutionMixer",
    "EncoderBlock",
    "RecurrentMixer",
    "SelfAttentionMixer",
    "longest_path",
    "receptive_field",
]
