"""The pyramid's lengths, the speller's order, and what it learns."""

import pytest
import torch

from labcore.models.las import ListenAttendSpell, Listener, halve, spoken

B, S, FEATURES, Y = 3, 40, 6, 10


def test_lengths_and_content_of_pairs():
    frames = torch.randn(B, S, FEATURES)
    lengths, states = [], frames
    for _ in range(3):
        states = halve(states)
        lengths.append(states.shape[1])
    assert lengths == [20, 10, 5]
    assert torch.equal(halve(frames)[:, 3], torch.cat([frames[:, 6], frames[:, 7]], -1))
    odd = halve(frames[:, :5])
    assert odd.shape == (B, 3, 12) and not odd[:, 2, 6:].any()
    for levels in range(4):
        wanted = -(-37 // 2**levels)
        assert Listener(FEATURES, 8, levels)(frames[:, :37]).shape == (B, wanted, 8)


def test_a_speller_reads_no_later_character_and_all_frames():
    torch.manual_seed(0)
    model = ListenAttendSpell(FEATURES, Y, 8, 2).double()
    frames = torch.randn(B, S, FEATURES, dtype=torch.float64)
    before = torch.randint(0, Y, (B, 5))
    out, weights = model(frames, before, need_weights=True)
    assert weights.shape == (B, 5, 10)
    assert (weights.sum(-1) - 1).abs().max() < 1e-9
    assert torch.equal(model(frames, before), out)
    changed = before.clone()
    changed[:, 3] = (changed[:, 3] + 1) % Y
    after = model(frames, changed)
    assert torch.equal(after[:, :3], out[:, :3]) and not torch.equal(after[:, 3:], out[:, 3:])
    late = frames.clone()
    late[:, -1] += 1
    assert (model(late, before) != out).any(-1).all()


def test_spoken_lasts_as_long_as_it_should():
    texts = torch.tensor([[1, 2], [2, 2]])
    frames = spoken(texts, noise=0.0)
    assert frames.shape == (2, 16, 12)
    assert torch.equal(frames[0, 8], frames[1, 0]) and torch.equal(frames[0, 0], frames[0, 7])
    assert not torch.equal(spoken(texts, seed=1), spoken(texts, seed=2))


def test_bad_input():
    with pytest.raises(ValueError, match="^width: got 7"):
        Listener(FEATURES, 7)
    with pytest.raises(ValueError, match=r"^frames: got shape \[3, 40\]"):
        halve(torch.zeros(3, 40))
    with pytest.raises(ValueError, match=r"^texts: got shape \[3\]"):
        spoken(torch.zeros(3, dtype=torch.long))
