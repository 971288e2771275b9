"""BERT's two heads against transformers, masked tokens and classification."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.metrics import parameters
from labcore.models import Bert, BertConfig, BertForClassification, BertForMaskedTokens
from labcore.models.pretrained import bert_config, renamed

B, T, Y, CLASSES = 3, 5, 23, 7
SIZES = {
    "vocab_size": Y,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 17,
    "max_position_embeddings": 9,
    "type_vocab_size": 3,
    "attn_implementation": "eager",
}


def their_model(kind, **more):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, **more)
    model = getattr(transformers, kind)(config).double().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


def body(theirs):
    return {f"bert.{n}": p for n, p in renamed(theirs.bert.state_dict()).items()}


def inputs():
    draw = torch.Generator().manual_seed(1)
    mask = padding_mask([5, 2, 4], T)
    types = torch.randint(0, 3, (B, T), generator=draw)
    return torch.randint(0, Y, (B, T), generator=draw), mask, types


def test_masked_tokens_equal_transformers():
    theirs = their_model("BertForMaskedLM")
    ours = BertForMaskedTokens(bert_config(theirs.config.to_dict())).double().eval()
    head = theirs.cls.predictions
    state = body(theirs) | {"bias": head.bias}
    state |= {f"bert.pooler.{n}": p for n, p in ours.bert.pooler.state_dict().items()}
    state |= {f"dense.{n}": p for n, p in head.transform.dense.state_dict().items()}
    state |= {f"norm.{n}": p for n, p in head.transform.LayerNorm.state_dict().items()}
    ours.load_state_dict(state)
    ids, mask, types = inputs()
    labels = torch.where(torch.arange(T) % 2 == 0, ids, -100)
    wanted = theirs(ids, attention_mask=mask[:, 0, 0].long(), token_type_ids=types, labels=labels)
    logits = ours(ids, mask, types)
    assert (logits - wanted.logits).abs().max() < 1e-9
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert abs(loss - wanted.loss) < 1e-9
    loss.backward(), wanted.loss.backward()
    theirs_table = theirs.bert.embeddings.word_embeddings.weight
    # The published table never trains the row of its padding id.
    assert (ours.bert.tokens.weight.grad - theirs_table.grad)[1:].abs().max() < 1e-9
    assert (ours.bias.grad - head.bias.grad).abs().max() < 1e-9


def test_classification_equals_transformers():
    theirs = their_model("BertForSequenceClassification", num_labels=CLASSES)
    config = bert_config(theirs.config.to_dict())
    ours = BertForClassification(config, CLASSES).double().eval()
    state = {f"classifier.{n}": p for n, p in theirs.classifier.state_dict().items()}
    ours.load_state_dict(body(theirs) | state)
    ids, mask, types = inputs()
    wanted = theirs(ids, attention_mask=mask[:, 0, 0].long(), token_type_ids=types).logits
    assert ours(ids, mask, types).shape == (B, CLASSES)
    assert (ours(ids, mask, types) - wanted).abs().max() < 1e-9


def test_the_body_may_come_from_masked_tokens():
    config = BertConfig(Y, 12, 2, 4, 17, 9)
    trained = BertForMaskedTokens(config)
    assert BertForClassification(config, 2, bert=trained.bert).bert is trained.bert


def test_bert_base_has_its_published_size():
    with torch.device("meta"):
        model = Bert(BertConfig())
    assert parameters(model) == 109_482_240


def test_bad_input():
    with pytest.raises(ValueError, match="classes: got 1"):
        BertForClassification(BertConfig(Y, 12, 2, 4, 17, 9), 1)
