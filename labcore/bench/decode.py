"""Rows of decoding: our cached steps against transformers' `generate()` and against no cache."""

import functools

import torch

from labcore.bench.registry import row
from labcore.decode.cached import CachedScore
from labcore.models.gpt import GPT, GPTConfig

SIZES = {"vocabulary": 1000, "width": 256, "layers": 2, "heads": 4, "hidden": 688}
LLAMA = {"norm": "rms", "position": "rope", "gated": True, "bias": False, "activation": "silu"}
PROMPT, NEW = 16, 64
RENAMED = (
    ("model.embed_tokens", "tokens"),
    ("model.layers", "blocks"),
    ("model.norm", "norm"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn", "attention"),
    ("mlp", "ffn"),
)


def llama_pair(layers, device):
    """(ours, theirs): a GPT with Llama's switches and transformers' Llama with the same weights."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=SIZES["vocabulary"],
        hidden_size=SIZES["width"],
        num_hidden_layers=layers,
        num_attention_heads=SIZES["heads"],
        num_key_value_heads=SIZES["heads"],
        intermediate_size=SIZES["hidden"],
        rms_norm_eps=1e-5,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        # No token ends a text: both sides make all the tokens asked for.
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    theirs = transformers.LlamaForCausalLM(config).to(device).eval()
    ours = GPT(GPTConfig(**{**SIZES, "layers": layers}, **LLAMA)).to(device).eval()
    state = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in RENAMED:
            name = name.replace(old, new)
        if not name.startswith("lm_head"):
            state[name] = tensor
    ours.load_state_dict(state)
    return ours, theirs


def cached(model, prompt, new=NEW):
    """Ids [B, T + new]: the prompt and what the largest score picks after it, with a cache."""
    score, ids = CachedScore(model, model.new_cache(prompt.shape[0], prompt.shape[1] + new)), prompt
    for _ in range(new):
        ids = torch.cat([ids, score(ids).argmax(-1, keepdim=True)], 1)
    return ids


@torch.no_grad()
def recomputed(model, prompt, new=NEW):
    """The same ids, with the whole prefix computed again for every token."""
    ids = prompt
    for _ in range(new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def _prompt(batch, device):
    draw = torch.Generator().manual_seed(1)
    return torch.randint(1, SIZES["vocabulary"], (batch, PROMPT), generator=draw).to(device)


def _against_generate(batch, device):
    ours, theirs = llama_pair(SIZES["layers"], device)
    prompt = _prompt(batch, device)
    options = {"max_new_tokens": NEW, "do_sample": False, "use_cache": True}
    options |= {"attention_mask": torch.ones_like(prompt)}

    @torch.no_grad()
    def generate():
        return theirs.generate(prompt, **options)

    return functools.partial(cached, ours, prompt), generate


def _against_no_cache(new, device):
    model, _ = llama_pair(SIZES["layers"], device)
    prompt = _prompt(1, device)
    ours = functools.partial(cached, model, prompt, new)
    return ours, functools.partial(recomputed, model, prompt, new)


def _register():
    for batch, floor, goal in ((1, 1.4, 1.8), (8, 1.3, 1.5)):
        title = f"cached decoding, 2 layers, width 256, prompt {PROMPT}, {NEW} new, batch {batch}"
        build = functools.partial(_against_generate, batch)
        row("decode", title, against="Llama generate()", floor=floor, goal=goal)(build)
    for new in (16, 64, 256):
        title = f"cache or none, 2 layers, width 256, prompt {PROMPT}, {new} new, batch 1"
        build = functools.partial(_against_no_cache, new)
        row("decode", title, against="the same model without a cache")(build)


_register()
