"""Models go through torch's compiler and exporter whole, and give what they give without."""

import pytest
import torch

from labcore.models import GPT
from labcore.models.gpt import GPTConfig

SIZES = {"vocabulary": 10, "width": 16, "layers": 2, "heads": 4, "hidden": 17, "max_length": 9}
POSITIONS = ["learned", "rope", "sinusoidal", "none"]


def model_and_ids(position):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, position=position)).eval()
    return model, torch.randint(0, 10, (3, 5))


@pytest.mark.parametrize("position", POSITIONS)
def test_one_graph_with_the_same_logits_and_gradients(position):
    model, ids = model_and_ids(position)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found, wanted = compiled(ids), model(ids)
    torch.testing.assert_close(found, wanted)
    pairs = [
        torch.autograd.grad(x.square().sum(), list(model.parameters())) for x in (found, wanted)
    ]
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("position", POSITIONS)
def test_exported_program_gives_the_same_logits(position):
    model, ids = model_and_ids(position)
    program = torch.export.export(model, (ids,)).module()
    torch.testing.assert_close(program(ids), model(ids))


def test_checks_of_values_come_back_after_compiling():
    model, ids = model_and_ids("learned")
    torch.compile(model, backend="aot_eager")(ids)
    with pytest.raises(ValueError, match="ids: got values"):
        model(ids + 10)
