"""How far information travels, measured on what ran: dependency chains and layers needed.

Two things make a path long. Inside one layer, a product may have to wait for another one: the
recurrence waits N times. Between layers, a local layer hands information on by a few positions
only: a convolution needs many layers before the two ends of a sequence meet.
"""

import torch

from labcore.metrics.reach import jacobian
from labcore.shapes import require, whole

# Names of autograd nodes that stand for a product with a matrix or a kernel.
_PRODUCTS = ("mm", "mv", "dot", "convolution", "linear", "scaleddotproduct")


def product_chain(layer, x):
    """Length of the longest chain of products in the layer's run on x [N, D], each of which needs
    the result of the one before: what no amount of hardware can run at the same time.

    Counted on autograd's graph of the run, whose arrows are exactly these dependencies.

    >>> from labcore.blocks import RecurrentMixer, SelfAttentionMixer
    >>> x = torch.ones(7, 4)
    >>> product_chain(SelfAttentionMixer(4), x), product_chain(RecurrentMixer(4), x)
    (3, 7)
    """
    with torch.enable_grad():
        produced = layer(x.detach()[None].requires_grad_())
    if produced.grad_fn is None:
        return 0
    longest, stack = {}, [(produced.grad_fn, False)]
    while stack:
        node, ready = stack.pop()
        if node in longest:
            continue
        below = [n for n, _ in node.next_functions if n is not None]
        if ready:
            longest[node] = _is_product(node) + max((longest[n] for n in below), default=0)
        else:
            stack.append((node, True))
            stack.extend((n, False) for n in below if n not in longest)
    return longest[produced.grad_fn]


def sequential_steps(layer, x):
    """Steps in a row that the length of x [N, D] forces: 1 + the growth of `product_chain` over a
    sequence of one position. The constant part (projections before and after) is left out, as in
    Vaswani et al. 2017, table 1.

    >>> from labcore.blocks import RecurrentMixer, SelfAttentionMixer
    >>> x = torch.ones(64, 4)
    >>> sequential_steps(SelfAttentionMixer(4), x), sequential_steps(RecurrentMixer(4), x)
    (1, 64)
    """
    return 1 + product_chain(layer, x) - product_chain(layer, x[:1])


def layers_to_connect(make, x, most=256):
    """Layers to stack until the last output depends on the first input of x [N, D].

    `make(i)` builds layer i (from 0), so that dilations may grow. Raises ValueError when `most`
    layers do not connect the ends.

    >>> from labcore.blocks import ConvolutionMixer
    >>> layers_to_connect(lambda i: ConvolutionMixer(2, 3, causal=True), torch.ones(9, 2))
    4
    >>> layers_to_connect(lambda i: ConvolutionMixer(2, 3, causal=True, dilation=3**i),
    ...                   torch.ones(9, 2))
    2
    """
    layers = torch.nn.Sequential()
    for i in range(whole("most", most)):
        layers.append(make(i).to(x))
        # Not the norm: squares of what is left after 60 small factors would round to zero.
        if bool((jacobian(layers, x, [x.shape[0] - 1])[0, :, 0] != 0).any()):
            return i + 1
    require(False, "most", given=most, allowed="enough layers to connect the two ends")


def _is_product(node):
    name = node.name().lower().removesuffix("backward0")
    return int(any(part in name for part in _PRODUCTS))
