"""Embeddings: from token ids to vectors, and the vectors that say where a token stands."""

from labcore.embed.position import LearnedPositions, SinusoidalPositions, sinusoidal
from labcore.embed.token import TokenEmbedding

__all__ = ["LearnedPositions", "SinusoidalPositions", "TokenEmbedding", "sinusoidal"]
