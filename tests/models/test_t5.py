"""T5 against transformers' T5, and against itself with a cache."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.metrics import parameters
from labcore.models import T5, T5Config
from labcore.models.t5 import attend_biased

B, S, T, D, H, K, L, Y = 3, 7, 5, 12, 4, 5, 2, 10
SIZES = {"vocabulary": Y, "width": D, "layers": L, "heads": H, "key_width": K, "hidden": 17}
BUCKETS = {"buckets": 8, "max_distance": 6}
RENAMED = (
    ("shared", "tokens"),
    ("block.0.layer.0.SelfAttention.relative_attention_bias", "bias"),
    ("block", "blocks"),
    ("final_layer_norm", "norm"),
    ("layer.0.SelfAttention", "self_attention"),
    ("layer.0.layer_norm", "self_norm"),
    ("layer.1.EncDecAttention", "cross_attention"),
    ("lm_head", "head"),
    ("DenseReluDense.wi_0", "ffn.gate_proj"),
    ("DenseReluDense.wi_1", "ffn.up_proj"),
    ("DenseReluDense.wi", "ffn.up_proj"),
    ("DenseReluDense.wo", "ffn.down_proj"),
)


def numbers(rows, length, seed):
    return torch.randint(0, Y, (rows, length), generator=torch.Generator().manual_seed(seed))


def our_state(theirs, tied):
    state = {}
    for name, tensor in theirs.state_dict().items():
        if name.endswith("embed_tokens.weight") or (tied and name == "lm_head.weight"):
            continue
        for old, new in RENAMED:
            name = name.replace(old, new)
        decoder = name.startswith("decoder")
        name = name.replace("layer.1.layer_norm", "cross_norm" if decoder else "ffn_norm")
        name = name.replace("layer.2.layer_norm", "ffn_norm")
        name = name.replace("layer.1.ffn", "ffn").replace("layer.2.ffn", "ffn")
        for letter in "qkvo":
            name = name.replace(f"attention.{letter}.", f"attention.{letter}_proj.")
        state[name] = tensor
    return state


@pytest.fixture(params=["first version", "version 1.1"])
def pair(request, monkeypatch):
    transformers = pytest.importorskip("transformers")
    gated = request.param == "version 1.1"

    def norm(self, x):  # as published it passes through float32
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    monkeypatch.setattr(transformers.models.t5.modeling_t5.T5LayerNorm, "forward", norm)
    config = transformers.T5Config(
        vocab_size=Y,
        d_model=D,
        d_kv=K,
        d_ff=17,
        num_layers=L,
        num_heads=H,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        dropout_rate=0.0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = transformers.T5ForConditionalGeneration(config).double().eval()
    if gated:  # the constructor ties the two tables even when it is told not to
        theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight.clone())
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    kind = {"activation": "gelu_tanh"} if gated else {}
    ours = T5(T5Config(**SIZES, **BUCKETS, **kind, gated=gated, tied=not gated)).double().eval()
    ours.load_state_dict(our_state(theirs, tied=not gated))
    return ours, theirs


@pytest.mark.parametrize("padded", [False, True])
def test_equals_transformers_in_both_directions(pair, padded):
    ours, theirs = pair
    source, target = numbers(B, S, 1), numbers(B, T, 2)
    mask = padding_mask([7, 3, 5], S) if padded else None
    their_mask = mask[:, 0, 0].long() if padded else None
    wanted = theirs(
        input_ids=source,
        attention_mask=their_mask,
        decoder_input_ids=target,
        output_attentions=True,
        use_cache=False,
    )
    memory, maps = ours.encode(source, mask, need_weights=True)
    assert (memory - wanted.encoder_last_hidden_state).abs().max() < 1e-9
    logits, pairs = ours.decode(target, memory, mask, need_weights=True)
    assert (logits - wanted.logits).abs().max() < 1e-9
    assert (ours(source, target, mask) - wanted.logits).abs().max() < 1e-9
    for i in range(L):
        assert (maps[i] - wanted.encoder_attentions[i]).abs().max() < 1e-9
        assert (pairs[i][0] - wanted.decoder_attentions[i]).abs().max() < 1e-9
        assert (pairs[i][1] - wanted.cross_attentions[i]).abs().max() < 1e-9
        assert pairs[i][1].shape == (B, H, T, S)


def test_gradients_equal_transformers(pair):
    ours, theirs = pair
    source, target = numbers(B, S, 1), numbers(B, T, 2)
    pull = torch.randn(B, T, Y, dtype=torch.float64)
    (ours(source, target) * pull).sum().backward()
    logits = theirs(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    (logits * pull).sum().backward()
    theirs_own = {n: p.grad for n, p in theirs.named_parameters()}
    named = dict(ours.named_parameters())
    for stack in ("encoder", "decoder"):
        found = named[f"{stack}.bias.weight"].grad
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        assert (found - theirs_own[name]).abs().max() < 1e-9, stack
    assert (ours.tokens.weight.grad - theirs.shared.weight.grad).abs().max() < 1e-9


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("prefill", range(1, T + 1))
def test_cached_equals_full(padded, prefill):
    torch.manual_seed(0)
    model = T5(T5Config(**SIZES, **BUCKETS)).double().eval()
    source, target = numbers(B, S, 1), numbers(B, T, 2)
    mask = padding_mask([7, 3, 5], S) if padded else None
    full = model(source, target, mask)
    cache = model.start(source, mask, max_length=T)
    parts = [model.continued(target[:, :prefill], cache)]
    for t in range(prefill, T):
        parts.append(model.continued(target[:, t : t + 1], cache))
    assert (torch.cat(parts, 1) - full).abs().max() < 1e-9
    assert cache.nbytes == 2 * L * B * H * K * (T + S) * 8
    with pytest.raises(ValueError, match="up to max_length 5"):
        model.advance(target[:, :1], cache)


def test_all_padding_row_gives_numbers_and_no_leak():
    torch.manual_seed(0)
    model = T5(T5Config(**SIZES, **BUCKETS)).double().eval()
    source, target = numbers(B, S, 1), numbers(B, T, 2)
    logits = model(source, target, padding_mask([7, 0, 5], S))
    assert logits.isfinite().all()
    other = source.clone()
    other[1] = (other[1] + 1) % Y
    assert torch.equal(model(other, target, padding_mask([7, 0, 5], S)), logits)
    changed = target.clone()
    changed[:, 3] = (changed[:, 3] + 1) % Y
    after = model(source, changed)
    assert torch.equal(after[:, :3], model(source, target)[:, :3])


def test_biased_attention_by_hand():
    q = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    v = torch.tensor([[[[3.0], [7.0]]]], dtype=torch.float64)
    bias = torch.tensor([0.0, 3.0], dtype=torch.float64).log().clamp(min=-50)[None, None, None]
    out, weights = attend_biased(q, q.expand(1, 1, 2, 2), v, bias)
    assert abs(out.item() - 7.0) < 1e-9
    assert abs(weights.sum() - 1) < 1e-12


def test_t5_base_has_its_published_size():
    with torch.device("meta"):
        model = T5(T5Config())
    assert parameters(model) == 222_903_552


def test_bad_input():
    model = T5(T5Config(**SIZES, **BUCKETS))
    with pytest.raises(ValueError, match="target: got 2 rows; allowed: 3, as the source"):
        model(numbers(3, S, 1), numbers(2, T, 1))
    square = torch.ones(S, S, dtype=torch.bool)  # with T = S cross-attention would take it as well
    for call in (lambda: model(numbers(3, S, 1), numbers(3, S, 2), square),
                 lambda: model.start(numbers(3, S, 1), square)):  # fmt: skip
        with pytest.raises(ValueError, match="source_mask: got shape .7, 7.; allowed: a mask with"):
            call()
    with pytest.raises(ValueError, match="source: got shape"):
        model.encode(numbers(3, S, 1)[0])
    with pytest.raises(ValueError, match="max_length: got 0"):
        model.start(numbers(3, S, 1), max_length=0)
