"""SmolLM2-135M, read from the GGUF file of an installed package into this book's `GPT`.

Allal et al. 2025; instruction-tuned weights, Apache-2.0. The file holds them in 4 and 8 bits with a
scale for each 32 numbers; they are brought back to floating point here, so our numbers are those of
the file and not of the original release. GGUF keeps the rows of W_Q and W_K in the interleaved
order of rotary pairs; `to_halves` puts them into ours.
"""

import torch

from labcore.embed.rope import to_halves
from labcore.models.gpt import GPT, GPTConfig
from labcore.shapes import require

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

# A part of the name in the file, and what the same tensor is called here.
_RENAMED = (
    ("token_embd.", "tokens."),
    ("output_norm.", "norm."),
    ("blk.", "blocks."),
    ("attn_norm", "attention_norm"),
    ("attn_q", "attention.q_proj"),
    ("attn_k", "attention.k_proj"),
    ("attn_v", "attention.v_proj"),
    ("attn_output", "attention.o_proj"),
    ("ffn_gate", "ffn.gate_proj"),
    ("ffn_up", "ffn.up_proj"),
    ("ffn_down", "ffn.down_proj"),
)


def load(path, dtype=torch.float32):
    """The pair (GPT in eval mode, tokenizer) of a GGUF file of the Llama kind.

    The tokenizer is a `tokenizers.Tokenizer`; it adds no token of its own.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = gpt_config(fields)
    with torch.device("meta"):
        model = GPT(config)
    weights = {}
    for tensor in reader.tensors:
        number = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(dtype)
        name = renamed(tensor.name)
        if "q_proj" in name or "k_proj" in name:
            number = to_halves(number, config.heads if "q_proj" in name else config.kv_heads)
        weights[name] = number
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False).eval(), tokenizer(fields)


def gpt_config(fields):
    """The `GPTConfig` of the metadata of a GGUF file, a dict."""
    kind = fields.get("general.architecture")
    require(kind == "llama", "file", repr(kind), "the architecture 'llama'")
    width, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return GPTConfig(
        vocabulary=len(fields["tokenizer.ggml.tokens"]),
        width=width,
        layers=fields["llama.block_count"],
        heads=heads,
        kv_heads=fields["llama.attention.head_count_kv"],
        hidden=fields["llama.feed_forward_length"],
        max_length=fields["llama.context_length"],
        norm="rms",
        position="rope",
        rope_base=float(fields["llama.rope.freq_base"]),
        activation="silu",
        gated=True,
        bias=False,
        # The file stores the number in 32 bits: 9.999999747e-06 stands for 1e-05.
        eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
    )


def renamed(name):
    """Our name for a tensor of the file.

    >>> renamed("blk.7.attn_output.weight")
    'blocks.7.attention.o_proj.weight'
    """
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    return name


def tokenizer(fields):
    """The byte-level BPE tokenizer that the metadata of the file describes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    control = 3  # GGUF's mark of tokens that no text contains
    kinds = fields["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return made
