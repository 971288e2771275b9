"""Rows of training: a step of our GPT against GPT-2 and Llama of transformers."""

import functools

import torch
import torch.nn.functional as F

from labcore.bench.decode import SIZES, llama_pair
from labcore.bench.registry import row
from labcore.models.gpt import GPT, GPTConfig

LAYERS, BATCH, LENGTH = 4, 8, 128


def _ids(device):
    draw = torch.Generator().manual_seed(1)
    # Id 0 is the padding of the other side, which gives its row no gradient.
    return torch.randint(1, SIZES["vocabulary"], (BATCH, LENGTH), generator=draw).to(device)


def _gpt2_pair(device):
    import transformers

    torch.manual_seed(0)
    width = SIZES["width"]
    config = transformers.GPT2Config(
        vocab_size=SIZES["vocabulary"],
        n_embd=width,
        n_layer=LAYERS,
        n_head=SIZES["heads"],
        n_positions=LENGTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    theirs = transformers.GPT2LMHeadModel(config).to(device).train()
    sizes = {**SIZES, "hidden": 4 * width, "layers": LAYERS, "max_length": LENGTH}
    ours = GPT(GPTConfig(**sizes)).to(device).train()
    body = theirs.transformer
    with torch.no_grad():
        ours.tokens.weight.copy_(body.wte.weight)
        ours.positions.weight.copy_(body.wpe.weight)
        ours.norm.load_state_dict(body.ln_f.state_dict())
        for mine, other in zip(ours.blocks, body.h, strict=True):
            mine.attention_norm.load_state_dict(other.ln_1.state_dict())
            mine.ffn_norm.load_state_dict(other.ln_2.state_dict())
            layer = mine.attention
            for part, W, b in zip(
                (layer.q_proj, layer.k_proj, layer.v_proj),
                other.attn.c_attn.weight.chunk(3, 1),
                other.attn.c_attn.bias.chunk(3),
                strict=True,
            ):
                part.weight.copy_(W.T), part.bias.copy_(b)
            pairs = ((layer.o_proj, other.attn.c_proj), (mine.ffn.up_proj, other.mlp.c_fc))
            for part, conv in (*pairs, (mine.ffn.down_proj, other.mlp.c_proj)):
                part.weight.copy_(conv.weight.T), part.bias.copy_(conv.bias)
    return ours, theirs


def _steps(ours, theirs, table, device):
    """Functions of one step, forward, loss, backward; they return loss and the table's gradient."""
    ids = _ids(device)

    def our_step():
        ours.zero_grad()
        logits = ours(ids)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        return loss, ours.tokens.weight.grad

    def their_step():
        theirs.zero_grad()
        loss = theirs(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss, table.grad

    return our_step, their_step


def _gpt2(device):
    ours, theirs = _gpt2_pair(device)
    return _steps(ours, theirs, theirs.transformer.wte.weight, device)


def _llama(device):
    ours, theirs = llama_pair(LAYERS, device)
    return _steps(ours.train(), theirs.train(), theirs.model.embed_tokens.weight, device)


def _register():
    work = f"forward, loss, backward: {LAYERS} layers, width 256, {BATCH} × {LENGTH} tokens"
    for against, floor, goal, build in (
        ("GPT2LMHeadModel", 1.05, 1.15, _gpt2),
        ("LlamaForCausalLM", 0.95, 1.0, _llama),
    ):
        title = f"GPT as {against.partition('L')[0] or 'Llama'}, {work}"
        row("train", title, against=against, floor=floor, goal=goal)(functools.partial(build))


_register()
