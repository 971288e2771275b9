"""Whole models, and the door to real weights for them."""

from labcore.models.bert import Bert, BertConfig, BertForClassification, BertForMaskedTokens
from labcore.models.encoder import Encoder, Tagger
from labcore.models.gpt import GPT, GPTConfig
from labcore.models.pretrained import available, from_pretrained
from labcore.models.seq2seq import Seq2Seq
from labcore.models.t5 import T5, T5Config

__all__ = [
    "Bert",
    "BertConfig",
    "BertForClassification",
    "BertForMaskedTokens",
    "Encoder",
    "GPT",
    "GPTConfig",
    "Seq2Seq",
    "T5",
    "T5Config",
    "Tagger",
    "available",
    "from_pretrained",
    "sentence_attention",
]


def __getattr__(name):
    """`sentence_attention`, imported when asked for: its module also runs as a program."""
    if name == "sentence_attention":
        from labcore.models.recorded import sentence_attention

        return sentence_attention
    raise AttributeError(f"labcore.models has no {name!r}")
