"""The decoder alone: no leak from the future, padding and packing change nothing."""

import pytest
import torch

from labcore.attention import packed_mask, reach_after
from labcore.metrics import influence
from labcore.models.decoder import Decoder, decoder_mask, left_padding

B, T, Y, D = 3, 7, 11, 12
KINDS = [("causal", None), ("window", 3), ("chunk", 4)]


def build(kind="causal", size=None, norm="pre", layers=2):
    torch.manual_seed(0)
    return Decoder(Y, D, 4, 17, layers, max_length=9, kind=kind, size=size, norm=norm).double()


def tokens(seed=0, rows=B, length=T):
    return torch.randint(0, Y, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind, size", KINDS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_later_token_changes_no_earlier_output(kind, size, norm):
    model, ids = build(kind, size, norm), tokens()
    before = model(ids)
    for t in range(T):
        other = ids.clone()
        other[:, t] = (other[:, t] + 1) % Y
        moved = (model(other) - before).abs().amax((0, 2)) > 1e-12
        assert not bool(moved[:t].any())
        assert bool(moved[t])


def test_without_a_mask_every_output_moves():
    model, ids = build("none"), tokens()
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % Y
    assert bool(((model(other) - model(ids)).abs().amax((0, 2)) > 1e-6).all())


@pytest.mark.parametrize("kind, size", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_reach_is_the_mask_s_power(kind, size, layers):
    model = build(kind, size, layers=layers)

    def run(x):
        for block in model.blocks:
            x = block(x, decoder_mask(kind, T, size))
        return x

    x = torch.randn(T, D, dtype=torch.float64)
    assert torch.equal(influence(run, x) > 0, reach_after(decoder_mask(kind, T, size), layers))


@pytest.mark.parametrize("kind, size", KINDS)
def test_step_by_step_equals_all_at_once(kind, size):
    model, ids = build(kind, size), tokens()
    whole, score = model(ids), model.scorer()
    for t in range(1, T + 1):
        assert (score(ids[:, :t]) - whole[:, t - 1]).abs().max() < 1e-12


def test_left_padding_changes_nothing():
    model, ids = build(), tokens().clamp_min(1)
    score, plain = model.scorer(pad=0), model.scorer()
    for pads in (1, 2):
        padded = torch.cat([ids.new_zeros(B, pads), ids], dim=1)
        assert (score(padded) - plain(ids)).abs().max() < 1e-12
        assert (plain(padded) - plain(ids)).abs().max() > 1e-3
    mask, positions = left_padding(torch.tensor([[0, 0, 0]]), pad=0)
    assert not bool(mask.any()) and positions.tolist() == [[0, 0, 0]]


def test_packed_documents_equal_documents_alone():
    model, ids = build(), tokens(rows=1)
    documents, positions = torch.tensor([[0, 0, 0, 1, 1, 2, 2]]), [0, 1, 2, 0, 1, 0, 1]
    packed = model(ids, packed_mask(documents), positions=torch.tensor(positions))
    for first, last in ((0, 3), (3, 5), (5, 7)):
        assert (packed[:, first:last] - model(ids[:, first:last])).abs().max() < 1e-12


def test_weights_are_rows_of_shares_under_the_mask():
    model, ids = build("window", 3), tokens()
    logits, maps = model(ids, need_weights=True)
    assert (logits - model(ids)).abs().max() < 1e-12
    assert len(maps) == 2 and maps[0].shape == (B, 4, T, T)
    for weights in maps:
        assert (weights.sum(-1) - 1).abs().max() < 1e-12
        assert bool((weights[..., ~decoder_mask("window", T, 3)] == 0).all())


def test_gradients_reach_every_parameter():
    model, ids = build(), tokens()
    torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    assert all(bool((p.grad != 0).any()) for p in model.parameters())


@pytest.mark.parametrize(
    "name, call",
    [
        ("kind", lambda: build("future")),
        ("size", lambda: build("window")),
        ("size", lambda: build("causal", 3)),
        ("window", lambda: build("window", 0)),
        ("chunk", lambda: build("chunk", 1.5)),
        ("x", lambda: build()(tokens(length=10))),
        ("ids", lambda: build()(torch.full((1, 2), Y))),
    ],
)
def test_bad_input_is_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: got .*; allowed: "):
        call()
