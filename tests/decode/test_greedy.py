"""Greedy decoding against a loop written for one row, and where sequences end."""

import pytest
import torch

from labcore.decode import cut_at_end, greedy, truncate
from labcore.models.decoder import Decoder

PAD, EOS, Y = 0, 2, 11


def table(seed, sharp=3.0):
    """Scores that depend on the whole prefix: a random table indexed by a hash of the row."""
    draws = torch.Generator().manual_seed(seed)
    rows = sharp * torch.randn(97, Y, generator=draws, dtype=torch.float64)
    rows[:, PAD] = -50.0

    def score(ids):
        places = torch.arange(1, ids.shape[1] + 1)
        return rows[(ids * places * places).sum(-1) % 97]

    return score


def by_hand(score, row, limit, eos=EOS):
    row = list(row)
    for _ in range(limit):
        row.append(int(score(torch.tensor([row]))[0].argmax()))
        if row[-1] == eos:
            break
    return row


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limit", [0, 1, 4, 13])
def test_batch_equals_row_by_row(seed, limit):
    draws = torch.Generator().manual_seed(seed)
    score, start = table(seed), torch.randint(3, Y, (5, 3), generator=draws)
    found = greedy(score, start, eos=EOS, pad=PAD, max_new_tokens=limit)
    rows = [by_hand(score, row.tolist(), limit) for row in start]
    longest = max(map(len, rows))
    assert found.shape == (5, longest)
    assert found.tolist() == [row + [PAD] * (longest - len(row)) for row in rows]


def test_calls_are_the_longest_row():
    following = {1: 3, 3: 4, 4: EOS, 5: EOS}
    lengths = []

    def score(ids):
        lengths.append(ids.shape[1])
        return torch.nn.functional.one_hot(
            torch.tensor([following.get(int(i), PAD) for i in ids[:, -1]]), Y
        ).double()

    found = greedy(score, torch.tensor([[1], [5]]), eos=EOS, pad=PAD, max_new_tokens=8)
    assert found.tolist() == [[1, 3, 4, EOS], [5, EOS, PAD, PAD]]
    assert lengths == [1, 2, 3]


def test_no_end_runs_to_the_limit_and_forbidden_ids_never_come():
    score, start = table(3), torch.tensor([[4], [5], [6]])
    found = greedy(score, start, eos=None, pad=PAD, max_new_tokens=9)
    assert found.shape == (3, 10)
    found = greedy(score, start, eos=EOS, pad=PAD, max_new_tokens=9, forbidden=(EOS, 7))
    assert found.shape == (3, 10)
    assert not bool(((found == EOS) | (found == 7)).any())


def test_a_forced_token_enters_the_prefix_of_unfinished_rows_only():
    score, start = table(5), torch.tensor([[4], [5], [6], [9]])
    free = greedy(score, start, eos=EOS, pad=PAD, max_new_tokens=7, forbidden=(EOS,))
    forced = greedy(
        score, start, eos=EOS, pad=PAD, max_new_tokens=7, forbidden=(EOS,), forced={2: 8}
    )
    assert torch.equal(free[:, :3], forced[:, :3])
    assert forced[:, 3].tolist() == [8] * 4
    for row in forced:
        assert (
            int(score(row[None, :4])[0].index_fill(0, torch.tensor([EOS]), -99).argmax()) == row[4]
        )
    ended = greedy(score, start, eos=EOS, pad=PAD, max_new_tokens=4, forced={0: EOS, 2: 8})
    assert ended.tolist() == [[4, EOS], [5, EOS], [6, EOS], [9, EOS]]


def test_ties_go_to_the_smaller_id():
    found = greedy(
        lambda ids: torch.zeros(len(ids), Y),
        torch.tensor([[3]]),
        eos=EOS,
        pad=PAD,
        max_new_tokens=2,
    )
    assert found.tolist() == [[3, 0, 0]]


def test_left_padded_prompts_equal_prompts_alone():
    torch.manual_seed(0)
    model = Decoder(Y, 12, 4, 17, 2, max_length=13).double()
    prompts = [[1, 5, 6, 7, 3], [1, 9], [1, 4, 4]]
    padded = torch.tensor([[PAD] * (5 - len(p)) + p for p in prompts])
    found = greedy(model.scorer(PAD), padded, eos=EOS, pad=PAD, max_new_tokens=6, forbidden=(PAD,))
    for row, prompt in zip(found, prompts, strict=True):
        alone = greedy(
            model.scorer(),
            torch.tensor([prompt]),
            eos=EOS,
            pad=PAD,
            max_new_tokens=6,
            forbidden=(PAD,),
        )[0]
        kept = row[5 - len(prompt) :]
        assert kept[: len(alone)].tolist() == alone.tolist()
        assert bool((kept[len(alone) :] == PAD).all())


def test_no_gradient_is_kept():
    model = Decoder(Y, 12, 4, 17, 1, max_length=9)
    found = greedy(model.scorer(), torch.tensor([[1]]), eos=None, pad=PAD, max_new_tokens=3)
    assert not found.requires_grad


def test_cutting_row_by_row():
    ids = torch.randint(0, 6, (40, 9), generator=torch.Generator().manual_seed(0))
    cut = cut_at_end(ids, end=2, pad=0)
    for row, kept in zip(ids.tolist(), cut.tolist(), strict=True):
        wanted = truncate(row, 2)
        assert kept == wanted + [0] * (9 - len(wanted))
    assert truncate("学习", "END") == ["学", "习"]
    assert truncate([], 2) == []


NAN = torch.full((1, Y), float("nan"))
ONE = torch.tensor([[1]])


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("start", TypeError, lambda: greedy(table(0), [[1]], eos=2, pad=0, max_new_tokens=3)),
        ("start", TypeError, lambda: greedy(table(0), ONE.float(), eos=2, pad=0, max_new_tokens=3)),
        ("start", ValueError, lambda: greedy(table(0), ONE[0], eos=2, pad=0, max_new_tokens=3)),
        ("start", ValueError, lambda: greedy(table(0), ONE[:, :0], eos=2, pad=0, max_new_tokens=3)),
        (
            "max_new_tokens",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=-1),
        ),
        (
            "max_new_tokens",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=2.0),
        ),
        ("eos", ValueError, lambda: greedy(table(0), ONE, eos=Y, pad=0, max_new_tokens=3)),
        ("eos", ValueError, lambda: greedy(table(0), ONE, eos=-1, pad=0, max_new_tokens=3)),
        ("score", ValueError, lambda: greedy(lambda i: NAN, ONE, eos=2, pad=0, max_new_tokens=3)),
        (
            "score",
            ValueError,
            lambda: greedy(lambda i: NAN[0], ONE, eos=2, pad=0, max_new_tokens=3),
        ),
        (
            "score",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=3, forbidden=range(Y)),
        ),
        (
            "forbidden",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=3, forbidden=[Y]),
        ),
        (
            "forced",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=3, forced={3: 1}),
        ),
        (
            "forced",
            ValueError,
            lambda: greedy(table(0), ONE, eos=2, pad=0, max_new_tokens=3, forced={0: Y}),
        ),
        ("ids", TypeError, lambda: cut_at_end([[1]], 2, 0)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
