"""BERT: a stack of post-norm encoder blocks that reads a whole sentence at once.

Devlin et al. 2019, sections 3 and A.2. The input is the sum of three tables (token, position,
sentence A or B), normalised; then L blocks with the exact GELU; the vector at position 0, `[CLS]`,
may stand for the sentence after one more layer, the pooler.
"""

import dataclasses

import torch
from torch import nn

from labcore.blocks.encoder import EncoderBlock
from labcore.embed import LearnedPositions, TokenEmbedding
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, require


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The sizes of a `Bert`; the defaults are those of BERT base.

    >>> BertConfig(width=384, layers=6, hidden=1536).heads
    12
    """

    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    max_length: int = 512
    token_types: int = 2
    activation: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.1


class Bert(nn.Module):
    """Vectors [B, T, D] of token ids [B, T]; with `need_weights` also L weight maps [B, H, T, T].

    >>> config = BertConfig(vocabulary=10, width=12, layers=2, heads=4, hidden=17, max_length=9)
    >>> model = Bert(config).eval()
    >>> hidden, weights = model(torch.tensor([[1, 2, 3, 4, 5]]), need_weights=True)
    >>> list(hidden.shape), len(weights), list(weights[0].shape)
    ([1, 5, 12], 2, [1, 4, 5, 5])
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        width = config.width
        self.tokens = TokenEmbedding(config.vocabulary, width)
        self.positions = LearnedPositions(config.max_length, width)
        self.types = TokenEmbedding(config.token_types, width)
        self.norm = LayerNorm(width, config.eps)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                width,
                config.heads,
                config.hidden,
                norm="post",
                activation=config.activation,
                eps=config.eps,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        )
        self.pooler = nn.Linear(width, width)

    def forward(self, ids, mask=None, token_types=None, *, need_weights=False):
        """`mask` is bool, True = may attend: `padding_mask(lengths, T)`, [T, T] or [B, H, T, T].

        `token_types` [B, T] says which of two sentences a token belongs to; 0 everywhere if None.
        Padded positions get vectors too; they are meaningless, and no other position reads them.
        """
        shape = list(ids.shape)
        require(ids.ndim == 2, "ids", f"shape {shape}", "shape [B, T]", error=ShapeError)
        token_types = torch.zeros_like(ids) if token_types is None else token_types
        same = token_types.shape == ids.shape
        given = f"shape {list(token_types.shape)}"
        require(same, "token_types", given, f"shape {shape}, as ids", error=ShapeError)
        x = self.positions(self.tokens(ids) + self.types(token_types))
        x = self.dropout(self.norm(x))
        maps = []
        for block in self.blocks:
            x = block(x, mask, need_weights=need_weights)
            if need_weights:
                x, weights = x
                maps.append(weights)
        return (x, tuple(maps)) if need_weights else x

    def pool(self, hidden_BTD):
        """One vector per sentence [B, D]: tanh of a linear layer of the vector at `[CLS]`."""
        return torch.tanh(self.pooler(hidden_BTD[:, 0]))
