"""Three ways to let positions talk, with one interface: x [B, N, D] in, [B, N, D] out.

Attention links every pair in one step and chooses each weight from the input; a convolution links
neighbours with weights that never change; a recurrence hands one state on from step to step.
None of them contains a norm, a residual path or a position code: those are the block's business.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from labcore.attention import MultiHeadAttention
from labcore.attention.scores import check_input
from labcore.embed.position import check_inputs
from labcore.ffn import unchanged
from labcore.shapes import flag, require, whole

BENDS = {"tanh": torch.tanh, "linear": unchanged}


class SelfAttentionMixer(nn.Module):
    """Multi-head self-attention as a mixer: every output reads every input (or, causal, its past).

    >>> list(SelfAttentionMixer(12, heads=4)(torch.ones(3, 7, 12)).shape)
    [3, 7, 12]
    """

    def __init__(self, width, heads=1, *, causal=False, bias=True):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, bias=bias)
        self.causal = flag("causal", causal)

    def forward(self, x, need_weights=False):
        return self.attention(x, causal=self.causal, need_weights=need_weights)


class ConvolutionMixer(nn.Module):
    """y_t = Σ_j W_j x_{t + dilation·(j - (k-1)/2)} + b: `kernel` k neighbours, one shared kernel.

    `padding` says what lies beyond the ends: "zeros", or "circular" for a sequence bent to a ring.
    `causal` moves the kernel into the past (and pads with zeros). The kernel's weight is
    [D, D, k], or [D, 1, k] with `depthwise`, where features do not mix.

    >>> list(ConvolutionMixer(6, kernel=3, padding="circular")(torch.ones(3, 7, 6)).shape)
    [3, 7, 6]
    """

    def __init__(
        self,
        width,
        kernel=3,
        *,
        padding="zeros",
        dilation=1,
        causal=False,
        depthwise=False,
        bias=True,
    ):
        super().__init__()
        whole("width", width), whole("kernel", kernel), whole("dilation", dilation)
        flag("causal", causal), flag("depthwise", depthwise), flag("bias", bias)
        odd = causal or kernel % 2 == 1
        require(odd, "kernel", given=kernel, allowed="an odd whole number, unless causal")
        known = padding == "zeros" or (padding == "circular" and not causal)
        allowed = '"zeros"' if causal else '"zeros" or "circular"'
        require(known, "padding", given=repr(padding), allowed=allowed)
        self.width, self.padding, self.dilation = width, padding, dilation
        self.reach = (kernel - 1) * dilation
        self.left = self.reach if causal else self.reach // 2
        groups = width if depthwise else 1
        self.convolution = nn.Conv1d(
            width, width, kernel, dilation=dilation, groups=groups, bias=bias
        )

    def forward(self, x):
        check_inputs(x, self.width)
        require(x.ndim == 3, "x", f"shape {list(x.shape)}", f"[B, N, D={self.width}]")
        check_input(x, "x", self.convolution.weight[:, :1, 0].T)
        N = x.shape[1]
        features = x.transpose(1, 2)
        if N == 0:
            return x
        if self.padding == "circular":
            # Indices modulo N also serve a kernel that reaches around the ring more than once.
            places = torch.arange(-self.left, N + self.reach - self.left, device=x.device) % N
            features = features[:, :, places]
        else:
            features = F.pad(features, (self.left, self.reach - self.left))
        return self.convolution(features).transpose(1, 2)


class RecurrentMixer(nn.Module):
    """The states h_t = f(W h_{t-1} + U x_t + b) of a plain recurrence (Elman 1990), h_{-1} = 0.

    `activation` is "tanh" or "linear"; `project=False` leaves U and b out, so that x_t enters as
    it is. The loop over N is the point: step t cannot start before step t - 1 has ended.

    >>> list(RecurrentMixer(6)(torch.ones(3, 7, 6)).shape)
    [3, 7, 6]
    """

    def __init__(self, width, *, activation="tanh", project=True, bias=True):
        super().__init__()
        flag("project", project), flag("bias", bias)
        _bend(activation)
        whole("width", width)
        self.width, self.activation = width, activation
        self.input_proj = nn.Linear(width, width, bias=bias) if project else nn.Identity()
        self.state_proj = nn.Linear(width, width, bias=False)
        # An orthogonal start keeps the state's length; below that, the past fades from step one.
        nn.init.orthogonal_(self.state_proj.weight)

    def forward(self, x):
        check_inputs(x, self.width)
        require(x.ndim == 3, "x", f"shape {list(x.shape)}", f"[B, N, D={self.width}]")
        check_input(x, "x", self.state_proj.weight)
        bend = _bend(self.activation)
        state, states = torch.zeros_like(x[:, :1].sum(1)), []
        # unbind, not x[:, t]: the backward pass of indexing would cost N² in all.
        for entering in self.input_proj(x).unbind(1):
            state = bend(self.state_proj(state) + entering)
            states.append(state)
        return torch.stack(states, 1) if states else x


def longest_path(kind, N, *, kernel=3, dilated=True):
    """Layers or steps that information needs between the two farthest of N positions.

    `kind` is "attention" (1), "recurrence" (N) or "convolution": log_k N with dilated kernels,
    N / k with contiguous ones (Vaswani et al. 2017, table 1; leading terms, not rounded).

    >>> [round(longest_path(kind, 64), 2) for kind in ("attention", "recurrence", "convolution")]
    [1.0, 64.0, 3.79]
    """
    kinds = ("attention", "recurrence", "convolution")
    require(kind in kinds, "kind", given=repr(kind), allowed=", ".join(kinds))
    whole("N", N), flag("dilated", dilated)
    if kind == "attention":
        return 1.0
    if kind == "recurrence":
        return float(N)
    whole("kernel", kernel, 2)
    return math.log(N, kernel) if dilated else N / kernel


def receptive_field(layers, kernel, dilation=1):
    """Positions one output sees through `layers` convolutions of this width: 1 + L(k - 1)·dilation.

    >>> receptive_field(4, 3), receptive_field(16, 3)
    (9, 33)
    """
    whole("layers", layers, 0), whole("kernel", kernel), whole("dilation", dilation)
    return 1 + layers * (kernel - 1) * dilation


def _bend(activation):
    known = isinstance(activation, str) and activation in BENDS
    require(known, "activation", given=repr(activation), allowed='"tanh" or "linear"')
    return BENDS[activation]
