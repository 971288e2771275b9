"""BERT: a stack of post-norm encoder blocks that reads a whole sentence at once.

Devlin et al. 2019, sections 3 and A.2. The input is the sum of three tables (token, position,
sentence A or B), normalised; then L blocks with the exact GELU; the vector at position 0, `[CLS]`,
may stand for the sentence after one more layer, the pooler.
"""

import dataclasses

import torch
from torch import nn

from labcore.attention.scores import check_input
from labcore.blocks.encoder import EncoderBlock
from labcore.embed import LearnedPositions, TokenEmbedding
from labcore.ffn import function_of
from labcore.norms import LayerNorm
from labcore.shapes import ShapeError, check_ids, dropout_share, require, whole


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
        given = type(config).__name__
        require(isinstance(config, BertConfig), "config", given, "a BertConfig", TypeError)
        for name in ("vocabulary", "width", "layers", "heads", "hidden", "max_length"):
            whole(name, getattr(config, name))
        whole("token_types", config.token_types)
        self.config = config
        width = config.width
        self.tokens = TokenEmbedding(config.vocabulary, width)
        self.positions = LearnedPositions(config.max_length, width)
        self.types = TokenEmbedding(config.token_types, width)
        self.norm = LayerNorm(width, config.eps)
        self.dropout = nn.Dropout(dropout_share(config.dropout))
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
        check_ids(ids, "ids", self.config.vocabulary)
        shape, longest = list(ids.shape), self.config.max_length
        allowed = f"shape [B, T] with T up to {longest}"
        require(
            len(shape) == 2 and shape[1] <= longest, "ids", f"shape {shape}", allowed, ShapeError
        )
        token_types = torch.zeros_like(ids) if token_types is None else token_types
        check_ids(token_types, "token_types", self.config.token_types)
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
        check_input(hidden_BTD, "hidden_BTD", self.pooler.weight)
        shape = list(hidden_BTD.shape)
        full = len(shape) == 3 and shape[1] >= 1
        require(full, "hidden_BTD", f"shape {shape}", "[B, T, D] with T of at least 1", ShapeError)
        return torch.tanh(self.pooler(hidden_BTD[:, 0]))


class BertForMaskedTokens(nn.Module):
    """Logits [B, T, Y] of what stands at each position, hidden ones included.

    Devlin et al. 2019, section 3.1 (task 1): a linear layer, GELU and a norm, then the token table
    once more, transposed, and a bias. Pre-training asks only at the positions that were hidden.

    >>> sizes = BertConfig(vocabulary=10, width=12, layers=2, heads=4, hidden=17, max_length=9)
    >>> list(BertForMaskedTokens(sizes)(torch.tensor([[1, 2, 3, 4, 5]])).shape)
    [1, 5, 10]
    """

    def __init__(self, config):
        super().__init__()
        self.bert = Bert(config)
        self.dense = nn.Linear(config.width, config.width)
        self.norm = LayerNorm(config.width, config.eps)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.function = function_of(config.activation)

    def forward(self, ids, mask=None, token_types=None):
        x = self.norm(self.function(self.dense(self.bert(ids, mask, token_types))))
        return nn.functional.linear(x, self.bert.tokens.weight, self.bias)


class BertForClassification(nn.Module):
    """Logits [B, classes] of whole sequences, read from the pooled vector at `[CLS]`.

    Devlin et al. 2019, section 4.1. `bert` may be one that was trained on masked tokens before.

    >>> sizes = BertConfig(vocabulary=10, width=12, layers=2, heads=4, hidden=17, max_length=9)
    >>> list(BertForClassification(sizes, classes=3)(torch.tensor([[1, 2, 3, 4, 5]])).shape)
    [1, 3]
    """

    def __init__(self, config, classes, bert=None):
        super().__init__()
        whole("classes", classes, 2)
        self.bert = Bert(config) if bert is None else bert
        self.dropout = nn.Dropout(dropout_share(config.dropout))
        self.classifier = nn.Linear(config.width, classes)

    def forward(self, ids, mask=None, token_types=None):
        pooled = self.bert.pool(self.bert(ids, mask, token_types))
        return self.classifier(self.dropout(pooled))
