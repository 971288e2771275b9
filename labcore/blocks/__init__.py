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

__all__ = [
    "ConvolutionMixer",
    "DecoderBlock",
    "EncoderBlock",
    "RecurrentMixer",
    "SelfAttentionMixer",
    "longest_path",
    "receptive_field",
]
