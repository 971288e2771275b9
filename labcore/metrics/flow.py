"""What runs inside a module, in order, and the shapes that pass: read by hooks from one real run.

A drawing made by hand may leave a layer out; a list that the run itself wrote cannot.
"""

from typing import NamedTuple

import torch


class Call(NamedTuple):
    """One module that ran: its path, class, depth in the tree, shapes in and out, parameters."""

    path: str
    kind: str
    depth: int
    inputs: list
    outputs: list
    parameters: int


def flow(module, *inputs, depth=None, **named):
    """The `Call`s of one run `module(*inputs)`, outer modules before inner ones, in their order.

    `depth` keeps only modules so deep in the tree (the module itself is 0). Modules without a
    name of their own effect, `nn.Identity` and inactive dropout, are left out.

    >>> layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> [(call.path, call.kind, call.outputs) for call in flow(layer, torch.zeros(2, 3))]
    [('', 'Sequential', [2, 4]), ('0', 'Linear', [2, 4]), ('1', 'ReLU', [2, 4])]
    """
    calls, hooks = [], []

    def enter(path, part):
        def note(_module, given, _named):
            level = path.count(".") + 1 if path else 0
            count = sum(p.numel() for p in part.parameters())
            calls.append([path, type(part).__name__, level, _shape(given), None, count])
            waiting.append(len(calls) - 1)

        return note

    def leave(_module, _given, out):
        calls[waiting.pop()][4] = _shape(out)

    waiting = []
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.Identity | torch.nn.Dropout):
            continue
        hooks.append(part.register_forward_pre_hook(enter(path, part), with_kwargs=True))
        hooks.append(part.register_forward_hook(leave))
    try:
        with torch.no_grad():
            module(*inputs, **named)
    finally:
        for hook in hooks:
            hook.remove()
    return [Call(*row) for row in calls if depth is None or row[2] <= depth]


def _shape(given):
    """The shape of the first tensor in what a module took or gave, or None."""
    parts = given if isinstance(given, tuple | list) else [given]
    return next((list(part.shape) for part in parts if isinstance(part, torch.Tensor)), None)
