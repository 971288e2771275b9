"""The norm experiment is what it says: torch's start, one change at a time, runs that repeat."""

import pytest
import torch
from torch import nn

from labcore.experiments import norm_depth
from labcore.experiments.norm_depth import CONFIG, NORMS, POINTS, WARMUPS, build, curve, run


def test_every_setting_is_run_for_both_layouts():
    rest = {"depth", "rate", "warmup", "tables"}
    for norm in NORMS:
        others = [{k: p[k] for k in rest} for p in POINTS if p["norm"] == norm]
        assert others == [{k: p[k] for k in rest} for p in POINTS if p["norm"] == NORMS[0]]
    grid = [p for p in POINTS if p["depth"] > 1]
    assert {p["warmup"] for p in grid} == set(WARMUPS)
    assert len(POINTS) == 28 and max(p["depth"] for p in POINTS) == 12


def test_blocks_start_like_torch():
    """Uniform on the same intervals: the largest of many draws is close to the end."""
    torch.manual_seed(0)
    width, hidden = CONFIG["width"], CONFIG["hidden"]
    theirs = nn.TransformerEncoderLayer(width, CONFIG["heads"], hidden)
    ours = build(CONFIG, "post", 1, "unit").encoder.blocks[0]
    for mine, other in (
        (ours.attention.q_proj.weight, theirs.self_attn.in_proj_weight),
        (ours.attention.v_proj.weight, theirs.self_attn.in_proj_weight),
        (ours.attention.o_proj.weight, theirs.self_attn.out_proj.weight),
        (ours.ffn.up_proj.weight, theirs.linear1.weight),
        (ours.ffn.down_proj.weight, theirs.linear2.weight),
    ):
        assert mine.abs().max().item() == pytest.approx(other.abs().max().item(), rel=0.03)
        assert mine.std().item() == pytest.approx(other.std().item(), rel=0.08)


def test_tables_differ_only_in_their_size_and_layouts_only_in_their_norm():
    stds = []
    for tables in ("unit", "small"):
        torch.manual_seed(0)
        model = build(CONFIG, "pre", 2, tables)
        stds.append([model.tokens.weight.std().item(), model.positions.weight.std().item()])
    assert stds[0] == pytest.approx([1, 1], rel=0.15)
    assert stds[1] == pytest.approx([CONFIG["width"] ** -0.5, 0.02], rel=0.15)
    names = [{n for n, _ in build(CONFIG, norm, 2, "unit").named_parameters()} for norm in NORMS]
    assert names[1] - names[0] == {f"encoder.final_norm.{kind}" for kind in ("weight", "bias")}


def test_a_short_run_repeats_and_leaves_the_global_generator():
    config = {**CONFIG, "steps": 4, "tail": 2, "every": 2}
    state = torch.get_rng_state()
    first, again = (run(config, 1, "post", 2, 0.01, 2, "unit") for _ in range(2))
    assert first == again and torch.equal(state, torch.get_rng_state())
    assert {"loss", "accuracy", "loss_2", "loss_4"} == set(first)
    with pytest.raises(ValueError, match="^tables: got 'large'; allowed: "):
        run(config, 1, "post", 2, 0.01, 2, "large")


def test_curves_are_read_by_seed():
    class Results:
        def values(self, key, **point):
            assert point == {"depth": 6}
            return [float(key.removeprefix("loss_")), 0.5]

    ends, seeds = curve(Results(), depth=6)
    assert ends == [25, 50, 75, 100, 125, 150, 175, 200]
    assert seeds == [[float(end) for end in ends], [0.5] * 8]
    assert norm_depth.run.__doc__.endswith("on reversing 8 symbols.")
