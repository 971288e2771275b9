"""The decoder block against torch's layer, in both norm orders."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.blocks import DecoderBlock
from tests.blocks.torch_weights import weights_of

B, T, S, D, H, HIDDEN = 3, 5, 7, 24, 4, 17


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def pair(norm, activation="gelu"):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(
        D, H, HIDDEN, 0.0, activation, 1e-3, batch_first=True, norm_first=norm == "pre"
    ).double()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    ours = DecoderBlock(D, H, HIDDEN, norm, activation=activation, eps=1e-3).double()
    names = (("attention", "self_attn"), ("cross", "multihead_attn"))
    norms = ("attention_norm", "cross_norm", "ffn_norm")
    ours.load_state_dict(weights_of(theirs, names, norms))
    return theirs, ours


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch(norm, activation, masked):
    theirs, ours = pair(norm, activation)
    x, memory = draw(B, T, D).requires_grad_(), draw(B, S, D, seed=1).requires_grad_()
    pull = draw(B, T, D, seed=2)
    mask = padding_mask([7, 2, 4], S) if masked else None
    hidden = nn.Transformer.generate_square_subsequent_mask(T).double() < 0
    padding = ~mask[:, 0, 0] if masked else None
    wanted = theirs(x, memory, tgt_mask=hidden, memory_key_padding_mask=padding)
    out, prefix, source = ours(x, memory, memory_mask=mask, need_weights=True)
    assert (out - wanted).abs().max() < 1e-9
    assert (ours(x, memory, memory_mask=mask) - wanted).abs().max() < 1e-9
    assert prefix.shape == (B, H, T, T) and source.shape == (B, H, T, S)
    assert not prefix.triu(1).any()
    if not masked:
        assert (source > 0).all()
    for given in (x, memory):
        found = [
            torch.autograd.grad((y * pull).sum(), given, retain_graph=True)[0]
            for y in (out, wanted)
        ]
        assert (found[0] - found[1]).abs().max() < 1e-9


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_future_does_not_leak_and_the_whole_source_is_read(norm):
    block = pair(norm)[1]
    x, memory = draw(B, T, D), draw(B, S, D, seed=1)
    changed = x.clone()
    changed[:, 3] += 9
    before, after = block(x, memory), block(changed, memory)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])
    later = memory.clone()
    later[:, -1] += 9
    assert ((block(x, later) - before).abs().amax(-1) > 0).all()
    order = torch.tensor([3, 0, 6, 4, 1, 5, 2])
    assert (block(x, memory[:, order]) - before).abs().max() < 1e-9
    assert (block(x, memory, causal=False) - before).abs().max() > 1e-3


def test_hostile_sizes_and_bad_norm():
    block = pair("pre")[1]
    assert block(draw(0, T, D), draw(0, S, D)).shape == (0, T, D)
    assert block(draw(B, 0, D), draw(B, S, D)).shape == (B, 0, D)
    nothing = padding_mask([0, 2, 4], S)
    out, _, source = block(draw(B, T, D), draw(B, S, D), memory_mask=nothing, need_weights=True)
    assert out.isfinite().all() and not source[0].any()
    with pytest.raises(ValueError, match='^norm: got \'middle\'; allowed: "post" or "pre"'):
        DecoderBlock(D, H, HIDDEN, "middle")
    with pytest.raises(ValueError, match="^memory: got shape"):
        block(draw(B, T, D), draw(2, S, D))
