"""Our encoder–decoder against transformers' Marian with the same weights.

What a Marian checkpoint needs and `Seq2Seq` has: post-norm without a last LayerNorm, embeddings
times √D, sinusoidal positions, biases everywhere but at the output, one table for both sides
(assigned here) and the output tied to it. What `Seq2Seq` has no switch for, and how it is mapped:

- Marian's position codes hold all sines first and all cosines behind, ours take turns. That is
  another order of the D features, so every weight that touches them is permuted when it is copied.
- Marian adds `final_logits_bias` [Y] to the logits, ours have none: it is added here.
- Marian's codes are rounded to float32; the test gives it the exact ones.
"""

import math

import pytest
import torch

from labcore.decode import beam_search
from labcore.embed import sinusoidal
from labcore.models import Seq2Seq

B, S, T, D, H, HIDDEN, LAYERS, Y = 3, 7, 5, 12, 4, 17, 2, 19
PAD, EOS, MOST = 0, 1, 11
# Feature j of ours is feature ORDER[j] of theirs: sine i stands at i, cosine i at D/2 + i.
ORDER = torch.arange(D).view(2, D // 2).T.flatten()
RENAMED = (
    ("self_attn_layer_norm", "attention_norm"),
    ("encoder_attn_layer_norm", "cross_norm"),
    ("final_layer_norm", "ffn_norm"),
    ("self_attn", "attention"),
    ("encoder_attn", "cross"),
    ("out_proj", "o_proj"),
    ("fc1", "ffn.up_proj"),
    ("fc2", "ffn.down_proj"),
    ("layers.", ""),
)


def ids(*shape, seed=0):
    return torch.randint(2, Y, shape, generator=torch.Generator().manual_seed(seed))


def their_codes(length):
    """Marian's position codes [length, D] in float64: sines in front, cosines behind."""
    return torch.cat([sinusoidal(length, D)[:, 0::2], sinusoidal(length, D)[:, 1::2]], dim=1)


@pytest.fixture(params=["relu", "gelu", "swish"])
def theirs(request):
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=Y, d_model=D, max_position_embeddings=MOST,
        encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=H, decoder_attention_heads=H,
        encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN,
        activation_function=request.param, scale_embedding=True, dropout=0.0,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD, forced_eos_token_id=None,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config).eval()
    rounded = model.model.encoder.embed_positions.weight.clone()
    model = model.double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:
                assert (rounded.double() - their_codes(MOST)).abs().max() < 1e-6
                weight.copy_(their_codes(MOST))
            elif weight.ndim > 1:
                weight.normal_(std=0.4, generator=draw)
            else:
                weight.normal_(mean=0.5, std=0.5, generator=draw)
        model.final_logits_bias.normal_(generator=draw)
    return model


def permuted(name, weight, order):
    """A weight of theirs with the axis that runs over the D features in our order.

    The features of q, k and v are split into heads afterwards: they keep their order.
    """
    reads = any(part in name for part in ("q_proj", "k_proj", "v_proj", "fc1"))
    if reads:
        return weight[:, order] if weight.ndim == 2 else weight
    return weight[order]  # out_proj, fc2 and the norms write the D features


def copied(theirs, order=ORDER):
    """A `Seq2Seq` with the weights of a MarianMTModel."""
    activation = {"swish": "silu"}.get(theirs.config.activation_function)
    activation = activation or theirs.config.activation_function
    options = {"activation": activation, "padding": PAD, "tied": True}
    ours = Seq2Seq(Y, Y, D, H, HIDDEN, LAYERS, "post", **options).double().eval()
    ours.source_embedding.weight = ours.target_embedding.weight
    state = {}
    for name, weight in theirs.state_dict().items():
        if ".layers." not in name:
            continue
        new = name.removeprefix("model.")
        for old, other in RENAMED:
            new = new.replace(old, other)
        state[new] = permuted(name, weight, order)
    table = theirs.model.shared.weight[:, order]
    for name in ("source_embedding", "target_embedding", "output"):
        state[f"{name}.weight"] = table
    ours.load_state_dict(state)
    return ours


def batch():
    """Source [B, S] with padding, target [B, T], and the mask that theirs wants."""
    source, target = ids(B, S), ids(B, T, seed=1)
    source[1, 4:], source[2, 2:] = PAD, PAD
    return source, target, (source != PAD).long()


def test_every_parameter_has_its_place(theirs):
    ours = copied(theirs)
    fixed = sum(weight.numel() for name, weight in theirs.named_parameters() if "positions" in name)
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert counts[0] == counts[1] - fixed
    assert ours.output.weight is ours.source_embedding.weight
    assert ours.source_embedding.scale == math.sqrt(D) == theirs.model.encoder.embed_scale


def test_logits_states_and_gradients(theirs):
    ours, (source, target, mask) = copied(theirs), batch()
    wanted = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target)
    memory = ours.encode(source)
    assert (memory - wanted.encoder_last_hidden_state[..., ORDER]).abs().max() < 1e-9
    found = ours(source, target) + theirs.final_logits_bias
    assert found.shape == (B, T, Y)
    assert (found - wanted.logits).abs().max() < 1e-9
    pull = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)).double()
    (mine,) = torch.autograd.grad((found * pull).sum(), ours.target_embedding.weight)
    (other,) = torch.autograd.grad((wanted.logits * pull).sum(), theirs.model.shared.weight)
    # Theirs holds the gradient of the padding row back; ours has no row of a special kind.
    assert (mine[1:] - other[1:, ORDER]).abs().max() < 1e-9


def test_what_the_mapping_needs(theirs):
    """Without the order of the features, the scale or the bias the two differ."""
    ours, (source, target, mask) = copied(theirs), batch()
    wanted = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert (ours(source, target) - wanted).abs().max() > 0.1
    ours.source_embedding.scale = 1.0
    assert (ours(source, target) + theirs.final_logits_bias - wanted).abs().max() > 0.1
    plain = copied(theirs, order=torch.arange(D))
    assert (plain(source, target) + theirs.final_logits_bias - wanted).abs().max() > 0.01


@pytest.mark.parametrize("k", [2, 4])
def test_translations_equal_generate(theirs, k):
    ours, (source, _, mask) = copied(theirs), batch()
    start = torch.full((B, 1), PAD)
    wanted = theirs.generate(
        source, attention_mask=mask, num_beams=k, num_return_sequences=k, max_new_tokens=T + 3,
        do_sample=False, early_stopping="never", length_penalty=0.8,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    scores = ours.scorer(source)
    found = beam_search(
        lambda prefix: scores(prefix) + theirs.final_logits_bias, start,
        beam=k, max_new_tokens=T + 3, eos=EOS, alpha=0.8, penalty="power",
    )  # fmt: skip
    rows = [hypothesis for row in found.hypotheses for hypothesis in row]
    for row, value, hypothesis in zip(
        wanted.sequences.tolist(), wanted.sequences_scores.tolist(), rows, strict=True
    ):
        words = row[1:]
        words = words[: words.index(EOS) + 1] if EOS in words else words
        assert hypothesis.ids == words
        assert hypothesis.value == pytest.approx(value, abs=2e-5)
