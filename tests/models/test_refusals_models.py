"""Models refuse bad input before they compute, and a refused call leaves a cache as it was."""

import math

import pytest
import torch
from torch import nn

from labcore.attention import MultiHeadAttention
from labcore.attention.cache import KVCache, LayerCache
from labcore.blocks import DecoderBlock, EncoderBlock, MixerBlock, WiredAttention, connections
from labcore.models import (
    GPT,
    T5,
    Bert,
    BertConfig,
    Encoder,
    GPTConfig,
    Seq2Seq,
    T5Config,
)
from labcore.models.decoder import Decoder, decoder_mask, left_padding
from labcore.models.encoder import turned, without_padding
from labcore.models.las import ListenAttendSpell, Listener, spoken
from labcore.models.nar import PrefixDecoder, empty_slots, predicted_lengths, side_by_side
from labcore.models.t5 import T5Block, attend_biased

B, T, S, D, H, L, Y = 3, 5, 7, 12, 4, 2, 10
SIZES = {"vocabulary": Y, "width": D, "layers": L, "heads": H, "hidden": 17}
X, MEMORY = torch.ones(B, T, D), torch.ones(B, S, D)
IDS, SOURCE = torch.ones(B, T, dtype=torch.long), torch.ones(B, S, dtype=torch.long)
QUERIES, KEYS = torch.ones(B, H, T, 6), torch.ones(B, H, S, 6)
POSITIONS = ("learned", "sinusoidal", "rope", "none")
NOT_IDS = ((IDS.float(), TypeError), (IDS.tolist(), TypeError), (IDS[0], ValueError))
NOT_IDS = (*NOT_IDS, (IDS + Y, ValueError), (-IDS, ValueError))


def gpt(seed=0, **switches):
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**SIZES, "max_length": 9, "key_width": 6, **switches})).double().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


def t5(**switches):
    torch.manual_seed(0)
    return T5(T5Config(**{**SIZES, "key_width": 5, **switches})).double().eval()


def seq2seq(**changes):
    torch.manual_seed(0)
    sizes = {"width": D, "heads": H, "hidden": 19, "layers": L, **changes}
    return Seq2Seq(17, Y, **sizes).double().eval()


def slots(**changes):
    return PrefixDecoder(9, Y, D, H, 17, L, **{"max_target": 6, **changes})


def read(source=SOURCE, lengths=(7, 2, 4), target=IDS, ends=None):
    return slots()(source, torch.tensor(lengths), target, ends)


def decoder(**changes):
    return Decoder(**{**SIZES, "max_length": 9, **changes})


def numbers(rows, length, seed=1):
    return torch.randint(0, Y, (rows, length), generator=torch.Generator().manual_seed(seed))


CONFIGS = {
    GPTConfig: ("vocabulary", "width", "layers", "heads", "hidden", "max_length"),
    T5Config: ("vocabulary", "width", "layers", "heads", "hidden", "key_width"),
}
FLAGS = {GPTConfig: ("gated", "bias", "tied"), T5Config: ("gated", "tied")}
DROPOUTS = {
    "GPT": lambda x: GPTConfig(dropout=x),
    "T5": lambda x: T5Config(dropout=x),
    "BERT": lambda x: Bert(BertConfig(**SIZES, max_length=9, dropout=x)),
    "Seq2Seq": lambda x: seq2seq(dropout=x),
    "encoder block": lambda x: EncoderBlock(D, H, 17, dropout=x),
    "mixer block": lambda x: MixerBlock(None, D, 17, dropout=x),
    "decoder block": lambda x: DecoderBlock(D, H, 17, dropout=x),
    "encoder": lambda x: Encoder("cnn", D, L, dropout=x),
}
CACHED = {"kv_heads": H, "key_width": 3}

