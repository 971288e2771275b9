"""The network that writes in order or in slots: what each position sees, and its losses."""

import pytest
import torch
import torch.nn.functional as F

from labcore.decode import greedy
from labcore.models.nar import (
    BOS,
    END,
    MASK,
    PAD,
    PrefixDecoder,
    empty_slots,
    predicted_lengths,
    side_by_side,
)
from labcore.train.parallel import (
    hide,
    length_loss,
    masked_loss,
    ordered_loss,
    slots_loss,
    with_end,
)

B, S, T, Y, LONGEST = 3, 6, 5, 11, 7
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([6, 2, 4]), torch.tensor([5, 3, 1])


def build(parallel=False, norm="pre"):
    torch.manual_seed(0)
    sizes = {"max_target": LONGEST, "parallel": parallel, "norm": norm}
    return PrefixDecoder(9, Y, 12, 4, 17, 2, **sizes).double()


def pairs(seed=0):
    draws = torch.Generator().manual_seed(seed)
    source = torch.randint(1, 9, (B, S), generator=draws)
    target = torch.randint(4, Y, (B, T), generator=draws)
    source = source * (torch.arange(S) < SOURCE_LENGTHS[:, None])
    return source, SOURCE_LENGTHS, target * (torch.arange(T) < TARGET_LENGTHS[:, None])


def test_the_mask_pair_by_pair():
    for causal in (True, False):
        mask = side_by_side(S, SOURCE_LENGTHS, T, TARGET_LENGTHS, causal=causal)
        assert mask.shape == (B, 1, S + T, S + T)
        for b in range(B):
            for q in range(S + T):
                for k in range(S + T):
                    if k < S:
                        wanted = k < SOURCE_LENGTHS[b]
                    else:
                        seen = q >= S and (k <= q or not causal)
                        wanted = seen and k - S < TARGET_LENGTHS[b]
                    assert bool(mask[b, 0, q, k]) == bool(wanted)


def moved(model, at, change="target"):
    """Which target positions' logits a change at one place moves, [T]."""
    source, lengths, target = pairs()
    target = target.clamp_min(4)
    before, length = model(source, lengths, target)
    if change == "target":
        target = target.clone()
        target[:, at] = 4 + (target[:, at] - 3) % (Y - 4)
    else:
        source = source.clone()
        source[0, at] = 1 + source[0, at] % 8
    after, other = model(source, lengths, target)
    assert change == "source" or torch.equal(length, other)
    return ((after - before)[0].abs().amax(-1) > 1e-12).tolist()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_who_sees_whom(norm):
    for at in range(T):
        assert moved(build(False, norm), at) == [t >= at for t in range(T)]
        assert moved(build(True, norm), at) == [True] * T
        assert moved(build(False, norm), at, "source") == [True] * T


@pytest.mark.parametrize("parallel", [False, True])
def test_padding_changes_nothing(parallel):
    model, (source, lengths, target) = build(parallel), pairs()
    logits, length = model(source, lengths, target, TARGET_LENGTHS)
    for b in range(B):
        s, t = int(lengths[b]), int(TARGET_LENGTHS[b])
        alone, one = model(
            source[b : b + 1, :s],
            lengths[b : b + 1],
            target[b : b + 1, :t],
            TARGET_LENGTHS[b : b + 1],
        )
        assert (logits[b, :t] - alone[0]).abs().max() < 1e-12
        assert (length[b] - one[0]).abs().max() < 1e-12


def test_scorers_and_reorder():
    source, lengths, target = pairs()
    for parallel in (False, True):
        model = build(parallel)
        score, parents = model.scorer(source, lengths), torch.tensor([2, 0, 0])
        if parallel:
            wanted = model(source, lengths, target, TARGET_LENGTHS)[0]
        else:
            wanted = model(source, lengths, target)[0][:, -1]
        assert torch.equal(score(target), wanted)
        score.reorder(parents)
        assert (score(target[parents]) - wanted[parents]).abs().max() < 1e-12


def test_greedy_writes_what_the_whole_pass_predicts():
    model, (source, lengths, _) = build(), pairs()
    start = torch.full((B, 1), BOS)
    ids = greedy(model.scorer(source, lengths), start, eos=None, pad=PAD, max_new_tokens=T)
    again = model(source, lengths, ids[:, :-1])[0].argmax(-1)
    assert torch.equal(again, ids[:, 1:])


