"""Cached scores equal full ones, through greedy steps and reordered rows."""

import pytest
import torch

from labcore.decode.cached import CachedScore
from labcore.models import GPT, T5, GPTConfig, T5Config

SIZES = {"vocabulary": 10, "width": 12, "layers": 2, "heads": 4, "hidden": 17}


def gpt_pair():
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, max_length=13)).double().eval()
    return CachedScore(model, model.new_cache(1)), lambda prefix: model(prefix)[:, -1]


def t5_pair():
    torch.manual_seed(0)
    model = T5(T5Config(**SIZES, key_width=5)).double().eval()
    source = torch.tensor([[4, 5, 6, 7, 8, 9, 1]])

    def full(prefix):
        return model(source.expand(len(prefix), -1), prefix)[:, -1]

    return CachedScore(model, model.start(source, max_length=13)), full


@torch.no_grad()
@pytest.mark.parametrize("pair", [gpt_pair, t5_pair])
def test_rows_branch_and_die_as_in_a_beam(pair):
    score, full = pair()
    prefix = torch.tensor([[1, 2]])
    draw = torch.Generator().manual_seed(2)
    for rows in (1, 3, 3, 2, 4, 4):
        logits = score(prefix)
        assert (logits - full(prefix)).abs().max() < 1e-9
        parents = torch.randint(0, len(prefix), (rows,), generator=draw)
        following = torch.randint(0, 10, (rows, 1), generator=draw)
        score.reorder(parents)
        prefix = torch.cat([prefix[parents], following], 1)
    assert score.cache.length == 7


def test_a_prefix_that_continues_nothing_is_refused():
    score, _ = gpt_pair()
    score(torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match="reorder"):
        score(torch.tensor([[1, 3, 4]]))
    with pytest.raises(ValueError, match="more than the 2 tokens"):
        score(torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match="shape"):
        score(torch.tensor([1, 2, 3]))
