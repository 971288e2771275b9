"""GPT against GPT-2 and Llama of transformers, and against itself with a cache."""

import itertools
import pickle

import pytest
import torch
from torch import nn

from labcore.attention import causal_mask, padding_mask, window_mask
from labcore.blocks import EncoderBlock
from labcore.metrics import parameters
from labcore.models import GPT, GPTConfig
from labcore.models.gpt import GPTBlock

B, T, D, H, G, L, Y = 3, 5, 24, 4, 2, 2, 10
SIZES = {"vocabulary": Y, "width": D, "layers": L, "heads": H, "hidden": 17, "max_length": 13}
LLAMA = {"norm": "rms", "position": "rope", "gated": True, "bias": False, "activation": "silu"}


def ids(rows=B, length=T, seed=1):
    return torch.randint(0, Y, (rows, length), generator=torch.Generator().manual_seed(seed))


def gpt(seed=0, **switches):
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**SIZES, **switches})).double().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


def gpt2_pair():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=Y, n_embd=D, n_layer=L, n_head=H, n_inner=17, n_positions=13
    )
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    ours, state = gpt(), theirs.transformer.state_dict()
    new = {"tokens.weight": state["wte.weight"], "positions.weight": state["wpe.weight"]}
    new |= {"norm.weight": state["ln_f.weight"], "norm.bias": state["ln_f.bias"]}
    names = {"ln_1": "attention_norm", "ln_2": "ffn_norm"}
    linear = {"attn.c_proj": "attention.o_proj", "mlp.c_fc": "ffn.up_proj"}
    linear |= {"mlp.c_proj": "ffn.down_proj"}
    for i, kind in itertools.product(range(L), ("weight", "bias")):
        for theirs_name, name in names.items():
            new[f"blocks.{i}.{name}.{kind}"] = state[f"h.{i}.{theirs_name}.{kind}"]
        for theirs_name, name in linear.items():
            tensor = state[f"h.{i}.{theirs_name}.{kind}"]
            new[f"blocks.{i}.{name}.{kind}"] = tensor.T if tensor.ndim == 2 else tensor
        parts = state[f"h.{i}.attn.c_attn.{kind}"].chunk(3, dim=-1)
        for letter, part in zip("qkv", parts, strict=True):
            new[f"blocks.{i}.attention.{letter}_proj.{kind}"] = part.T if part.ndim == 2 else part
    ours.load_state_dict(new)
    return ours, theirs


