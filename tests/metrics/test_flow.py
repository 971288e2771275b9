"""The list of what ran names every module in the order of the run, and leaves no hook behind."""

import pytest
import torch

from labcore.blocks import EncoderBlock
from labcore.metrics import flow

B, N, D, H, HIDDEN = 3, 7, 12, 4, 17


def test_an_encoder_block_runs_in_the_order_of_its_formula():
    block = EncoderBlock(D, H, HIDDEN, "post")
    calls = flow(block, torch.zeros(B, N, D), depth=1)
    assert [call.path for call in calls] == ["", "attention", "attention_norm", "ffn", "ffn_norm"]
    assert all(call.inputs == call.outputs == [B, N, D] for call in calls)
    assert calls[0].parameters == sum(call.parameters for call in calls[1:])
    pre = flow(EncoderBlock(D, H, HIDDEN, "pre"), torch.zeros(B, N, D), depth=1)
    assert [call.path for call in pre][1:] == ["attention_norm", "attention", "ffn_norm", "ffn"]
    deep = {call.path: call for call in flow(block, torch.zeros(B, N, D))}
    assert deep["ffn.up_proj"].outputs == [B, N, HIDDEN] and deep["ffn.up_proj"].depth == 2
    assert deep["attention.q_proj"].kind == "Linear"


def test_a_module_that_runs_twice_stands_twice():
    shared = torch.nn.Linear(D, D)
    twice = torch.nn.Sequential(shared, torch.nn.Tanh(), shared)
    kinds = [call.kind for call in flow(twice, torch.zeros(B, D))]
    assert kinds == ["Sequential", "Linear", "Tanh", "Linear"]


def test_hooks_are_gone_afterwards_also_after_an_error():
    block = EncoderBlock(D, H, HIDDEN)
    flow(block, torch.zeros(B, N, D))
    with pytest.raises(ValueError):
        flow(block, torch.zeros(B, N, D + 1))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in block.modules())
