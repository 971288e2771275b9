"""A call that is refused or breaks leaves a cache as it was; padded rows equal rows alone."""

import pytest
import torch
from torch import nn

from labcore.attention import padding_mask
from labcore.models import GPT, T5, GPTConfig, T5Config

B, T, S, D, H, L, Y = 3, 5, 7, 12, 4, 2, 10
SIZES = {"vocabulary": Y, "width": D, "layers": L, "heads": H, "hidden": 17}
POSITIONS = ("learned", "sinusoidal", "rope", "none")


def gpt(**switches):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SIZES, max_length=9, key_width=6, **switches)).double().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


def t5():
    torch.manual_seed(0)
    return T5(T5Config(**SIZES, key_width=5)).double().eval()


def numbers(rows, length, seed=1):
    return torch.randint(0, Y, (rows, length), generator=torch.Generator().manual_seed(seed))


def refused_gpt_calls(model, cache):
    """Calls that the model must refuse, with a cache that holds three tokens."""
    more = numbers(1, 2, seed=3)
    return [
        lambda: model(more, torch.ones(2, 2).bool(), cache=cache),
        lambda: model(more, torch.ones(2, 5), cache=cache),
        lambda: model(more, cache=cache, positions=torch.arange(3)),
        lambda: model(more, cache=cache, need_weights="no"),
        lambda: model(more.float(), cache=cache),
        lambda: model(more + Y, cache=cache),
        lambda: model(numbers(2, 2), cache=cache),
        lambda: model(numbers(1, 7), cache=cache),
        lambda: model.advance(more[:, :0], cache),
    ]


@torch.no_grad()
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("which", range(9))
def test_a_refused_call_leaves_the_cache_as_it_was(position, which):
    model, given = gpt(position=position), numbers(1, 6)
    cache = model.new_cache(1, 8)
    model(given[:, :3], cache=cache)
    with pytest.raises((ValueError, TypeError), match="^[a-z_]+: got .*; allowed: "):
        refused_gpt_calls(model, cache)[which]()
    assert [layer.length for layer in cache.layers] == [3] * L
    found = model(given[:, 3:], cache=cache)
    assert (found - model(given)[:, 3:]).abs().max() < 1e-9


class Stopped(BaseException):
    """What an interrupt is: no Exception."""


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt", "t5"])
@pytest.mark.parametrize("error", [RuntimeError, Stopped])
def test_an_error_in_the_last_block_leaves_the_cache_as_it_was(kind, error):
    given, source = numbers(B, 6), numbers(B, S, seed=2)
    if kind == "gpt":
        model = gpt()
        cache, last, full = model.new_cache(B), model.blocks[-1], model(given)
        run = lambda ids: model(ids, cache=cache)  # noqa: E731
    else:
        model = t5()
        cache, last = model.start(source), model.decoder.blocks[-1]
        full = model(source, given)
        run = lambda ids: model.continued(ids, cache)  # noqa: E731
    run(given[:, :2])

    def fail(*_):
        raise error

    hook = last.ffn.register_forward_hook(fail)
    with pytest.raises(error):
        run(given[:, 2:])
    hook.remove()
    assert [layer.length for layer in cache.layers] == [2] * L
    assert (run(given[:, 2:]) - full[:, 2:]).abs().max() < 1e-9


@torch.no_grad()
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("cached", [False, True])
def test_left_padding_equals_each_row_alone(position, cached):
    model, lengths, given = gpt(position=position), [5, 2, 4], numbers(B, T)
    keep = padding_mask(lengths, T).flip(-1)
    places = (torch.arange(T) - (T - torch.tensor(lengths))[:, None]).clamp(min=0)
    if cached:
        cache = model.new_cache(B)
        parts = [model(given[:, :3], keep[..., :3], cache=cache, positions=places[:, :3])]
        parts.append(model(given[:, 3:], keep, cache=cache, positions=places[:, 3:]))
        padded = torch.cat(parts, 1)
    else:
        padded = model(given, keep, positions=places)
    for b, length in enumerate(lengths):
        alone = model(given[b : b + 1, T - length :])
        assert (padded[b, T - length :] - alone[0]).abs().max() < 1e-9
