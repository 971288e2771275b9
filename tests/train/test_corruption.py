"""Hidden tokens and cut spans: shares, round trips, edges."""

import pytest
import torch

from labcore.train.corruption import IGNORED, cut_spans, hide_tokens, join_spans, random_spans


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_shares_of_hidden_random_and_kept():
    ids = torch.randint(5, 1005, (300, 200), generator=draw())
    ids[:, 0] = 1
    seen, labels = hide_tokens(ids, 3, range(5, 1005), never=[1], generator=draw(1))
    asked = labels != IGNORED
    assert not asked[:, 0].any()
    assert torch.equal(labels[asked], ids[asked])
    assert torch.equal(seen[~asked], ids[~asked])
    assert abs(asked[:, 1:].double().mean() - 0.15) < 0.01
    assert abs((seen[asked] == 3).double().mean() - 0.8) < 0.02
    assert abs((seen[asked] == ids[asked]).double().mean() - 0.1) < 0.02
    again = hide_tokens(ids, 3, range(5, 1005), never=[1], generator=draw(1))
    assert torch.equal(again[0], seen)


@pytest.mark.parametrize("length", [2, 3, 7, 20, 101])
@pytest.mark.parametrize("density", [0.1, 0.15, 0.5, 0.9])
def test_spans_never_touch_and_come_back(length, density):
    tokens, sentinels = list(range(length)), [f"<{i}>" for i in range(length + 1)]
    for seed in range(20):
        spans = random_spans(length, density=density, mean_length=2.0, generator=draw(seed))
        hidden = sum(end - start for start, end in spans)
        assert hidden == min(max(round(length * density), 1), length - 1)
        assert all(a[1] < b[0] for a, b in zip(spans, spans[1:], strict=False))
        source, target = cut_spans(tokens, spans, sentinels)
        assert join_spans(source, target, sentinels) == tokens
        assert len(source) + len(target) == length + 2 * len(spans) + 1


def test_where_the_cuts_fall_is_uniform():
    """One hidden token of 4: it may stand at positions 1 to 3, since text comes before a span."""
    counts = [0] * 4
    for seed in range(600):
        ((start, _),) = random_spans(4, density=0.25, mean_length=1.0, generator=draw(seed))
        counts[start] += 1
    assert counts == [0, 0, 0, 600]


def test_bad_input():
    with pytest.raises(ValueError, match="share: got 0"):
        hide_tokens(torch.ones(1, 3, dtype=torch.long), 3, [4], share=0)
    with pytest.raises(ValueError, match="words: got none"):
        hide_tokens(torch.ones(1, 3, dtype=torch.long), 3, [])
    with pytest.raises(ValueError, match="sentinels: got 1"):
        cut_spans([1, 2, 3], [(0, 1)], ["a"])
    for tokens, sentinels in (("ab<", "<>"), ("abc", "<<")):  # could not be joined again
        with pytest.raises(ValueError, match="sentinels: got .*; allowed: distinct ones"):
            cut_spans(list(tokens), [(0, 1)], list(sentinels))
    with pytest.raises(ValueError, match="spans: got"):
        cut_spans([1, 2, 3], [(1, 2), (1, 3)], ["a", "b", "c"])
    with pytest.raises(ValueError, match="length: got 1"):
        random_spans(1)
    with pytest.raises(ValueError, match="density: got 1"):
        random_spans(5, density=1)
    with pytest.raises(ValueError, match="mean_length"):
        random_spans(5, mean_length=0.5)
    with pytest.raises(ValueError, match="a sentinel first"):
        join_spans(["a"], ["b"], ["<X>"])