def double_llama(monkeypatch, **sizes):
    """A Llama whose norms and angles stay in float64: as published they pass through float32."""
    transformers = pytest.importorskip("transformers")
    module = transformers.models.llama.modeling_llama

    def norm(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    def angles(self, x, position_ids):
        width, base = D // H, self.config.rope_parameters["rope_theta"]
        steps = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        turned = (position_ids[..., None].double() * steps).repeat(1, 1, 2)
        return turned.cos(), turned.sin()

    monkeypatch.setattr(module.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(module.LlamaRotaryEmbedding, "forward", angles)
    config = transformers.LlamaConfig(
        vocab_size=Y,
        hidden_size=D,
        num_hidden_layers=L,
        num_attention_heads=H,
        num_key_value_heads=G,
        intermediate_size=17,
        rms_norm_eps=1e-5,
        **sizes,
    )
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).double().eval()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    return theirs


RENAMED = (
    ("model.embed_tokens", "tokens"),
    ("model.layers", "blocks"),
    ("model.norm", "norm"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn", "attention"),
    ("mlp", "ffn"),
    ("lm_head", "head"),
)


def llama_state(theirs, tied):
    state = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in RENAMED:
            name = name.replace(old, new)
        if not (tied and name == "head.weight"):
            state[name] = tensor
    return state


def test_equals_gpt2_with_gradients():
    ours, theirs = gpt2_pair()
    given = ids()
    logits, wanted = ours(given), theirs(given).logits
    assert (logits - wanted).abs().max() < 1e-9
    for found in (logits, wanted):
        nn.functional.cross_entropy(found[:, :-1].flatten(0, 1), given[:, 1:].flatten()).backward()
    pairs = [
        (ours.tokens.weight.grad, theirs.transformer.wte.weight.grad),
        (ours.positions.weight.grad, theirs.transformer.wpe.weight.grad),
        (ours.blocks[0].ffn.up_proj.weight.grad, theirs.transformer.h[0].mlp.c_fc.weight.grad.T),
        (ours.blocks[1].attention_norm.bias.grad, theirs.transformer.h[1].ln_1.bias.grad),
    ]
    for mine, other in pairs:
        assert (mine - other).abs().max() < 1e-9


@pytest.mark.parametrize("tied", [True, False])
def test_equals_llama(monkeypatch, tied):
    theirs = double_llama(monkeypatch, tie_word_embeddings=tied)
    ours = gpt(**LLAMA, kv_heads=G, tied=tied)
    ours.load_state_dict(llama_state(theirs, tied))
    given = ids(length=9)
    assert (ours(given) - theirs(given).logits).abs().max() < 1e-9


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_block_equals_torch_in_both_orders(order):
    config = GPTConfig(**{**SIZES, "order": order, "activation": "relu"})
    first = order == "pre"
    theirs = nn.TransformerEncoderLayer(
        D, H, config.hidden, 0.0, batch_first=True, norm_first=first
    )
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    ours = GPTBlock(config).double()
    ours.load_state_dict(EncoderBlock.from_torch(theirs.double()).state_dict())
    x = torch.randn(B, T, D, dtype=torch.float64)
    assert (ours(x) - theirs(x, ~causal_mask(T))).abs().max() < 1e-9


@pytest.mark.parametrize("switches", [{}, LLAMA], ids=["gpt2", "llama"])
def test_under_autocast_and_pickled(switches):
    model, given = gpt(**switches), ids()
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        found = model(given)
    assert found.dtype == torch.bfloat16
    wanted = model(given)
    assert (found.float() - wanted).abs().max() < 0.05 * wanted.abs().max()
    assert torch.equal(pickle.loads(pickle.dumps(model))(given), wanted)


def test_left_padding_equals_each_row_alone():
    ours, lengths = gpt(**LLAMA, kv_heads=G), [5, 2, 4]
    given = ids()
    keep = padding_mask(lengths, T).flip(-1)
    places = (torch.arange(T) - (T - torch.tensor(lengths))[:, None]).clamp(min=0)
    padded = ours(given, keep, positions=places)
    for b, length in enumerate(lengths):
        alone = ours(given[b : b + 1, T - length :])
        assert (padded[b, T - length :] - alone[0]).abs().max() < 1e-9


SWITCHES = [
    {},
    {"position": "sinusoidal", "order": "post"},
    {"position": "none", "tied": False},
    {**LLAMA, "kv_heads": G},
    {**LLAMA, "kv_heads": 1, "key_width": 8},
]


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("window", [None, 1, 2, 3, 9, 10, 12])
@torch.no_grad()
def test_cached_equals_full_for_every_split(switches, window):
    """Every cut of 9 tokens into a prefill, single steps and a second piece."""
    model, given = gpt(**switches, window=window), ids(length=9)
    full = model(given)
    for prefill, steps in itertools.product(range(1, 10), range(10)):
        if prefill + steps > 9:
            continue
        cache = model.new_cache(B, 9)
        parts = [model(given[:, :prefill], cache=cache)]
        for t in range(prefill, prefill + steps):
            parts.append(model(given[:, t : t + 1], cache=cache))
        if prefill + steps < 9:
            parts.append(model(given[:, prefill + steps :], cache=cache))
        assert cache.length == 9
        assert (torch.cat(parts, 1) - full).abs().max() < 1e-9


@pytest.mark.parametrize("window", [2, 4])
def test_window_is_the_window_mask(window):
    given = ids(length=9)
    windowed, plain = gpt(**LLAMA, window=window), gpt(**LLAMA)
    mask = window_mask(9, 9, window)
    assert (windowed(given) - plain(given, mask)).abs().max() < 1e-9
    logits, maps = windowed(given, need_weights=True)
    assert (logits - windowed(given)).abs().max() < 1e-9
    assert torch.equal(maps[1][0, 0] > 0, mask)


@pytest.mark.parametrize("switches", SWITCHES)
def test_the_future_does_not_leak(switches):
    model, given = gpt(**switches), ids()
    before, changed = model(given), given.clone()
    changed[:, 3] = (changed[:, 3] + 1) % Y
    after = model(changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().amax(-1).min() > 1e-6


def test_padding_works_beside_a_window_and_a_cache():
    model, given = gpt(**LLAMA, window=3), ids()
    keep = padding_mask([5, 4, 5], T).flip(-1)
    full = model(given, keep)
    with torch.no_grad():
        cache = model.new_cache(B, T)
        first = model(given[:, :2], keep[..., :2], cache=cache)
        second = model(given[:, 2:], keep, cache=cache)
    assert (torch.cat([first, second], 1) - full).abs().max() < 1e-9


def test_gpt2_small_has_its_published_size():
    with torch.device("meta"):
        model = GPT(GPTConfig())
    assert parameters(model) == 124_439_808


def test_advance_gives_the_last_logits():
    model, given = gpt(tied=False), ids()
    with torch.no_grad():
        apart = model.advance(given, model.new_cache(B)) - model(given)[:, -1]
    assert apart.abs().max() < 1e-12


@pytest.mark.parametrize(
    ("name", "value"),
    [("norm", "batch"), ("order", "sandwich"), ("position", "alibi"), ("window", 0)],
)
def test_bad_switches(name, value):
    with pytest.raises(ValueError, match=f"{name}: got"):
        GPTConfig(**{name: value})


def test_bad_head_widths():
    with pytest.raises(ValueError, match="heads: got 5; allowed: a divisor of width 24"):
        GPTConfig(**{**SIZES, "heads": 5})
    for switches, width in (({"key_width": 7}, 7), ({"heads": 8}, 3)):
        GPTConfig(**{**SIZES, **switches})
        with pytest.raises(ValueError, match=f"key_width: got {width}; allowed: an even number"):
            GPTConfig(**{**SIZES, **switches, "position": "rope"})


def test_bad_input():
    model = gpt()
    with pytest.raises(ValueError, match="ids: got shape"):
        model(ids()[0])
    with pytest.raises(ValueError, match="ids: got 14 tokens; allowed: up to max_length 13"):
        model(ids(length=14))
    with pytest.raises(ValueError, match="ids: got values"):
        model(ids() + Y)
    with pytest.raises(ValueError, match="ids: got 3 rows; allowed: 2"):
        model(ids(), cache=model.new_cache(2))
    with torch.no_grad(), pytest.raises(ValueError, match="up to max_length 4"):
        model(ids(), cache=model.new_cache(B, 4))
    with pytest.raises(ValueError, match="needs gradients"):
        model(ids(), cache=model.new_cache(B))
    with pytest.raises(ValueError, match="cache: got 3 layers"):
        model(ids(), cache=gpt(layers=3).new_cache(B))
