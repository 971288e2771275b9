"""What searches refuse by name, and that they do so before a model has run."""

import math

import pytest
import torch

from labcore.decode import (
    RandomTree,
    TableScore,
    backtrack,
    beam_search,
    beam_step,
    cut_at_end,
    draw,
    exhaustive,
    fill,
    greedy,
    keep_top_k,
    keep_top_p,
    length_penalty,
    log_probabilities,
    next_probabilities,
    nodes,
    paths,
    sample,
)
from labcore.decode.cached import CachedScore
from labcore.models import GPT, T5, GPTConfig, Seq2Seq, T5Config
from labcore.models.decoder import Decoder
from labcore.models.nar import PrefixDecoder

B, T, Y = 3, 2, 5
START = torch.ones(B, T, dtype=torch.long)
EMPTY = torch.zeros(1, 0, dtype=torch.long)
SLOTS = torch.tensor([[4, 4, 1]])


class Watched:
    """Flat scores of a known vocabulary; counts how often it is asked."""

    def __init__(self, Y=Y):
        self.Y, self.calls = Y, 0

    def __call__(self, ids):
        self.calls += 1
        return torch.zeros(len(ids), self.Y)


def answering(make):
    """A score whose vocabulary nobody knows before the first answer."""
    return lambda ids: make(len(ids))


def run_greedy(score=None, start=START, **changes):
    options = {"eos": 2, "pad": 0, "max_new_tokens": 3, **changes}
    return greedy(Watched() if score is None else score, start, **options)


def run_sample(score=None, start=START, **changes):
    return sample(Watched() if score is None else score, start, **{"max_new_tokens": 3, **changes})


def run_beam(score=None, start=START, **changes):
    options = {"beam": 2, "max_new_tokens": 3, "eos": 2, **changes}
    return beam_search(Watched() if score is None else score, start, **options)


def run_exhaustive(score=None, **changes):
    return exhaustive(Watched() if score is None else score, **{"length": 3, "eos": 2, **changes})


def run_fill(scores=None, slots=SLOTS, **changes):
    scores = torch.zeros(1, 3, Y) if scores is None else scores
    return fill(lambda ids: scores, slots, **{"mask": 4, **changes})


RUNS = (run_greedy, run_sample, run_beam)
NOT_IDS = (1.0, True, "x", -1, Y, [1, 2], {})
ROWS = {
    "one row for all": lambda n: torch.zeros(Y),
    "one row": lambda n: torch.zeros(1, Y),
    "too many rows": lambda n: torch.zeros(n + 1, Y),
    "three axes": lambda n: torch.zeros(n, 1, Y),
    "nothing": lambda n: None,
    "no vocabulary": lambda n: torch.zeros(n, 0),
    "NaN": lambda n: torch.full((n, Y), math.nan),
    "+inf": lambda n: torch.zeros(n, Y).index_fill(1, torch.tensor([3]), math.inf),
    "-inf only": lambda n: torch.full((n, Y), -math.inf),
}
NOT_SHARES = ([-1.0, 2.0], [0.2, 0.2], [math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0], [])

