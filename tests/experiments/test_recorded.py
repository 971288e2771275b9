"""Every recorded result is complete and of the code as it is; the digits experiment is fair."""

import pytest
import torch

from labcore.experiments import digits, load, names
from labcore.metrics import parameters


@pytest.mark.parametrize("name", names())
def test_recorded_results_are_complete_and_of_this_code(name):
    assert load(name).rows


def test_every_file_belongs_to_an_experiment():
    from labcore.experiments.store import FOLDER

    assert {path.stem for path in FOLDER.glob("*.json")} <= set(names())


def test_models_have_the_same_number_of_parameters():
    counts = [parameters(digits.build(digits.CONFIG, model)) for model in digits.MODELS]
    assert max(counts) / min(counts) < 1.02


def test_parts_do_not_overlap_and_cover_all():
    config = {key: digits.CONFIG[key] for key in ("test", "validation", "split_seed")}
    parts = digits.digits(**config)
    rows = [tuple(image.flatten().tolist()) for images, _ in parts.values() for image in images]
    assert len(rows) == 1797 == len(set(rows))
    assert min(map(min, rows)) >= 0 and max(map(max, rows)) == 1


def test_training_sets_are_balanced_nested_and_drawn_by_seed():
    small, labels = digits.training_set(digits.CONFIG, 50, seed=2)
    large, _ = digits.training_set(digits.CONFIG, 200, seed=2)
    assert torch.bincount(labels).tolist() == [5] * 10
    inside = (small.flatten(1)[:, None] == large.flatten(1)[None]).all(-1).any(1)
    assert bool(inside.all())
    assert not torch.equal(small, digits.training_set(digits.CONFIG, 50, seed=3)[0])
    for size in (15, 1300):
        with pytest.raises(ValueError, match=f"size: got {size}"):
            digits.training_set(digits.CONFIG, size, seed=0)
    digits.training_set(digits.CONFIG, max(digits.SIZES), seed=0)


def test_the_attention_model_cuts_patches_in_order():
    torch.manual_seed(0)
    model = digits.build(digits.CONFIG, "attention").double()
    image = torch.rand(1, 8, 8, dtype=torch.float64)
    seen = []
    model.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(image)
    (patches,) = seen
    assert patches.shape == (1, 16, 4)
    for row, column in ((0, 0), (1, 2), (3, 3)):
        there = image[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].flatten()
        assert torch.equal(patches[0, 4 * row + column], there)


def test_a_short_run_repeats_and_leaves_the_global_generator():
    config = {**digits.CONFIG, "steps": 3}
    state = torch.get_rng_state()
    for model in digits.MODELS:
        runs = [digits.run(config, 1, model, 20, 0.01) for _ in range(2)]
        assert runs[0] == runs[1]
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(ValueError, match="model: got 'rnn'"):
        digits.build(config, "rnn")


def test_the_rate_is_chosen_without_the_test_set():
    results = load("digits_data_size")
    for row in results.rows:
        row["result"]["test_accuracy"] = -row["result"]["test_accuracy"]
    before = [digits.best_rate(load("digits_data_size"), m, 50) for m in digits.MODELS]
    assert [digits.best_rate(results, m, 50) for m in digits.MODELS] == before
