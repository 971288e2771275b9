"""Three forms of scheduled sampling: where they agree, what they feed, and how often they ask."""

import math

import pytest
import torch

from labcore.models import Seq2Seq
from labcore.train.forcing import shift_right, teacher_forced_loss
from labcore.train.scheduled import (
    FORMS,
    SCHEDULES,
    choose,
    coins,
    mix_parallel,
    mix_stepwise,
    scheduled_loss,
    true_share,
)

B, S, T, Y = 3, 7, 5, 33


def setting():
    torch.manual_seed(0)
    model = Seq2Seq(17, Y, 12, 4, 19, 2).double()
    framed = torch.randint(3, Y, (B, T + 1))
    framed[:, 0], framed[1, 4:] = 1, 0
    return model, torch.randint(1, 17, (B, S)), framed


def functions(model, source):
    mask = model.source_mask(source)
    memory = model.encode(source)
    return (
        lambda prefix: model.decode(prefix, memory, mask)[:, -1],
        lambda ids: model.decode(ids, memory, mask),
    )


@pytest.mark.parametrize("form, soft", [*((form, False) for form in FORMS), ("two_pass", True)])
def test_share_one_is_teacher_forcing(form, soft):
    model, source, framed = setting()
    found = scheduled_loss(model, source, framed, 1.0, form=form, soft=soft)
    assert (found - teacher_forced_loss(model, source, framed)).abs() < 1e-9
    found.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_share_zero_feeds_own_tokens_only():
    model, source, framed = setting()
    inputs, _ = shift_right(framed)
    score, _ = functions(model, source)
    mixed = mix_stepwise(score, inputs, coins((B, T - 1), 0.0))
    for t in range(T - 1):
        assert torch.equal(mixed[:, t + 1], score(mixed[:, : t + 1]).argmax(-1))
    assert torch.equal(mix_stepwise(score, inputs, coins((B, T - 1), 1.0)), inputs)


@pytest.mark.parametrize("drawn", [False, True])
def test_parallel_settles_from_the_left(drawn):
    model, source, framed = setting()
    inputs, _ = shift_right(framed)
    score, decode = functions(model, source)
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        keep = coins((B, T - 1), 0.5, generator)
        draws = torch.rand((B, T - 1), generator=generator) if drawn else None
        wanted = mix_stepwise(score, inputs, keep, draws)
        for passes in range(T):
            found = mix_parallel(decode, inputs, keep, passes, draws)
            assert torch.equal(found[:, : passes + 1], wanted[:, : passes + 1])
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("form, calls", [("stepwise", T), ("two_pass", 2), ("parallel", 3)])
def test_decoder_calls(form, calls):
    model, source, framed = setting()
    seen = []
    model.decoder[0].register_forward_hook(lambda *_: seen.append(1))
    passes = 3 if form == "parallel" else 2
    scheduled_loss(model, source, framed, 0.5, form=form, passes=passes)
    assert len(seen) == calls


def test_two_passes_equal_parallel_with_two():
    model, source, framed = setting()
    losses = [
        scheduled_loss(
            model, source, framed, 0.5, form=form, generator=torch.Generator().manual_seed(4)
        )
        for form in ("two_pass", "parallel")
    ]
    assert (losses[0] - losses[1]).abs() < 1e-9


def test_schedules():
    for schedule in SCHEDULES:
        shares = [true_share(schedule, i) for i in range(0, 2000, 50)]
        assert all(0 <= share <= 1 for share in shares)
        assert shares == sorted(shares, reverse=True)
    for i in (0, 50):
        wanted = 10 / (10 + math.exp(i / 10))
        assert abs(true_share("inverse_sigmoid", i, k=10) - wanted) < 1e-12


def test_choose_follows_the_probabilities():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    draws = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = choose(p.log().expand(20_000, 3), draws)
    counts = torch.bincount(found, minlength=3).double()
    chi2 = ((counts - 20_000 * p) ** 2 / (20_000 * p)).sum()
    assert chi2 < 13.8  # the 0.999 point of χ² with two degrees of freedom
    assert choose(p.log(), torch.tensor(1.0)).item() == 2


def test_bad_input():
    model, source, framed = setting()
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="^share: got"):
            coins((2, 2), share)
    with pytest.raises(ValueError, match="^form: got 'three'"):
        scheduled_loss(model, source, framed, 0.5, form="three")
    with pytest.raises(ValueError, match="^passes: got 0"):
        scheduled_loss(model, source, framed, 0.5, form="parallel", passes=0)
    with pytest.raises(ValueError, match="^schedule: got 'cosine'"):
        true_share("cosine", 0)
    with pytest.raises(ValueError, match="^k: got 1.5"):
        true_share("exponential", 3, k=1.5)
    with pytest.raises(ValueError, match="^keep: got"):
        mix_parallel(None, framed, coins((B, T + 1), 0.5), 1)