REFUSED = [
    *[
        ("score", ValueError, lambda run=run, make=make: run(answering(make)))
        for run in (*RUNS, run_exhaustive)
        for name, make in ROWS.items()
        # The search over every path begins with one row.
        if run is not run_exhaustive or name != "one row"
    ],
    *[("score", TypeError, lambda run=run: run("score")) for run in RUNS],
    *[
        (name, ValueError, lambda run=run, name=name, value=value: run(**{name: value}))
        for run, names in (
            (run_greedy, ("eos", "pad")),
            (run_sample, ("eos", "pad")),
            (run_beam, ("eos",)),
            (run_exhaustive, ("eos",)),
            (run_fill, ("mask",)),
        )
        for name in names
        for value in NOT_IDS
    ],
    *[
        ("start", error, lambda run=run, start=start: run(start=start))
        for run in RUNS
        for start, error in (
            (START.float(), TypeError),
            (START.bool(), TypeError),
            (START.int(), TypeError),
            (START.tolist(), TypeError),
            (START[0], ValueError),
            (START - 8, ValueError),
        )
    ],
    *[
        ("max_new_tokens", ValueError, lambda run=run, n=n: run(max_new_tokens=n))
        for run in RUNS
        for n in (-1, 1.5, True, "3", None)
    ],
    ("max_new_tokens", ValueError, lambda: run_beam(max_new_tokens=0)),
    *[("forced", ValueError, lambda id_=id_: run_greedy(forced={0: id_})) for id_ in NOT_IDS],
    *[("forced", ValueError, lambda t=t: run_greedy(forced={t: 1})) for t in (3, -1, 0.5, True)],
    *[("forbidden", ValueError, lambda id_=id_: run_greedy(forbidden=[id_])) for id_ in NOT_IDS],
    *[
        ("forbidden", TypeError, lambda x=x, run=run: run(forbidden=x))
        for x in (None, 3, "x")
        for run in (run_greedy, run_fill)
    ],
    *[("forced", TypeError, lambda x=x: run_greedy(forced=x)) for x in ([1, 2], 3, "x")],
    ("score", TypeError, lambda: fill(None, SLOTS, mask=4)),
    *[
        ("generator", TypeError, lambda run=run: run(generator=3))
        for run in (run_sample, run_fill, lambda generator: draw(torch.ones(1), generator))
    ],
    *[("pad", ValueError, lambda run=run: run(pad=None)) for run in (run_greedy, run_sample)],
    ("score", ValueError, lambda: run_greedy(forbidden=range(Y))),
    *[("forbidden", ValueError, lambda id_=id_: run_fill(forbidden=[id_])) for id_ in NOT_IDS],
    ("score", ValueError, lambda: run_fill(forbidden=[0, 1, 2, 3])),
    ("score", ValueError, lambda: run_fill(forbidden=[0, 1, 2, 3], generator=torch.Generator())),
    *[
        ("score", ValueError, lambda x=x, g=g: run_fill(torch.full((1, 3, Y), x), generator=g))
        for x in (math.nan, math.inf, -math.inf)
        for g in (None, torch.Generator())
    ],
    ("score", ValueError, lambda: run_fill(torch.zeros(1, 3, 0))),
    ("score", ValueError, lambda: run_fill(None, SLOTS[:, :2])),
    ("slots", TypeError, lambda: run_fill(slots=SLOTS.tolist())),
    ("slots", ValueError, lambda: run_fill(slots=-SLOTS)),
    ("history", TypeError, lambda: run_fill(history="no")),
    ("rounds", ValueError, lambda: run_fill(rounds=True)),
    *[
        ("temperature", ValueError, lambda run=run, x=x: run(temperature=x))
        for run in (run_sample, lambda temperature: next_probabilities(torch.zeros(Y), temperature))
        for x in (0, -1, math.nan, math.inf, True, "1", 10**400)
    ],
    *[("top_p", ValueError, lambda x=x: run_sample(top_p=x)) for x in (0, 1.01, math.nan, True)],
    *[("top_k", ValueError, lambda x=x: run_sample(top_k=x)) for x in (0, -1, 1.5, True)],
    *[
        ("logits", ValueError, lambda row=row: next_probabilities(torch.tensor(row)))
        for row in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [])
    ],
    ("logits", TypeError, lambda: next_probabilities([0.0, 1.0])),
    *[
        ("p", ValueError, lambda row=row, use=use: use(torch.tensor(row)))
        for row in NOT_SHARES
        for use in (draw, lambda p: keep_top_k(p, 1), lambda p: keep_top_p(p, 0.5))
    ],
    ("p", TypeError, lambda: draw([0.5, 0.5])),
    ("p", TypeError, lambda: draw(torch.tensor([0, 1]))),
    *[("k", ValueError, lambda k=k: keep_top_k(torch.ones(1), k)) for k in (0, -1, 1.5, True)],
    *[
        ("top_p", ValueError, lambda x=x: keep_top_p(torch.ones(1), x))
        for x in (0, -1, 1.01, math.nan, True)
    ],
    *[
        ("alpha", ValueError, lambda x=x, run=run: run(alpha=x))
        for x in ("x", None, 1e9, True, -0.1, math.nan)
        for run in (run_beam, run_exhaustive, lambda alpha: length_penalty(6, alpha))
    ],
    *[
        ("length", ValueError, lambda n=n, kind=kind: length_penalty(n, 1.0, kind))
        for n in (0, -1, 1.5, True, math.nan, "x")
        for kind in ("gnmt", "power")
    ],
    *[
        ("normalise", TypeError, lambda run=run: run(normalise="no"))
        for run in (run_beam, run_exhaustive, lambda normalise: log_probabilities(START, normalise))
    ],
    *[
        ("score", ValueError, lambda x=x: log_probabilities(torch.tensor([x, 0.0])))
        for x in (math.nan, math.inf)
    ],
    *[
        ("k", ValueError, lambda k=k: beam_step(torch.zeros(1, 2, Y), k))
        for k in (0, -1, 1.5, True)
    ],
    ("candidates", ValueError, lambda: beam_step(torch.full((1, 2, Y), math.nan), 2)),
    ("candidates", ValueError, lambda: beam_step(torch.zeros(2, Y), 2)),
    ("slot", ValueError, lambda: backtrack(run_beam().rounds, 2)),
    ("slot", ValueError, lambda: backtrack(run_beam().rounds, -1)),
    ("sequence", ValueError, lambda: backtrack(run_beam().rounds, 0, B)),
    ("sequence", ValueError, lambda: nodes(run_beam(), -1)),
    *[("length", ValueError, lambda n=n: run_exhaustive(length=n)) for n in (0, 1.5, True, 100)],
    ("length", ValueError, lambda: exhaustive(answering(lambda n: torch.zeros(n, 2)), length=21)),
    *[("Y", ValueError, lambda x=x: RandomTree(x, 3)) for x in (0, 2.5, True)],
    *[("T", ValueError, lambda x=x: RandomTree(3, x)) for x in (0, 2.5, 10**9)],
    *[
        ("prefix", error, lambda ids=ids, tree=tree: tree(ids))
        for tree in (RandomTree(3, 3), TableScore({(): [0.0] * 3}, 3))
        for ids, error in (
            (torch.tensor([[0, 5]]), ValueError),
            (torch.tensor([[-1]]), ValueError),
            (torch.tensor([0]), ValueError),
            (torch.tensor([[1.0]]), TypeError),
            ([[0]], TypeError),
        )
    ],
    ("Y", ValueError, lambda: TableScore({}, 1.5)),
    ("otherwise", ValueError, lambda: TableScore({}, 2, otherwise=[math.inf, 0.0])),
    ("otherwise", ValueError, lambda: TableScore({}, 2, otherwise=[0.0])),
    ("table", ValueError, lambda: TableScore({(2,): [0.0, 0.0]}, 2)),
    ("Y", ValueError, lambda: paths(1.5, 3)),
    ("end", ValueError, lambda: cut_at_end(START, 1.5, 0)),
    ("pad", ValueError, lambda: cut_at_end(START, 2, -1)),
]


