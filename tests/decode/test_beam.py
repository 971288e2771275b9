"""Beam search against a loop without tensors, against every path of random trees, and by hand."""

import itertools
import math

import pytest
import torch

from labcore.decode import (
    RandomTree,
    TableScore,
    backtrack,
    beam_search,
    beam_step,
    exhaustive,
    length_penalty,
    nodes,
    paths,
    word_tree,
)

EMPTY = torch.zeros(1, 0, dtype=torch.long)
HE = {
    "": {"he": -0.7, "I": -0.9},
    "he": {"hit": -1.0, "struck": -2.2},
    "I": {"was": -0.7, "got": -0.9},
    "he hit": {"me": -0.8, "a": -1.1},
    "I was": {"*": -2.0},
    "he hit me": {"with": -0.8},
    "he hit a": {"pie": -0.6},
    "he hit me with": {"a": -0.4, "one": -1.0},
    "he hit a pie": {"*": -1.5},
    "he hit me with a": {"pie": -0.6},
    "he hit me with one": {"*": -1.0},
}


def every_path(tree, T, eos=None, alpha=0.0):
    """{ids: value} of all complete sequences, by itertools and one look-up a token."""
    found = {}
    for path in itertools.product(range(tree.Y), repeat=T):
        if eos is not None and eos in path:
            path = path[: path.index(eos) + 1]
        score = 0.0
        for t, y in enumerate(path):
            score += tree(torch.tensor([path[:t]], dtype=torch.long).view(1, -1))[0, y].item()
        found[path] = score / ((5 + len(path)) / 6) ** alpha
    return found


def plain_beam(tree, k, T, eos=None):
    """The best finished or complete path, with lists and sorted() alone."""
    live, pool = [((), 0.0)], []
    for t in range(T):
        grown = []
        for prefix, score in live:
            row = tree(torch.tensor([prefix], dtype=torch.long).view(1, -1))[0].tolist()
            grown += [((*prefix, y), score + x) for y, x in enumerate(row) if x > -math.inf]
        grown.sort(key=lambda pair: -pair[1])
        pool += [pair for pair in grown[:k] if pair[0][-1] == eos]
        live = [pair for pair in grown if pair[0][-1] != eos][:k]
        if t == T - 1:
            pool += live
        pool = sorted(pool, key=lambda pair: -pair[1])[:k]
        if not live or (len(pool) == k and live[0][1] <= pool[-1][1]):
            break
    return pool


def greedy_path(tree, T, eos=None):
    ids = EMPTY
    for _ in range(T):
        ids = torch.cat([ids, tree(ids).argmax(-1, keepdim=True)], 1)
        if ids[0, -1] == eos:
            break
    return ids[0].tolist()


@pytest.mark.parametrize("eos", [None, 2])
@pytest.mark.parametrize("k", [1, 2, 4, 30])
def test_equals_a_loop_without_tensors(k, eos):
    for seed in range(12):
        tree = RandomTree(3, 4, seed)
        found = beam_search(tree, EMPTY, beam=k, max_new_tokens=4, eos=eos).hypotheses[0]
        wanted = plain_beam(tree, k, 4, eos)
        assert [tuple(h.ids) for h in found] == [ids for ids, _ in wanted]
        assert [h.score for h in found] == pytest.approx([s for _, s in wanted], abs=1e-12)


@pytest.mark.parametrize("eos", [None, 0])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_widest_beam_is_exhaustive_and_width_one_is_greedy(eos, alpha):
    for seed in range(20):
        Y, T = 3, 4
        tree = RandomTree(Y, T, seed)
        every = every_path(tree, T, eos, alpha)
        best = max(every, key=every.get)
        search = exhaustive(tree, length=T, eos=eos, alpha=alpha)
        options = {"max_new_tokens": T, "eos": eos, "alpha": alpha}
        wide = beam_search(tree, EMPTY, beam=Y ** (T - 1), **options).hypotheses[0][0]
        assert tuple(search.best.ids) == tuple(wide.ids) == best
        assert search.best.value == pytest.approx(every[best], abs=1e-12)
        assert wide.value == pytest.approx(every[best], abs=1e-12)
        assert search.paths == len(every)
        if not alpha:
            one = beam_search(tree, EMPTY, beam=1, max_new_tokens=T, eos=eos)
            assert one.hypotheses[0][0].ids == greedy_path(tree, T, eos)


