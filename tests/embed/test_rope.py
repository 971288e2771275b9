"""Rotary positions: the printed formula, relative shift, and the two layouts."""

import math

import pytest
import torch

from labcore.embed import RotaryPositions, rope_angles, rotate, to_halves

B, H, T, K = 3, 4, 5, 6


def x(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_each_pair_is_turned_by_its_own_matrix(layout):
    given, places = x(T, K), torch.tensor([0, 1, 4, 9, 70])
    turned = rotate(given, rope_angles(places, K, base=50.0), layout)
    for t, place in enumerate(places.tolist()):
        for i in range(K // 2):
            pair = [i, i + K // 2] if layout == "halves" else [2 * i, 2 * i + 1]
            a = place / 50.0 ** (2 * i / K)
            turn = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
            wanted = torch.tensor(turn, dtype=torch.float64) @ given[t, pair]
            assert (turned[t, pair] - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_scores_depend_on_the_distance_only(layout):
    q, k = x(T, K), x(T, K)

    def scores(shift):
        angles = rope_angles(torch.arange(T) + shift, K)
        return rotate(q, angles, layout) @ rotate(k, angles, layout).T

    assert (scores(0) - scores(1000)).abs().max() < 1e-9
    lengths = rotate(q, rope_angles(torch.arange(T), K), layout).norm(dim=-1)
    assert (lengths - q.norm(dim=-1)).abs().max() < 1e-12


def test_the_two_layouts_are_one_up_to_the_order_of_rows():
    W_q, W_k, data = x(H * K, 7), x(H * K, 7), x(T, 7)
    angles = rope_angles(torch.arange(T), K)

    def scores(layout, order):
        q, k = ((data @ order(W).T).unflatten(-1, (H, K)).transpose(0, 1) for W in (W_q, W_k))
        return rotate(q, angles, layout) @ rotate(k, angles, layout).transpose(-1, -2)

    ours = scores("halves", lambda W: to_halves(W, H))
    assert (ours - scores("interleaved", lambda W: W)).abs().max() < 1e-12
    assert (scores("halves", lambda W: W) - ours).abs().max() > 0.1


def test_module_equals_the_function_and_takes_positions():
    layer, given = RotaryPositions(K, base=100.0), x(B, H, T, K)
    wanted = rotate(given, rope_angles(torch.arange(2, 2 + T), K, 100.0))
    assert (layer(given, offset=2) - wanted).abs().max() < 1e-12
    assert (layer(given, positions=torch.arange(2, 2 + T)) - wanted).abs().max() < 1e-12
    rows = torch.stack([torch.arange(T) + b for b in range(B)])
    found = layer(given, positions=rows)
    assert (found[1] - layer(given, offset=1)[1]).abs().max() < 1e-12
    assert layer(given.float(), 300).dtype == torch.float32
    assert (
        layer(given, 300) - rotate(given, rope_angles(torch.arange(300, 305), K, 100.0))
    ).abs().max() < 1e-12


def test_the_kept_table_grows_and_serves_training_and_autocast():
    layer, q = RotaryPositions(K, base=100.0), x(B, H, T, K)
    with torch.inference_mode():
        layer(q)
    given = q.clone().requires_grad_()
    layer(given).sum().backward()  # not with the table that was kept there
    assert given.grad is not None
    for offset in (0, 62, 100, 3, 700):  # inside what was kept, across its end, far behind it
        wanted = rotate(q, rope_angles(torch.arange(offset, offset + T), K, 100.0))
        assert (layer(q, offset) - wanted).abs().max() < 1e-12
    half = layer.turn(torch.zeros(B, T, 7))(q.bfloat16(), q[:, :2].bfloat16())
    assert [one.dtype for one in half] == [torch.bfloat16] * 2
    assert (half[0].double() - layer(q)).abs().max() < 0.1


def test_equals_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    q = x(B, H, T, K)
    angles = rope_angles(torch.arange(T), K)[None].repeat(1, 1, 2)
    theirs, _ = llama.apply_rotary_pos_emb(q, q, angles.cos(), angles.sin())
    assert (RotaryPositions(K)(q) - theirs).abs().max() < 1e-12


def test_gradient():
    given = x(2, 1, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(RotaryPositions(4), given)


def test_bad_input():
    with pytest.raises(ValueError, match="width: got 5"):
        rope_angles(torch.zeros(1), 5)
    with pytest.raises(ValueError, match="base: got 0"):
        RotaryPositions(K, base=0)
    with pytest.raises(ValueError, match="layout"):
        rotate(x(T, K), rope_angles(torch.arange(T), K), "pairs")
    with pytest.raises(ValueError, match="angles"):
        rotate(x(T, K), rope_angles(torch.arange(T + 1), K))
    with pytest.raises(ValueError, match="x: got shape"):
        RotaryPositions(K)(x(B, H, T, K + 2))
    with pytest.raises(TypeError, match="x: got torch.int64"):
        rotate(torch.zeros(T, K, dtype=torch.long), rope_angles(torch.arange(T), K))
    with pytest.raises(ValueError, match="weight"):
        to_halves(x(10, 3), 4)
