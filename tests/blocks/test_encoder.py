"""The encoder block against torch's layer, in both norm orders."""

import pytest
import torch
from torch import nn

from labcore.attention import causal_mask, padding_mask
from labcore.blocks import EncoderBlock
from tests.blocks.torch_weights import weights_of

B, T, D, H, HIDDEN = 3, 5, 24, 4, 17


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def pair(norm, activation="gelu"):
    """Torch's layer with random weights everywhere, and ours with the same ones."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        D, H, HIDDEN, 0.0, activation, 1e-3, batch_first=True, norm_first=norm == "pre"
    ).double()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    ours = EncoderBlock(D, H, HIDDEN, norm, activation=activation, eps=1e-3).double()
    names, norms = [("attention", "self_attn")], ("attention_norm", "ffn_norm")
    ours.load_state_dict(weights_of(theirs, names, norms))
    return theirs, ours


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch(norm, activation, masked):
    theirs, ours = pair(norm, activation)
    x, pull = draw(B, T, D).requires_grad_(), draw(B, T, D, seed=1)
    mask, padding, hidden = None, None, None
    if masked:
        mask, lengths = causal_mask(T), [5, 2, 3]
        padding, hidden = ~padding_mask(lengths, T)[:, 0, 0], ~mask
        mask = mask & padding_mask(lengths, T)
    wanted = theirs(x, src_mask=hidden, src_key_padding_mask=padding)
    out, weights = ours(x, mask, need_weights=True)
    assert (out - wanted).abs().max() < 1e-9
    assert (ours(x, mask) - wanted).abs().max() < 1e-9
    assert weights.shape == (B, H, T, T)
    gradients = [torch.autograd.grad((y * pull).sum(), x)[0] for y in (out, wanted)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-9


def test_the_two_orders_differ():
    post, pre = pair("post")[1], pair("pre")[1]
    pre.load_state_dict(post.state_dict())
    assert (post(draw(B, T, D)) - pre(draw(B, T, D))).abs().max() > 0.1


def test_pre_norm_leaves_the_residual_path_alone_and_post_norm_does_not():
    for norm, untouched in (("pre", True), ("post", False)):
        block = EncoderBlock(D, H, HIDDEN, norm).double()
        with torch.no_grad():
            block.attention.o_proj.weight.zero_()
            block.ffn.down_proj.weight.zero_()
            block.ffn.down_proj.bias.zero_()
        x = draw(B, T, D) * 3
        assert torch.equal(block(x), x) is untouched


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_future_permutation_and_empty_input(norm):
    block = pair(norm)[1]
    x = draw(B, T, D)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert (block(x[:, order]) - block(x)[:, order]).abs().max() < 1e-9
    changed = x.clone()
    changed[:, 3] += 9
    assert torch.equal(block(changed, causal=True)[:, :3], block(x, causal=True)[:, :3])
    assert block(x[:0]).shape == (0, T, D)
    assert block(x[:, :0]).shape == (B, 0, D)


def test_dropout_only_in_training():
    block = EncoderBlock(D, H, HIDDEN, dropout=0.5).double()
    x = draw(B, T, D)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_bad_norm_is_named():
    with pytest.raises(ValueError, match='^norm: got \'middle\'; allowed: "post" or "pre"'):
        EncoderBlock(D, H, HIDDEN, "middle")


def test_what_is_left_out_is_left_out():
    x = draw(B, T, D)
    full = pair("post")[1]
    for norm in ("post", "pre", "none"):
        for residual in (True, False):
            block = EncoderBlock(D, H, HIDDEN, norm, activation="gelu", residual=residual).double()
            block.load_state_dict(full.state_dict(), strict=norm != "none")
            if norm != "none":
                for ours in (block.attention_norm, block.ffn_norm):
                    ours.eps = 1e-3
            before = block.attention_norm if norm == "pre" else nn.Identity()
            after = block.attention_norm if norm == "post" else nn.Identity()
            middle = after(x * residual + block.attention(before(x)))
            before = block.ffn_norm if norm == "pre" else nn.Identity()
            after = block.ffn_norm if norm == "post" else nn.Identity()
            wanted = after(middle * residual + block.ffn(before(middle)))
            assert (block(x) - wanted).abs().max() < 1e-9


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_from_torch_copies_everything(norm):
    theirs, ours = pair(norm)
    copy = EncoderBlock.from_torch(theirs)
    assert torch.equal(copy(draw(B, T, D)), ours(draw(B, T, D))) and copy.norm == norm
    with torch.no_grad():
        theirs.linear1.weight.zero_()
    assert torch.equal(copy(draw(B, T, D)), ours(draw(B, T, D)))