def test_width_of_the_vocabulary_is_exact_for_two_tokens_and_not_for_more():
    misses = 0
    for seed in range(100):
        for T in (2, 4):
            tree = RandomTree(3, T, seed)
            best = exhaustive(tree, length=T).best
            found = beam_search(tree, EMPTY, beam=3, max_new_tokens=T).hypotheses[0][0]
            assert found.score <= best.score + 1e-12
            assert T > 2 or found.ids == best.ids
            misses += found.ids != best.ids
    assert misses > 0


def test_he_and_i():
    score, words = word_tree(HE)
    result = beam_search(score, EMPTY, beam=2, max_new_tokens=6, normalise=False)
    best = result.hypotheses[0][0]
    assert " ".join(words[y] for y in best.ids) == "he hit me with a pie"
    assert best.score == pytest.approx(-4.3, abs=1e-12)
    kept = [[n for n in layer if n.kept] for layer in nodes(result)]
    assert [layer[0].score for layer in kept] == pytest.approx([-0.7, -1.6, -2.5, -3.3, -3.7, -4.3])
    assert [layer[1].score for layer in kept][:5] == pytest.approx([-0.9, -1.7, -2.8, -3.4, -4.3])
    assert [len(layer) for layer in nodes(result)] == [2, 4, 3, 2, 3, 2]
    for before, after in itertools.pairwise(kept):  # a pruned prefix never comes back
        assert {n.ids[:-1] for n in after} <= {n.ids for n in before}
    assert backtrack(result.rounds, 0) == best.ids


def test_a_batch_is_its_sequences_and_a_cache_follows_the_prefixes():
    trees = [RandomTree(4, 5, seed) for seed in range(3)]

    class Together:
        """Scores of three trees; keeps its own copy of the prefixes, moved only by `reorder`."""

        kept = None

        def __call__(self, prefix):
            if self.kept is not None:
                assert torch.equal(self.kept, prefix[:, :-1])
            self.kept = prefix
            return torch.cat(
                [tree(rows) for tree, rows in zip(trees, prefix.chunk(3), strict=True)]
            )

        def reorder(self, rows):
            self.kept = self.kept[rows]

    start = torch.zeros(3, 0, dtype=torch.long)
    options = {"beam": 2, "max_new_tokens": 5, "eos": 1, "alpha": 0.4}
    together = beam_search(Together(), start, **options)
    for b, tree in enumerate(trees):
        alone = beam_search(tree, EMPTY, **options)
        assert together.hypotheses[b] == alone.hypotheses[0]
        assert together.expanded[b] == alone.expanded[0]


def test_finished_hypotheses_are_kept_and_lengths_compared():
    # token 0 ends: "0" has 0.3, "1 0" 0.7 · 0.5, "1 1 0" 0.7 · 0.5 · 1
    log = [math.log(x) for x in (0.3, 0.7)]
    half = [math.log(0.5)] * 2
    score = TableScore({(): log, (1,): half, (1, 1): [0.0, -math.inf]}, 2)
    raw = beam_search(score, EMPTY, beam=3, max_new_tokens=3, eos=0).hypotheses[0]
    assert [h.ids for h in raw] == [[1, 0], [1, 1, 0], [0]]
    assert all(h.finished for h in raw)
    longer = beam_search(score, EMPTY, beam=3, max_new_tokens=3, eos=0, alpha=1.0)
    assert longer.hypotheses[0][0].ids == [1, 1, 0]
    first = beam_search(score, EMPTY, beam=1, max_new_tokens=3, eos=0, stop="count")
    assert first.hypotheses[0][0].ids == [1, 0]
    cut = beam_search(score, EMPTY, beam=2, max_new_tokens=1, eos=0).hypotheses[0]
    assert [(h.ids, h.finished) for h in cut] == [([1], False), ([0], True)]


def test_a_beam_wider_than_all_candidates_has_no_dead_hypotheses():
    tree = RandomTree(2, 3, 1)
    found = beam_search(tree, EMPTY, beam=50, max_new_tokens=3)
    assert len(found.hypotheses[0]) == 8
    assert found.expanded == [7]
    assert all(math.isfinite(h.score) for h in found.hypotheses[0])
    assert sum(math.exp(h.score) for h in found.hypotheses[0]) == pytest.approx(1)


