"""Scoring functions and the softmax: hand numbers, torch, gradients, edges."""

import math

import pytest
import torch
from torch import nn

from labcore.attention import (
    AdditiveScore,
    additive_scores,
    dot_scores,
    scaled_dot_scores,
    softmax,
)

B, T, S, K = 3, 5, 7, 6
KEYS = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
QUERY = torch.tensor([[1.0, -1.0]], dtype=torch.float64)


def draw(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64)


def test_dot_scores_by_hand():
    assert dot_scores(QUERY, KEYS).tolist() == [[2.0, 0.0, -2.0]]


def test_additive_scores_by_hand():
    wanted = [math.tanh(3) + math.tanh(-1), 2 * 0 + math.tanh(2), math.tanh(1) + math.tanh(1)]
    got = additive_scores(QUERY, KEYS, torch.ones(2, dtype=torch.float64))
    assert got[0].tolist() == pytest.approx(wanted, abs=1e-12)


def test_additive_scores_one_pair_at_a_time():
    q, k, w = draw(B, T, K), draw(B, S, K, seed=1), draw(K, seed=2)
    got = additive_scores(q, k, w)
    assert got.shape == (B, T, S)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                one = (w * torch.tanh(q[b, t] + k[b, s])).sum()
                assert abs(got[b, t, s] - one) < 1e-12


def test_dot_and_scaled_scores_against_einsum():
    q, k = draw(B, 2, T, K), draw(B, 2, S, K, seed=1)
    wanted = torch.einsum("bhtk,bhsk->bhts", q, k)
    assert (dot_scores(q, k) - wanted).abs().max() < 1e-9
    assert (scaled_dot_scores(q, k) - wanted / math.sqrt(K)).abs().max() < 1e-9
    assert (scaled_dot_scores(q, k, 0.3) - wanted * 0.3).abs().max() < 1e-9


def test_scaling_keeps_the_variance_at_one():
    for width in (4, 64):
        q, k = draw(400, width), draw(500, width, seed=1)
        assert 0.9 < dot_scores(q, k).var() / width < 1.1
        assert 0.9 < scaled_dot_scores(q, k).var() < 1.1


def test_softmax_equals_torch():
    for shape in ((7,), (5, 7), (3, 4, 5, 7)):
        scores = draw(*shape) * 30
        assert (softmax(scores) - scores.softmax(-1)).abs().max() < 1e-12
        assert (softmax(scores + 100) - softmax(scores)).abs().max() < 1e-9


def test_softmax_of_the_first_example():
    weights = softmax(torch.tensor([2.0, 1.0, 0.0, -1.0], dtype=torch.float64))
    wanted = [0.6439142598879724, 0.23688281808991013, 0.08714431874203257, 0.03205860328008499]
    assert weights.tolist() == pytest.approx(wanted, abs=1e-12)


def test_softmax_survives_huge_scores():
    weights = softmax(torch.tensor([1000.0, 0.0, -1000.0], dtype=torch.float64))
    assert weights.tolist() == [1.0, 0.0, 0.0]
    assert softmax(torch.full((4,), 1e300, dtype=torch.float64)).tolist() == [0.25] * 4


def test_softmax_of_rows_that_see_nothing():
    scores = draw(T, S).requires_grad_()
    mask = torch.rand(T, S, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[1] = False
    weights = softmax(scores, mask)
    assert not weights[~mask].any()
    (gradient,) = torch.autograd.grad((weights * draw(T, S, seed=3)).sum(), scores)
    assert gradient.isfinite().all()
    assert not gradient[~mask].any()
    assert torch.autograd.gradcheck(lambda x: softmax(x, mask), scores)
    infinite = torch.full((2, 3), -math.inf, dtype=torch.float64, requires_grad=True)
    weights = softmax(infinite)
    assert not weights.any()
    assert not torch.autograd.grad(weights.sum(), infinite)[0].any()


def test_softmax_hidden_scores_may_be_anything_visible_ones_not():
    scores = torch.tensor([[1.0, math.nan], [math.nan, 1.0]])
    weights = softmax(scores, torch.tensor([[True, False]]))
    assert weights[0].tolist() == [1.0, 0.0]
    assert weights[1].isnan().all() or weights[1, 0].isnan()


def test_softmax_empty_and_half():
    assert softmax(torch.zeros(3, 0)).shape == (3, 0)
    assert softmax(torch.zeros(0, 3)).shape == (0, 3)
    many = torch.zeros(1, 70_000, dtype=torch.float16)  # their sum overflows float16
    weights = softmax(many)
    assert weights.dtype == torch.float16
    assert weights.max() > 0


def test_additive_module_is_the_function_of_projected_inputs():
    torch.manual_seed(0)
    layer = AdditiveScore(5, 7, hidden=6).double()
    x, memory = draw(B, 4, 5), draw(B, 2, 7, seed=1)
    wanted = additive_scores(
        nn.functional.linear(x, layer.q_proj.weight),
        nn.functional.linear(memory, layer.k_proj.weight),
        layer.w,
    )
    assert torch.equal(layer(x, memory), wanted)
    assert sum(p.numel() for p in layer.parameters()) == 5 * 6 + 7 * 6 + 6


def test_score_gradients():
    q, k, w = draw(2, 3, 4).requires_grad_(), draw(2, 5, 4, seed=1).requires_grad_(), draw(4)
    assert torch.autograd.gradcheck(scaled_dot_scores, (q, k))
    assert torch.autograd.gradcheck(additive_scores, (q, k, w.requires_grad_()))


ZERO = torch.zeros


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("q", TypeError, lambda: dot_scores(ZERO(T, K).long(), ZERO(S, K))),
        ("q", ValueError, lambda: dot_scores(ZERO(K), ZERO(S, K))),
        ("q", ValueError, lambda: scaled_dot_scores(ZERO(T, 0), ZERO(S, 0))),
        ("k", ValueError, lambda: dot_scores(ZERO(T, K), ZERO(S, K + 1))),
        ("k", ValueError, lambda: dot_scores(ZERO(B, T, K), ZERO(S, K))),
        ("k", TypeError, lambda: dot_scores(ZERO(T, K), ZERO(S, K).double())),
        ("scale", ValueError, lambda: scaled_dot_scores(ZERO(T, K), ZERO(S, K), math.inf)),
        ("w", ValueError, lambda: additive_scores(ZERO(T, K), ZERO(S, K), ZERO(K + 1))),
        ("w", TypeError, lambda: additive_scores(ZERO(T, K), ZERO(S, K), ZERO(K).double())),
        ("scores", TypeError, lambda: softmax(ZERO(T, S).long())),
        ("scores", ValueError, lambda: softmax(torch.tensor(1.0))),
        ("mask", TypeError, lambda: softmax(ZERO(T, S), ZERO(T, S))),
        ("mask", ValueError, lambda: softmax(ZERO(T, S), ZERO(S, T).bool())),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
