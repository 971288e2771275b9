"""The rows of beam search: the same work on both sides, and a search that is one."""

import pytest
import torch

from labcore.bench import rows

rows()  # registers every module's rows in their order, which an import of one of them would not
from labcore.bench import beam  # noqa: E402
from labcore.bench.decode import NEW, PROMPT  # noqa: E402


@pytest.fixture(scope="module")
def model():
    return beam.model_on("cpu")


def test_one_beam_writes_what_greedy_writes(model):
    prompt = beam.prompt_on(3, "cpu")
    found = beam.searched(model, prompt, 1)
    assert found.shape == (3, NEW)
    assert torch.equal(found, beam.greedily(model, prompt))


def test_a_wider_beam_finds_a_text_that_is_not_less_likely(model):
    prompt = beam.prompt_on(2, "cpu")

    def log_likelihood(ids):
        logits = model(torch.cat([prompt, ids], 1))[:, PROMPT - 1 : -1].double()
        return logits.log_softmax(-1).gather(-1, ids[..., None]).sum((1, 2))

    with torch.no_grad():
        wide, plain = (log_likelihood(f) for f in (
            beam.searched(model, prompt, 4), beam.greedily(model, prompt)
        ))  # fmt: skip
    assert bool((wide > plain).all())


def test_only_rows_of_equal_text_are_compared():
    found = rows("beam")
    assert [row.tolerance for row in found] == [0.0, None, None, None, None]
    assert all(row.floor is None and len(row.title) < 100 for row in found)