@pytest.mark.parametrize(("name", "error", "call"), REFUSED)
def test_refused_by_name(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()


LATE = [
    (run_greedy, {"eos": Y}),
    (run_greedy, {"pad": Y}),
    (run_greedy, {"forbidden": [Y]}),
    (run_greedy, {"forced": {2: Y}}),
    (run_sample, {"eos": Y}),
    (run_sample, {"temperature": 0}),
    (run_sample, {"top_k": 0}),
    (run_sample, {"top_p": 2}),
    (run_beam, {"eos": Y}),
    (run_beam, {"alpha": -1}),
    (run_exhaustive, {"eos": Y}),
    (run_exhaustive, {"length": 100}),
]


@pytest.mark.parametrize(("run", "change"), LATE)
def test_refused_before_the_score_is_asked(run, change):
    score = Watched()
    with pytest.raises(ValueError, match=f"^{next(iter(change))}: got"):
        run(score, **change)
    assert score.calls == 0


@pytest.mark.parametrize("name", ["greedy", "sample", "beam"])
def test_a_vocabulary_that_is_not_told_is_read_from_the_first_answer(name):
    run = {"greedy": run_greedy, "sample": run_sample, "beam": run_beam}[name]
    score = Watched()
    with pytest.raises(ValueError, match="^eos: got 5; allowed: an id from 0 to 4"):
        run(lambda ids: score(ids), eos=Y)
    assert score.calls == 1


def test_models_tell_their_vocabulary():
    sizes = {"vocabulary": 10, "width": 12, "layers": 1, "heads": 4, "hidden": 17}
    gpt = GPT(GPTConfig(**sizes, max_length=9))
    t5 = T5(T5Config(**sizes, key_width=5))
    source = torch.ones(B, 6, dtype=torch.long)
    scores = [
        CachedScore(gpt, gpt.new_cache(B)),
        CachedScore(t5, t5.start(source)),
        Seq2Seq(17, 10, 12, 4, 19, 1).scorer(source),
        Decoder(10, 12, 4, 17, 1, max_length=9).scorer(),
        PrefixDecoder(9, 10, 12, 4, 17, 1, max_target=5).scorer(source, torch.tensor([6, 2, 4])),
    ]
    for score in scores:
        assert score.Y == 10
        with pytest.raises(ValueError, match="^eos: got 10; allowed: an id from 0 to 9"):
            run_greedy(score, eos=10)


def test_a_score_that_changes_its_vocabulary_is_refused():
    with pytest.raises(ValueError, match=r"^score: got scores of shape \[3, 3\]; allowed: \[B=3"):
        run_sample(lambda ids: torch.zeros(len(ids), ids.shape[1] + (ids.shape[1] == T) * 2))