def test_dead_prefixes_are_left_out_and_a_dead_sequence_is_refused():
    # After 1 nothing follows, so only 0 0 and 0 1 are whole paths.
    half = [math.log(0.5)] * 2
    score = TableScore({(): half, (0,): half}, 2)
    found = beam_search(score, EMPTY, beam=2, max_new_tokens=2).hypotheses[0]
    assert sorted(h.ids for h in found) == [[0, 0], [0, 1]]
    with pytest.raises(ValueError, match="^score: got -inf on every path"):
        beam_search(score, EMPTY, beam=2, max_new_tokens=3)


def test_start_is_kept_in_front_and_left_out_of_the_result():
    seen = []

    def score(prefix):
        seen.append(prefix.clone())
        return torch.zeros(len(prefix), 5)

    start = torch.tensor([[3, 4], [4, 2]])
    result = beam_search(score, start, beam=2, max_new_tokens=3)
    assert [h.ids for h in result.hypotheses[1]] == [[0, 0, 0], [0, 0, 1]]  # ties: smaller ids
    assert all(torch.equal(p[:, :2], start.repeat_interleave(2, 0)) for p in seen)


def test_step_and_penalties():
    candidates = torch.tensor([[[-1.7, -2.9], [-1.6, -1.8]], [[-9.0, -1.0], [-1.0, -2.0]]])
    scores, parents, tokens = beam_step(candidates, 3)
    assert parents.tolist() == [[1, 0, 1], [0, 1, 1]]
    assert tokens.tolist() == [[0, 0, 1], [1, 0, 1]]
    assert scores[0].tolist() == pytest.approx([-1.6, -1.7, -1.8])
    assert length_penalty(6, 0.6) == pytest.approx((11 / 6) ** 0.6)
    assert length_penalty(4, 0.5, "power") == 2
    assert sum(1 for _ in paths(3, 5)) == 243


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beam": 0}, "beam: got 0"),
        ({"beam": -2}, "beam: got -2"),
        ({"beam": True}, "beam: got True"),
        ({"beam": 2.0}, "beam: got 2.0"),
        ({"max_new_tokens": 0}, "max_new_tokens: got 0"),
        ({"eos": 3}, "eos: got 3"),
        ({"eos": -1}, "eos: got -1"),
        ({"alpha": -0.1}, "alpha: got -0.1"),
        ({"alpha": math.nan}, "alpha: got nan"),
        ({"penalty": "wu"}, "penalty: got 'wu'"),
        ({"stop": "early"}, "stop: got 'early'"),
        ({"start_BT": torch.zeros(2, dtype=torch.long)}, "start: got shape"),
        ({"start_BT": torch.zeros(0, 2, dtype=torch.long)}, "start: got shape"),
        ({"score": lambda p: torch.full((len(p), 3), math.nan)}, "score: got NaN"),
        ({"score": lambda p: torch.ones(len(p), 3), "normalise": False}, "log-probability of 1"),
    ],
)
def test_bad_input(change, words):
    options = {"score": RandomTree(3, 4), "start_BT": EMPTY, "beam": 2, "max_new_tokens": 4}
    with pytest.raises(ValueError, match=words):
        beam_search(**{**options, **change})


def test_bad_trees():
    with pytest.raises(
        ValueError, match="^T: got 8; allowed: a length with at most 2000000 paths over 8 tokens"
    ):
        RandomTree(8, 8)
    with pytest.raises(ValueError, match=r"prefix: got length 4; allowed: at most 3"):
        RandomTree(3, 4)(torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"table\[\(\)\]: got 1 numbers"):
        TableScore({(): [0.0]}, 2)
    with pytest.raises(ValueError, match="unknown|got \\['we'\\]"):
        word_tree({"": {"he": -1.0}, "we": {"he": -1.0}})
    with pytest.raises(ValueError, match="eos: got 3"):
        exhaustive(RandomTree(3, 2), length=2, eos=3)
    with pytest.raises(ValueError, match="-inf on every path"):
        exhaustive(TableScore({}, 2), length=2)
    with pytest.raises(ValueError, match="length: got 0"):
        exhaustive(RandomTree(3, 2), length=0)
    with pytest.raises(ValueError, match=r"^table\[\(1,\)\]: got \[nan, 0.0\]"):
        TableScore({(1,): [math.nan, 0.0]}, 2)
