"""The kernels' rows: what is asked of them, how their work is counted, and that sides agree."""

import pytest
import torch
import torch.nn.functional as F

from labcore.bench import attention, moe, rows, sides, window
from labcore.bench.harness import relative_difference

GROUPS = ("attention", "window", "moe")
YARD = attention.YARDSTICK
# What was asked for before anything was measured: title, rate, ratios.
ASKED = [
    ("forward, B2 H16 T8192 K128", (430, 510), {"SDPA flash": 1.15, "SDPA cuDNN": 0.75}),
    ("forward, causal, B2 H16 T8192 K128", (360, 440), {"SDPA flash": 1.05}),
    ("forward, B2 H16 T8192 K64", (360, 420), {"SDPA flash": 1.1}),
    ("backward, B2 H16 T8192 K128", (250, 330), {"SDPA flash": 0.8}),
    ("backward, B2 H16 T8192 K64", (210, 280), {"SDPA flash": 0.75}),
    ("forward, window 1024, B1 H16 T16384 K128", None, {YARD: 1 / 1.25, "FlexAttention": 1.0}),
    (
        "forward, 16384 windows of 49, H3 K32",
        (2.6, 3.2),
        {"eager Swin": 3.0, "SDPA + mask": 1.5},
    ),
    ("backward with dBias, 16384 windows of 49, H3 K32", (2.1, 2.8), {"eager Swin": 3.0}),
    ("forward, E64 D4096 F1024, 2048 tokens each", (430, 560), {"F.grouped_mm": 0.75}),
    ("dX, E64 D4096 F1024, 2048 tokens each", (430, 560), {"F.grouped_mm": 0.9}),
    ("dW, E64 D4096 F1024, 2048 tokens each", (360, 490), {"F.grouped_mm": 0.7}),
    ("forward, E128 D4096 F1024, 512 tokens each", (300, 400), {"F.grouped_mm": 0.9}),
    ("forward, E64 D4096 F1024, 1 token each", (2.4, 3.2), {"F.grouped_mm": 2.0}),
]


def of(device):
    return [r for group in GROUPS for r in rows(group) if r.devices == (device,)]


def test_rows_ask_what_was_written_down():
    found = {
        r.title: (r.rate, {k: v[0] for k, v in r.ratios.items()})
        for r in of("cuda")
        if r.rate or r.ratios
    }
    assert found == {f"GPU: {title}": (rate, ratios) for title, rate, ratios in ASKED}
    best = next(r for r in of("cuda") if "forward, window" in r.title).ratios[YARD][1]
    assert best == pytest.approx(1 / 1.1, abs=1e-3)


def test_on_a_cpu_nothing_is_asked_because_only_ratios_mean_something():
    assert all(r.rate is None and not r.ratios and r.floor is None for r in of("cpu"))
    assert {r.group for r in of("cpu")} == set(GROUPS)
    assert all(r.operator and (r.flops or r.bytes) for group in GROUPS for r in rows(group))


@pytest.mark.parametrize("window", [None, 1, 7, 40])
@pytest.mark.parametrize("T", [1, 12, 33])
def test_work_of_attention_is_counted_by_pairs(T, window):
    t = torch.arange(T)
    behind = t[:, None] - t
    seen = (behind >= 0) & (behind < (window or T))
    case = attention.Case(2, 3, T, 16, True, window)
    if window:
        assert attention.pairs(case) == seen.sum()
        blocks = F.pad(seen, (0, -T % 4, 0, -T % 8)).unfold(0, 8, 8).unfold(1, 4, 4).flatten(2)
        assert attention.visible_share(case, (8, 4)) == blocks.any(-1).double().mean()
    # The usual credit of a causal pass is half of the square, without the diagonal's half.
    half = case._replace(window=None)
    assert attention.flops(half) == 4 * 2 * 3 * 16 * (T * T // 2)
    assert attention.flops(half._replace(backward=True)) == attention.flops(half) * 5 // 2


def test_the_shift_mask_is_swins():
    swin = pytest.importorskip("transformers.models.swin.modeling_swin")
    layer = swin.SwinLayer(swin.SwinConfig(window_size=7), 96, (28, 28), 3, shift_size=3)
    wanted = layer.get_attn_mask(28, 28, torch.float32, torch.device("cpu"))
    case = window.Case(1, 16, 3, 7, 32)
    assert torch.equal(window.shift_mask(case, torch.device("cpu"), torch.float32), wanted)


def test_work_of_the_experts():
    case = moe.Case(4, 32, 48, 10)
    assert moe.work(case, 2) == {"flops": 2 * 40 * 32 * 48}
    one = moe.work(case._replace(each=1), 2)
    assert one == {"bytes": 2 * (4 * 32 + 4 * 32 * 48 + 4 * 48)}
    uneven = moe.counts(case._replace(uneven=True))
    assert sum(uneven) == 40 and max(uneven) == 3 * min(uneven)


@pytest.mark.parametrize("row", of("cpu"), ids=lambda row: row.title)
def test_sides_compute_what_ours_does(row):
    ours, others = row.build(torch.device("cpu"))
    wanted, there = ours(), []
    for name, side in others.items():
        function, result, why = sides.tried(side)
        if function is None:
            assert why
        elif side.share is None:
            assert relative_difference(result, wanted) < row.tolerance, name
            there.append(name)
        else:
            assert name == YARD and 0 < side.share < 1
    # What the CPU build of torch has must be there, and must not hide behind a reason.
    needed = {
        "attention": ("flash", "math"),
        "window": ("eager Swin", "math"),
        "moe": ("F.grouped_mm", "loop over experts"),
    }[row.group]
    assert all(any(name.endswith(words) for name in there) for words in needed), there


def test_a_side_that_is_not_there_says_why():
    q = torch.zeros(1, 2, 8, 16)
    found = sides.sdpa(q, q, q) | sides.flex(q, q, q)
    told = {name: sides.tried(side)[2] for name, side in found.items()}
    assert told["FlexAttention"] == "it is compiled on CUDA only"
    assert told["SDPA cuDNN"].startswith("RuntimeError: No ") and told["SDPA math"] is None
    assert list(told) == [f"SDPA {n}" for n in ("flash", "efficient", "cuDNN", "math")] + [
        "FlexAttention"
    ]


def test_reasons_name_no_file_of_the_machine():
    class Said:
        message = "Flash attention needs more (Triggered internally at /a/b.cpp:99.)"

    assert sides.reason(RuntimeError("No kernel.\nmore"), [Said]) == (
        "RuntimeError: No kernel; Flash attention needs more"
    )
    assert sides.reason(ValueError()) == "ValueError"
