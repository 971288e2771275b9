"""Blocks: layers put together with residual paths, and the mixers they may be built on."""

from labcore.blocks.encoder import EncoderBlock, MixerBlock, placed
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
    "MixerBlock",
    "RecurrentMixer",
    "SelfAttentionMixer",
    "longest_path",
    "placed",
    "receptive_field",
]
