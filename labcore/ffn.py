"""The feed-forward layer: two matrices with a bend between them, the same at every position.

FFN(x) = W_2 · f(W_1 x + b_1) + b_2 (Vaswani et al. 2017, eq. 2, there with f = ReLU; BERT takes
the exact GELU). It changes the features within a position and never looks at another one.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention.scores import check_input
from labcore.shapes import flag, require, whole


def unchanged(x):
    """`x` itself: what stands for a bend where there is none.

    >>> unchanged(3)
    3
    """
    return x


# Functions with a name of their own: a module that holds a lambda cannot be pickled.
ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "identity": unchanged,
}


def function_of(activation):
    """The function that `activation` names, or itself when it is one already.

    >>> function_of("relu")(torch.tensor(-2.0)).item()
    0.0
    """
    named = isinstance(activation, str) and activation in ACTIVATIONS
    allowed = f"a function or one of {[*ACTIVATIONS]}"
    require(named or callable(activation), "activation", repr(activation), allowed)
    return ACTIVATIONS[activation] if named else activation


class FeedForward(nn.Module):
    """Outputs [..., D] of x [..., D] through a hidden layer of width F, position by position.

    `activation` is a name from `ACTIVATIONS` or any function of a tensor; `hidden` defaults to 4D.

    >>> layer = FeedForward(6, 11)
    >>> list(layer(torch.ones(3, 5, 6)).shape), sum(p.numel() for p in layer.parameters())
    ([3, 5, 6], 149)
    """

    def __init__(self, width, hidden=None, activation="relu", *, bias=True):
        super().__init__()
        self.activation, self.function = activation, function_of(activation)
        hidden = _hidden(width, hidden, bias, thirds=12)
        self.up_proj = nn.Linear(width, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        check_input(x, "x", self.up_proj.weight)
        return self.down_proj(self.function(self.up_proj(x)))


class GatedFeedForward(nn.Module):
    """Outputs [..., D] of x [..., D]: W_down(f(W_gate x) ⊙ W_up x) (Shazeer 2020, section 2).

    With f = SiLU it is SwiGLU, Llama's layer, with the tanh GELU it is that of T5 version 1.1. It
    has a third matrix; `hidden` is usually 8D/3 instead of 4D, which makes up for it.

    >>> layer = GatedFeedForward(6, 11)
    >>> list(layer(torch.ones(3, 5, 6)).shape), sum(p.numel() for p in layer.parameters())
    ([3, 5, 6], 198)
    """

    def __init__(self, width, hidden=None, activation="silu", *, bias=False):
        super().__init__()
        self.activation, self.function = activation, function_of(activation)
        hidden = _hidden(width, hidden, bias, thirds=8)
        self.gate_proj = nn.Linear(width, hidden, bias=bias)
        self.up_proj = nn.Linear(width, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        check_input(x, "x", self.up_proj.weight)
        return self.down_proj(self.function(self.gate_proj(x)) * self.up_proj(x))


def _hidden(width, hidden, bias, thirds):
    """The hidden width, so many thirds of the width unless given; the arguments are checked."""
    whole("width", width), flag("bias", bias)
    return thirds * width // 3 if hidden is None else whole("hidden", hidden)
