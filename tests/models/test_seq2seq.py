"""The encoder-decoder against torch's stacks, and what it may and may not see."""

import math

import pytest
import torch
from torch import nn

from labcore.embed import sinusoidal
from labcore.models import Seq2Seq

B, T, S, D, H, HIDDEN, LAYERS = 3, 5, 7, 12, 4, 19, 2
SOURCES, TARGETS = 17, 33


def ids(*shape, high, seed=0):
    return torch.randint(1, high, shape, generator=torch.Generator().manual_seed(seed))


def model(norm="pre", **options):
    torch.manual_seed(0)
    made = Seq2Seq(SOURCES, TARGETS, D, H, HIDDEN, LAYERS, norm, **options).double()
    for weight in made.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.4)
        else:
            nn.init.normal_(weight, mean=0.5, std=0.5)
    return made.eval()


def fill(theirs, block, attentions, norms):
    """None; copies the weights of our block into torch's layer."""
    with torch.no_grad():
        for ours, name in attentions.items():
            attention, other = getattr(block, ours), getattr(theirs, name)
            parts = [attention.q_proj, attention.k_proj, attention.v_proj]
            other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
            other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
            other.out_proj.load_state_dict(attention.o_proj.state_dict())
        theirs.linear1.load_state_dict(block.ffn.up_proj.state_dict())
        theirs.linear2.load_state_dict(block.ffn.down_proj.state_dict())
        for number, name in enumerate(norms, 1):
            getattr(theirs, f"norm{number}").load_state_dict(getattr(block, name).state_dict())


def torch_stacks(ours, norm):
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    ends = [nn.LayerNorm(D) if norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D, H, HIDDEN, **options),
        LAYERS,
        ends[0],
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(D, H, HIDDEN, **options), LAYERS, ends[1]
    )
    theirs = nn.Transformer(
        D, H, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    ).double()
    for layer, block in zip(encoder.layers, ours.encoder, strict=True):
        fill(layer, block, {"attention": "self_attn"}, ["attention_norm", "ffn_norm"])
    for layer, block in zip(decoder.layers, ours.decoder, strict=True):
        names = {"attention": "self_attn", "cross": "multihead_attn"}
        fill(layer, block, names, ["attention_norm", "cross_norm", "ffn_norm"])
    if norm == "pre":
        encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
        decoder.norm.load_state_dict(ours.decoder_norm.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_torch(norm):
    ours = model(norm)
    theirs = torch_stacks(ours, norm)
    source, target = ids(B, S, high=SOURCES), ids(B, T, high=TARGETS)
    source[1, 4:], source[2, 2:] = 0, 0
    x = ours.source_embedding.weight[source] * math.sqrt(D) + sinusoidal(S, D)
    y = ours.target_embedding.weight[target] * math.sqrt(D) + sinusoidal(T, D)
    padded = source == 0
    hidden = torch.ones(T, T).triu(1).bool()
    wanted = theirs(
        x, y, tgt_mask=hidden, src_key_padding_mask=padded, memory_key_padding_mask=padded
    )
    found = ours(source, target)
    assert (found - wanted @ ours.output.weight.T).abs().max() < 1e-9
    picked = [ours.source_embedding.weight, ours.decoder[0].cross.k_proj.weight]
    pull = torch.randn(found.shape, dtype=torch.float64)
    mine = torch.autograd.grad((found * pull).sum(), picked, retain_graph=True)
    other = torch.autograd.grad((wanted @ ours.output.weight.T * pull).sum(), picked[0])[0]
    assert (mine[0] - other).abs().max() < 1e-9
    assert mine[1].abs().max() > 0


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_future_and_prefixes(norm):
    ours = model(norm)
    source, target = ids(B, S, high=SOURCES), ids(B, T, high=TARGETS)
    out = ours(source, target)
    longer = torch.cat([source, torch.zeros(B, 2, dtype=torch.long)], 1)
    assert (ours(longer, target) - out).abs().max() < 1e-9
    changed = target.clone()
    changed[:, 3] = 1 + changed[:, 3] % (TARGETS - 1)
    assert torch.equal(ours(source, changed)[:, :3], out[:, :3])
    for t in range(1, T + 1):
        assert (ours(source, target[:, :t])[:, -1] - out[:, t - 1]).abs().max() < 1e-9
        assert (ours.scorer(source)(target[:, :t]) - out[:, t - 1]).abs().max() < 1e-9
    source[1, 4:], source[2, 2:] = 0, 0  # each row keeps its own padding beside its beams
    out = ours(source, target)
    wide = ours.scorer(source)(target.repeat_interleave(2, dim=0))
    assert (wide - out[:, -1].repeat_interleave(2, dim=0)).abs().max() < 1e-9


def test_weights_mixtures_and_tied_output():
    ours = model(tied=True)
    assert ours.output.weight is ours.target_embedding.weight
    source, target = ids(B, S, high=SOURCES), ids(B, T, high=TARGETS)
    mask = ours.source_mask(source)
    memory = ours.encode(source)
    logits, weights = ours.decode(target, memory, mask, need_weights=True)
    assert [list(w.shape) for w in weights] == [[B, H, T, S]] * LAYERS
    assert (logits - ours(source, target)).abs().max() < 1e-9
    vectors = ours.target_embedding(target)
    assert torch.equal(ours.decode_vectors(vectors, memory, mask), ours(source, target))


def test_bad_input_and_empty_target():
    ours = model()
    source, target = ids(B, S, high=SOURCES), ids(B, T, high=TARGETS)
    assert ours(source, target[:, :0]).shape == (B, 0, TARGETS)
    assert ours(torch.zeros_like(source), target).isfinite().all()
    with pytest.raises(ValueError, match="^target: got batch 2; allowed: batch 3"):
        ours(source, target[:2])
    with pytest.raises(ValueError, match="^prefix: got 4 rows; allowed: a multiple of 3 rows"):
        ours.scorer(source)(torch.ones(4, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"^source: got shape \[7\]; allowed: \[B, S\]"):
        ours(source[0], target)
    with pytest.raises(ValueError, match="^source: got values"):
        ours(source + SOURCES, target)
    with pytest.raises(ValueError, match="^layers: got 0"):
        Seq2Seq(SOURCES, TARGETS, layers=0)
