"""The six wirings: who reads which layer, and when they must agree."""

import pytest
import torch

from labcore.attention import MultiHeadAttention, padding_mask
from labcore.blocks import WIRINGS, WiredAttention, connections
from labcore.models import Seq2Seq

B, T, S, D, H, L = 2, 5, 7, 12, 4, 3


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def readers(wiring):
    made = []
    for layer in range(L):
        torch.manual_seed(0)
        made.append(WiredAttention(MultiHeadAttention(D, H), wiring, layer, L).double())
    return made


def plain():
    torch.manual_seed(0)
    return MultiHeadAttention(D, H).double()


def test_pairs_that_are_read():
    pairs = {}
    for wiring in WIRINGS:
        count = 0
        for layer, reader in enumerate(readers(wiring)):
            memories = draw(L, B, S, D).requires_grad_()
            (gradient,) = torch.autograd.grad(
                reader(draw(B, T, D, seed=1), memories).sum(), memories
            )
            read = gradient.abs().sum((1, 2, 3)) > 0
            count += int(read.sum())
            assert torch.equal(read, connections(wiring, L)[layer] > 0)
        pairs[wiring] = count
    assert list(pairs.values()) == [3, 3, 5, 9, 9, 9]


def test_against_the_formulas():
    x, memories, mask = draw(B, T, D), draw(L, B, S, D, seed=1), padding_mask([7, 4], S)
    attention = plain()
    for i in range(L):
        own, last = attention(x, memories[i], mask), attention(x, memories[-1], mask)
        wanted = {"last": last, "same": own, "parallel": own + last}
        wanted["adaptive"] = attention(x, memories.mean(0), mask)
        joined = memories.transpose(0, 1).flatten(1, 2)
        wanted["full"] = attention(x, joined, torch.cat([mask] * L, -1))
        heads = [attention.heads_output(x, memory, mask) for memory in memories]
        mixed = torch.stack([heads[h % L][:, h] for h in range(H)], 1)
        wanted["fine"] = attention.join(mixed)
        for wiring in WIRINGS:
            reader = readers(wiring)[i]
            assert (reader(x, memories, mask) - wanted[wiring]).abs().max() < 1e-9, wiring
            out, weights = reader(x, memories, mask, need_weights=True)
            assert (out - wanted[wiring]).abs().max() < 1e-9
            assert weights.shape == (B, H, T, S * (L if wiring == "full" else 1))
            assert (weights.sum(-1) - 1).abs().max() < 1e-9


def test_equal_memories_make_all_but_parallel_equal():
    x, memory = draw(B, T, D), draw(B, S, D, seed=1)
    memories = memory.expand(L, B, S, D)
    for wiring in WIRINGS:
        out = readers(wiring)[0](x, memories)
        wanted = plain()(x, memory)
        wanted = plain()(x, memory) * 2 if wiring == "parallel" else wanted
        assert (out - wanted).abs().max() < 1e-9


def test_adaptive_reaches_last_and_same():
    x, memories = draw(B, T, D), draw(L, B, S, D, seed=1)
    for i, reader in enumerate(readers("adaptive")):
        for j in range(L):
            with torch.no_grad():
                reader.mix.fill_(-1e4)
                reader.mix[j] = 0
            assert (reader(x, memories) - plain()(x, memories[j])).abs().max() < 1e-9
        assert reader.mix.requires_grad and i < L


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_whole_model(wiring, norm):
    torch.manual_seed(0)
    model = Seq2Seq(17, 33, D, H, 19, L, norm, wiring=wiring).double()
    source = torch.randint(1, 17, (B, S))
    target = torch.randint(1, 33, (B, T))
    out = model(source, target)
    assert out.shape == (B, T, 33)
    longer = torch.cat([source, torch.zeros(B, 2, dtype=torch.long)], 1)
    assert (model(longer, target) - out).abs().max() < 1e-9
    changed = target.clone()
    changed[:, 3] = 1 + changed[:, 3] % 32
    assert torch.equal(model(source, changed)[:, :3], out[:, :3])
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    wide = model.scorer(source)(target.repeat_interleave(2, dim=0))
    assert (wide - out[:, -1].repeat_interleave(2, dim=0)).abs().max() < 1e-9


def test_bad_input():
    with pytest.raises(ValueError, match="^wiring: got 'all'; allowed: 'last', 'same'"):
        connections("all", 3)
    with pytest.raises(ValueError, match="^wiring: got 'all'"):
        Seq2Seq(17, 33, D, H, 19, L, wiring="all")
    with pytest.raises(ValueError, match="^layer: got 3; allowed: 0 to 2"):
        WiredAttention(MultiHeadAttention(D, H), "same", 3, 3)
    with pytest.raises(ValueError, match=r"^memories: got shape \[2, 7, 12\]; allowed: \[L=3"):
        readers("full")[0](draw(B, T, D), draw(B, S, D))
