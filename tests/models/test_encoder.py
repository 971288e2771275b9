"""The three encoders: one interface, padding that nobody reads, and torch as the oracle."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.blocks import EncoderBlock, MixerBlock
from labcore.models.encoder import KINDS, Encoder, Tagger, TwoWayRecurrence, turned
from labcore.norms import LayerNorm

B, N, D, H, HIDDEN, L = 3, 7, 12, 4, 17, 2


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def encoder(kind, norm="post", layers=L):
    torch.manual_seed(1)
    return Encoder(kind, D, layers, heads=H, hidden=HIDDEN, norm=norm).double()


@pytest.mark.parametrize("norm", ["post", "pre", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_vector_of_the_same_width_for_every_position(kind, norm):
    model = encoder(kind, norm)
    for n in (1, 2, N):
        assert model(draw(B, n, D)).shape == (B, n, D)
    h, states = model(draw(B, N, D), need_states=True)
    assert len(states) == L + 1 and states[0].equal(draw(B, N, D))
    assert torch.equal(h, model.final_norm(states[-1]))
    assert encoder(kind, norm, layers=0)(draw(B, N, D)).shape == (B, N, D)
    assert model(draw(0, N, D)).shape == (0, N, D)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_read_by_nobody_and_comes_out_as_zeros(kind, norm):
    """A padded batch gives what each sequence gives alone; gradients stay inside, too."""
    model, lengths = encoder(kind, norm), [7, 3, 1]
    x = draw(B, N, D).requires_grad_()
    together = model(x, lengths)
    for b, n in enumerate(lengths):
        assert (together[b, :n] - model(x[b : b + 1, :n])[0]).abs().max() < 1e-9
        assert not together[b, n:].any()
    (gradient,) = torch.autograd.grad(together.square().sum(), x)
    for b, n in enumerate(lengths):
        assert not gradient[b, n:].any() and gradient[b, :n].any()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_have_parameters_of_their_own(kind):
    one, two = (sum(p.numel() for p in encoder(kind, layers=n).parameters()) for n in (1, 2))
    assert two == 2 * one


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("padded", [False, True])
def test_the_transformer_equals_torch(norm, padded):
    ours = encoder("transformer", norm)
    layer = nn.TransformerEncoderLayer(
        D, H, HIDDEN, 0.0, batch_first=True, norm_first=norm == "pre"
    )
    final = nn.LayerNorm(D) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, L, final, enable_nested_tensor=False).double()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.4)
    with torch.no_grad():
        for block, layer in zip(ours.blocks, theirs.layers, strict=True):
            copy_layer(block, layer)
        if norm == "pre":
            ours.final_norm.load_state_dict(theirs.norm.state_dict())
    lengths = [7, 4, 2] if padded else None
    hidden = None if lengths is None else ~padding_mask(lengths, N)[:, 0, 0]
    x, pull = draw(B, N, D).requires_grad_(), draw(B, N, D, seed=2)
    if padded:
        pull = pull.masked_fill(hidden[..., None], 0)
    out, wanted = ours(x, lengths), theirs(x, src_key_padding_mask=hidden)
    assert ((out - wanted) * (pull != 0)).abs().max() < 1e-9
    got, want = (torch.autograd.grad((y * pull).sum(), x)[0] for y in (out, wanted))
    assert (got - want).abs().max() < 1e-9


def copy_layer(block, layer):
    """None; our block gets the weights of torch's layer."""
    for kind in ("weight", "bias"):
        parts = getattr(layer.self_attn, f"in_proj_{kind}").chunk(3)
        for name, part in zip("qkv", parts, strict=True):
            getattr(getattr(block.attention, f"{name}_proj"), kind).copy_(part)
        for ours, theirs in (
            (block.attention.o_proj, layer.self_attn.out_proj),
            (block.ffn.up_proj, layer.linear1),
            (block.ffn.down_proj, layer.linear2),
            (block.attention_norm, layer.norm1),
            (block.ffn_norm, layer.norm2),
        ):
            getattr(ours, kind).copy_(getattr(theirs, kind))


@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
def test_the_recurrence_equals_torch(lengths):
    torch.manual_seed(3)
    theirs = nn.RNN(D, D, batch_first=True, bidirectional=True).double()
    ours = TwoWayRecurrence(D).double()
    with torch.no_grad():
        for mixer, end in ((ours.left, ""), (ours.right, "_reverse")):
            mixer.input_proj.weight.copy_(getattr(theirs, f"weight_ih_l0{end}"))
            mixer.state_proj.weight.copy_(getattr(theirs, f"weight_hh_l0{end}"))
            biases = (getattr(theirs, f"bias_{part}_l0{end}") for part in ("ih", "hh"))
            mixer.input_proj.bias.copy_(sum(biases))
    x = draw(B, N, D)
    if lengths is None:
        states = theirs(x)[0]
    else:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        states = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], True)[0]
    wanted = ours.join(states)
    inside = torch.ones(B, N, 1) if lengths is None else padding_mask(lengths, N)[:, 0, 0, :, None]
    assert ((ours(x, lengths) - wanted) * inside).abs().max() < 1e-9


def test_how_far_each_kind_reaches():
    """Through two blocks: everything, except for the convolution, which sees 2 to each side."""
    for kind in KINDS:
        model, x = encoder(kind), draw(1, N, D)
        changed = x.clone()
        changed[0, 0] += 1
        moved = (model(changed) != model(x)).any(-1)[0].tolist()
        assert moved == ([True] * 3 + [False] * 4 if kind == "cnn" else [True] * N)


def test_a_mixer_block_with_attention_is_an_encoder_block():
    torch.manual_seed(4)
    block = EncoderBlock(D, H, HIDDEN).double()
    other = MixerBlock(lambda y, lengths: block.attention(y), D, HIDDEN).double()
    other.ffn.load_state_dict(block.ffn.state_dict())
    assert torch.equal(block(draw(B, N, D)), other(draw(B, N, D)))


def test_tagger_and_norms():
    model = Tagger(encoder("transformer", "pre"), 11, N, outputs=5).double()
    assert model(torch.zeros(B, N, dtype=torch.long), [1, 2, 3]).shape == (B, N, 5)
    assert isinstance(model.encoder.final_norm, LayerNorm)
    assert turned(draw(B, N, D), [N] * B).equal(draw(B, N, D).flip(1))


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("kind", ValueError, lambda: Encoder("lstm", D, L)),
        ("layers", ValueError, lambda: Encoder("rnn", D, -1)),
        ("layers", ValueError, lambda: Encoder("rnn", D, 1.5)),
        ("heads", ValueError, lambda: Encoder("transformer", D, L, heads=5)),
        ("kernel", ValueError, lambda: Encoder("cnn", D, L, kernel=4)),
        ("norm", ValueError, lambda: Encoder("cnn", D, L, norm="middle")),
        ("hidden", ValueError, lambda: Encoder("cnn", D, L, hidden=0)),
        ("x", ValueError, lambda: Encoder("cnn", D, L)(torch.zeros(B, N, D + 1))),
        ("x", ValueError, lambda: Encoder("rnn", D, L)(torch.zeros(N, D))),
        ("x", TypeError, lambda: Encoder("rnn", D, L)(torch.zeros(B, N, D).long())),
        ("lengths", ValueError, lambda: Encoder("rnn", D, L)(torch.zeros(B, N, D), [1, 2])),
        ("lengths", ValueError, lambda: Encoder("cnn", D, L)(torch.zeros(B, N, D), [1, 2, 8])),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
