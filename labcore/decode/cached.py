"""Scores of the next token that compute each token's keys and values once."""

import torch

from labcore.shapes import check_ids, require


class CachedScore:
    """`score(prefix)`: logits [B, Y] after prefix [B, T]; only tokens not seen yet are computed.

    `model.advance(ids, cache)` runs new tokens and `cache` keeps their keys and values: pass
    `model.new_cache(batch, max_length)`, or a T5's `model.start(source, mask, max_length)`. The
    prefix of each call must continue that of the last one; a beam search that drops and doubles
    rows calls `reorder(parents)` first, and a prefix that continues nothing is refused.

    >>> from labcore.models.gpt import GPT, GPTConfig
    >>> sizes = dict(vocabulary=10, width=12, layers=2, heads=4, hidden=17, max_length=9)
    >>> model = GPT(GPTConfig(**sizes)).eval()
    >>> score = CachedScore(model, model.new_cache(1))
    >>> list(score(torch.tensor([[1, 2, 3]])).shape), score.cache.length
    ([1, 10], 3)
    """

    def __init__(self, model, cache):
        self.model, self.cache = model, cache
        self.prefix = None
        # Searches read it to refuse ids outside the vocabulary before they ask for the first time.
        self.Y = model.config.vocabulary

    @torch.no_grad()
    def __call__(self, prefix_BT):
        check_ids(prefix_BT, "prefix", None, "B T")
        seen = self.cache.length
        allowed = f"more than the {seen} tokens already seen"
        require(prefix_BT.shape[1] > seen, "prefix", f"{prefix_BT.shape[1]} tokens", allowed)
        if self.prefix is not None:
            old = self.prefix
            same = prefix_BT.shape[0] == old.shape[0] and torch.equal(prefix_BT[:, :seen], old)
            allowed = "one that continues the last; after a change of rows call reorder(parents)"
            require(same, "prefix", "another prefix than the last", allowed)
        logits = self.model.advance(prefix_BT[:, seen:], self.cache)
        self.prefix = prefix_BT.clone()
        return logits

    def reorder(self, parents):
        """None; row b continues what was row `parents[b]`."""
        self.cache.reorder(parents)
        if self.prefix is not None:
            self.prefix = self.prefix[parents]
