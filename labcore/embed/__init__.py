"""Embeddings: from token ids to vectors, and the vectors that say where a token stands."""

from labcore.embed.position import LearnedPositions, SinusoidalPositions, sinusoidal
from labcore.embed.relative import RelativeBias, relative_bucket
from labcore.embed.rope import RotaryPositions, rope_angles, rotate, to_halves
from labcore.embed.token import TokenEmbedding

__all__ = [
    "LearnedPositions",
    "RelativeBias",
    "RotaryPositions",
    "SinusoidalPositions",
    "TokenEmbedding",
    "relative_bucket",
    "rope_angles",
    "rotate",
    "sinusoidal",
    "to_halves",
]