def test_slots_and_lengths():
    assert empty_slots(torch.tensor([2, 0]), 3).tolist() == [[MASK, MASK, PAD], [PAD] * 3]
    lengths = predicted_lengths(build(True), *pairs()[:2])
    assert lengths.shape == (B,) and int(lengths.min()) >= 1 and int(lengths.max()) <= LONGEST


def test_losses_against_loops():
    source, lengths, target = pairs()
    model = build()
    total, count = 0, 0
    for b in range(B):
        t, s = int(TARGET_LENGTHS[b]), int(lengths[b])
        row = target[b, :t].tolist()
        for i, label in enumerate([*row, END]):
            prefix = torch.tensor([[BOS, *row[:i]]])
            logits = model(source[b : b + 1, :s], lengths[b : b + 1], prefix)[0][0, -1]
            total, count = total - logits.log_softmax(-1)[label], count + 1
    loss = ordered_loss(model, source, lengths, target, TARGET_LENGTHS)
    assert abs((loss - total / count).item()) < 1e-12

    model = build(True)
    total = {"slots": [], "words": [], "length": []}
    for b in range(B):
        t = int(TARGET_LENGTHS[b])
        given = source[b : b + 1], lengths[b : b + 1]
        free = model(*given, torch.full((1, LONGEST), MASK))[0][0].log_softmax(-1)
        total["slots"] += [-free[i, y] for i, y in enumerate([*target[b, :t].tolist(), END])]
        words, length = model(*given, torch.full((1, t), MASK), torch.tensor([t]))
        total["words"] += [-words[0].log_softmax(-1)[i, target[b, i]] for i in range(t)]
        total["length"].append(-length[0].log_softmax(-1)[t])
    mean = {name: sum(found) / len(found) for name, found in total.items()}
    loss = slots_loss(model, source, lengths, target, TARGET_LENGTHS)
    assert abs((loss - mean["slots"]).item()) < 1e-12
    loss = length_loss(model, source, lengths, target, TARGET_LENGTHS)
    assert abs((loss - mean["words"] - mean["length"]).item()) < 1e-12


def test_masked_loss_counts_hidden_words_only():
    source, lengths, target = pairs()
    model = build(True)
    hidden = hide(target, TARGET_LENGTHS, torch.Generator().manual_seed(5))
    logits, length = model(source, lengths, target.masked_fill(hidden, MASK), TARGET_LENGTHS)
    wanted = F.cross_entropy(logits[hidden], target[hidden])
    wanted = wanted + F.cross_entropy(length, TARGET_LENGTHS)
    loss = masked_loss(5)(model, source, lengths, target, TARGET_LENGTHS)
    assert abs((loss - wanted).item()) < 1e-12


def test_hidden_words_are_one_to_all_and_uniform():
    lengths = torch.tensor([1, 4, 6]).repeat_interleave(4000)
    target, draws = torch.ones(12000, 6, dtype=torch.long), torch.Generator().manual_seed(0)
    hidden = hide(target, lengths, draws)
    assert not bool((hidden & (torch.arange(6) >= lengths[:, None])).any())
    counts = hidden.sum(-1)
    assert bool(((counts >= 1) & (counts <= lengths)).all())
    for length in (1, 4, 6):
        rows = hidden[lengths == length]
        shares = torch.bincount(rows.sum(-1), minlength=length + 1)[1:].double() / 4000
        assert (shares - 1 / length).abs().max() < 0.04
        places = rows[:, :length].double().mean(0)
        assert (places - places.mean()).abs().max() < 0.04


def test_labels_end_behind_the_last_word():
    labels = with_end(torch.tensor([[7, 8, 9], [7, 0, 0]]), torch.tensor([3, 1]))
    assert labels.tolist() == [[7, 8, 9, END], [7, END, PAD, PAD]]


def test_another_number_of_rows_is_refused():
    source, lengths, target = pairs()
    with pytest.raises(ValueError, match="^target: got 2 rows; allowed: "):
        build()(source, lengths, target[:2])
