"""The token table."""

import pytest
import torch

from labcore.embed import TokenEmbedding

Y, D = 10, 6


def test_rows_of_the_table_and_their_gradients():
    table = TokenEmbedding(Y, D)
    ids = torch.tensor([[1, 9, 1], [0, 0, 3]])
    out = table(ids)
    assert out.shape == (2, 3, D)
    assert torch.equal(out, table.weight[ids])
    out.sum().backward()
    assert table.weight.grad[:, 0].tolist() == [2, 2, 0, 1, 0, 0, 0, 0, 0, 1]
    assert torch.equal(table(ids.int()), out)
    assert table(ids[:0]).shape == (0, 3, D)


def test_scale():
    table = TokenEmbedding(Y, D, scale=D**0.5)
    assert torch.equal(table(torch.tensor([4])), table.weight[[4]] * D**0.5)


@pytest.mark.parametrize(
    "name, error, call",
    [
        ("ids", TypeError, lambda: TokenEmbedding(Y, D)(torch.zeros(3))),
        ("ids", TypeError, lambda: TokenEmbedding(Y, D)([1, 2])),
        ("ids", ValueError, lambda: TokenEmbedding(Y, D)(torch.tensor([Y]))),
        ("ids", ValueError, lambda: TokenEmbedding(Y, D)(torch.tensor([-1]))),
        ("vocabulary", ValueError, lambda: TokenEmbedding(0, D)),
        ("width", ValueError, lambda: TokenEmbedding(Y, 1.5)),
    ],
)
def test_bad_input_is_named(name, error, call):
    with pytest.raises(error, match=rf"^{name}: got .*; allowed: "):
        call()