REFUSED = [
    *[
        (name, ValueError, lambda make=make, name=name, x=x: make(**{name: x}))
        for make, names in CONFIGS.items()
        for name in names
        for x in (0, -2, 1.5, True)
    ],
    *[
        (name, TypeError, lambda make=make, name=name, x=x: make(**{name: x}))
        for make, names in FLAGS.items()
        for name in names
        for x in ("no", None, 1)
    ],
    *[
        (name, ValueError, lambda name=name, x=x: GPTConfig(**{name: x}))
        for name in ("kv_heads", "key_width", "window")
        for x in (0, 1.5, True)
    ],
    *[("eps", ValueError, lambda make=make: make(eps=math.nan)) for make in CONFIGS],
    *[
        ("dropout", ValueError, lambda make=make, x=x: make(x))
        for make in DROPOUTS.values()
        for x in (math.nan, 2.0, -0.1, "0.1", True)
    ],
    *[("config", TypeError, lambda make=make: make(None)) for make in (GPT, T5)],
    # GPT
    *[("ids", error, lambda x=x: gpt()(x)) for x, error in NOT_IDS],
    *[
        ("ids", ValueError, lambda position=position: gpt(position=position)(numbers(B, 10)))
        for position in POSITIONS
    ],
    *[
        (
            "positions",
            error,
            lambda position=position, x=x: gpt(position=position)(IDS, positions=x),
        )
        for position in POSITIONS
        for x, error in (
            (torch.arange(T).float(), TypeError),
            (torch.arange(T) - 1, ValueError),
            (torch.arange(T + 1), ValueError),
        )
    ],
    ("ids", ValueError, lambda: gpt().advance(IDS[:, :0], gpt().new_cache(B))),
    ("need_weights", TypeError, lambda: gpt()(IDS, need_weights="no")),
    ("cache", TypeError, lambda: gpt()(IDS, cache=LayerCache(B, 9, **CACHED))),
    *[("max_length", ValueError, lambda n=n: gpt().new_cache(1, n)) for n in (0, -1, 1.5, True)],
    *[
        ("dtype", TypeError, lambda dtype=dtype: LayerCache(B, 9, **CACHED, dtype=dtype))
        for dtype in (torch.int64, torch.bool, "float32")
    ],
    *[("length", ValueError, lambda n=n: gpt().new_cache(B).cut(n)) for n in (True, -1, 1, 0.0)],
    # T5
    *[("source", error, lambda x=x: t5().encode(x)) for x, error in NOT_IDS],
    *[("target", error, lambda x=x: t5()(SOURCE, x)) for x, error in NOT_IDS],
    *[("source", error, lambda x=x: t5().start(x)) for x, error in NOT_IDS],
    *[
        ("memory", error, lambda x=x: t5().decode(IDS, x))
        for x, error in (
            (torch.ones(B, S, D + 1).double(), ValueError),
            (MEMORY[0].double(), ValueError),
            (MEMORY, TypeError),
            (None, TypeError),
        )
    ],
    ("cache", TypeError, lambda: t5().advance(IDS, KVCache(L, B, 9, kv_heads=H, key_width=5))),
    ("cache", TypeError, lambda: t5().advance(IDS, None)),
    ("cache", ValueError, lambda: t5(layers=3).advance(IDS, t5().start(SOURCE))),
    ("ids", ValueError, lambda: t5().advance(IDS[:, :0], t5().start(SOURCE))),
    ("ids", ValueError, lambda: t5().advance(IDS[:2], t5().start(SOURCE))),
    ("memory", ValueError, lambda: T5Block(T5Config(**SIZES), cross=True)(X, None)),
    ("memory", ValueError, lambda: T5Block(T5Config(**SIZES), cross=False)(X, None, memory=1)),
    ("bias", ValueError, lambda: attend_biased(QUERIES, KEYS, KEYS, torch.zeros(1, 1, T, S))),
    ("bias", ValueError, lambda: attend_biased(QUERIES, KEYS, KEYS, torch.zeros(T, S))),
    ("k", ValueError, lambda: attend_biased(QUERIES, KEYS[:, :2], KEYS[:, :2])),
    ("v", ValueError, lambda: attend_biased(QUERIES, KEYS, KEYS[:, :, :1])),
    # encoder–decoder
    *[
        ("padding", ValueError, lambda x=x: Seq2Seq(17, Y, padding=x))
        for x in (99, 17, -1, 1.5, None, True)
    ],
    *[
        (name, ValueError, lambda name=name, x=x: seq2seq(**{name: x}))
        for name in ("width", "layers")
        for x in (0, -1, 1.5, "x", True)
    ],
    *[("target_size", ValueError, lambda x=x: Seq2Seq(17, x)) for x in (0, "x", 10**400)],
    ("kernel", ValueError, lambda: Encoder("rnn", D, L, kernel="x")),
    ("norm", ValueError, lambda: GPTConfig(norm=["rms"])),
    ("tied", TypeError, lambda: Seq2Seq(17, Y, tied="no")),
    *[
        ("memory", error, lambda x=x, wiring=wiring: seq2seq(wiring=wiring).decode(IDS, x))
        for wiring in ("last", "same")
        for x, error in (
            (None, TypeError),
            (MEMORY[0].double(), ValueError),
            (torch.ones(D), ValueError),
            (torch.ones(B, S, D + 1), ValueError),
            (torch.ones(L + 1, B, S, D), ValueError),
        )
    ],
    ("embedded", ValueError, lambda: seq2seq().decode_vectors(X[0].double(), MEMORY.double())),
    *[("source", error, lambda x=x: seq2seq().encode(x)) for x, error in NOT_IDS[:3]],
    *[("prefix", error, lambda x=x: seq2seq().scorer(SOURCE)(x)) for x, error in NOT_IDS],
    ("prefix", ValueError, lambda: seq2seq().scorer(SOURCE)(IDS[:, :0])),
    ("memory", TypeError, lambda: DecoderBlock(D, H, 17)(X, None)),
    ("residual", TypeError, lambda: EncoderBlock(D, H, 17, residual="no")),
    # wirings
    *[("layers", ValueError, lambda n=n: connections("same", n)) for n in (0, -1, 1.5, "x")],
    *[
        ("layers", ValueError, lambda n=n: WiredAttention(MultiHeadAttention(D, H), "same", 0, n))
        for n in (0, 1.5, "x", True)
    ],
    *[
        ("layer", ValueError, lambda n=n: WiredAttention(MultiHeadAttention(D, H), "same", n, L))
        for n in (L, -1, 0.5, True)
    ],
    ("attention", TypeError, lambda: WiredAttention(5, "same", 0, L)),
    (
        "memories",
        TypeError,
        lambda: WiredAttention(MultiHeadAttention(D, H), "same", 0, L)(X, None),
    ),
    # decoder alone
    *[("ids", error, lambda x=x: decoder()(x)) for x, error in NOT_IDS],
    *[("layers", ValueError, lambda n=n: decoder(layers=n)) for n in (0, -1, 1.5)],
    *[("pad", ValueError, lambda x=x: decoder().scorer(x)) for x in (Y, -1, 1.5, True)],
    ("ids", ValueError, lambda: decoder().scorer()(IDS[:, :0])),
    ("T", ValueError, lambda: decoder_mask("none", -1)),
    ("pad", ValueError, lambda: left_padding(IDS, 1.5)),
    ("ids", TypeError, lambda: left_padding(IDS.tolist(), 0)),
    # one stack for source and target
    *[("target", error, lambda x=x: read(target=x)) for x, error in NOT_IDS],
    *[("source", error, lambda x=x: read(source=x)) for x, error in NOT_IDS],
    ("target", ValueError, lambda: read(target=IDS[:2])),
    ("lengths", TypeError, lambda: slots()(SOURCE, None, IDS)),
    ("T", ValueError, lambda: side_by_side(S, [7, 2, 4], -1, causal=True)),
    ("source", TypeError, lambda: predicted_lengths(slots(), [[1]], [1])),
    ("source_lengths", ValueError, lambda: read(lengths=(7,))),
    ("target_lengths", ValueError, lambda: read(ends=torch.tensor([5]))),
    *[
        ("layers", ValueError, lambda n=n: PrefixDecoder(9, Y, D, H, 17, n, max_target=6))
        for n in (0, 1.5)
    ],
    ("max_target", ValueError, lambda: slots(max_target=0)),
    ("parallel", TypeError, lambda: slots(parallel="no")),
    ("ids", ValueError, lambda: slots().scorer(SOURCE, torch.tensor([7, 2, 4]))(IDS[:, :0])),
    ("lengths", ValueError, lambda: empty_slots(torch.tensor([3, 1]), 2)),
    ("lengths", TypeError, lambda: empty_slots(torch.tensor([1.5]))),
    # encoders
    ("lengths", ValueError, lambda: without_padding(X, [5])),
    ("lengths", ValueError, lambda: turned(X, [5])),
    ("lengths", ValueError, lambda: turned(X, [9, 1, 2])),
    # speech
    *[("width", ValueError, lambda n=n: Listener(6, n)) for n in (5, 0, 12.0)],
    *[("levels", ValueError, lambda n=n: Listener(6, D, n)) for n in (-1, 1.5, True)],
    ("frames", ValueError, lambda: Listener(6, D)(torch.ones(B, 0, 6))),
    ("frames", ValueError, lambda: Listener(6, D)(torch.ones(B, S, 7))),
    *[
        ("before", error, lambda x=x: ListenAttendSpell(6, Y)(torch.ones(B, 9, 6), x))
        for x, error in (*NOT_IDS, (IDS[:2], ValueError), (IDS[:, :0], ValueError))
    ],
    *[("texts", error, lambda x=x: spoken(x)) for x, error in NOT_IDS],
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


def test_a_block_without_a_source_is_the_encoder_s_with_a_causal_mask():
    block, x = EncoderBlock(D, H, 17).double(), torch.randn(B, T, D, dtype=torch.float64)
    changed = x.clone()
    changed[:, -1] += 9
    before, after = block(x, causal=True), block(changed, causal=True)
    assert torch.equal(before[:, :-1], after[:, :-1])


@pytest.mark.parametrize("padding", [0, 5, 16])
def test_padding_of_the_source_changes_nothing(padding):
    model = seq2seq(padding=padding)
    source = torch.randint(1, 5, (B, S), generator=torch.Generator().manual_seed(0))
    target = numbers(B, T)
    longer = nn.functional.pad(source, (0, 2), value=padding)
    assert (model(longer, target) - model(source, target)).abs().max() < 1e-9


def test_a_cache_has_the_room_that_is_asked_for():
    assert gpt().new_cache(B).max_length == 9
    assert gpt().new_cache(B, 4).max_length == 4


def test_slots_of_a_given_width():
    assert empty_slots(torch.tensor([3, 1]), 4).tolist() == [[3, 3, 3, 0], [3, 0, 0, 0]]
    assert empty_slots(torch.tensor([3, 1])).tolist() == [[3, 3, 3], [3, 0, 0]]
