"""`claim`: each rule, each way to fail it, and each misuse."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from labcore import claims
from labcore.claims import ClaimError, claim

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def rule(monkeypatch):
    """Put one made-up entry in the ledger and claim it."""

    def run(rules, decide="code", /, **values):
        expect = rules if all(isinstance(r, dict) for r in rules.values()) else {"x": rules}
        entry = {"section": "Z1", "decide": decide, "claim": "a made-up claim", "expect": expect}
        monkeypatch.setattr(claims, "ledger", lambda: {"Z1-01": entry})
        claim("Z1-01", **values)

    return run


PASS = [
    ({"value": 0.5, "abs": 1e-3}, 0.5009),
    ({"value": 0.5, "abs": 1e-3}, torch.tensor(0.5)),
    ({"value": [1.0, 2.0]}, numpy.array([1.0, 2.0 + 1e-10])),
    ({"value": [[1.0], [2.0]], "abs": 0.1}, torch.tensor([[1.05], [1.95]])),
    ({"value": 200.0, "rel": 0.01}, 201.9),
    ({"value": [math.inf, -math.inf]}, [math.inf, -math.inf]),
    ({"value": 3}, 3),
    ({"equals": 4.0}, 4),
    ({"equals": [[1, 6], [2, 6]]}, [torch.Size([1, 6]), (2, 6)]),
    ({"equals": "渡"}, "渡"),
    ({"equals": True}, numpy.bool_(True)),
    ({"equals": [True, False]}, torch.tensor([True, False])),
    ({"above": 0.5}, [0.6, 0.7]),
    ({"below": 1e-9}, 0.0),
    ({"between": [0, 1]}, torch.tensor([[0.0, 1.0]])),
    ({"order": "increasing"}, [1, 2, 5]),
    ({"order": "decreasing"}, numpy.array([3.0, 2.0])),
    ({"holds": "it is so"}, torch.tensor(True)),
    ({"raises": "ValueError"}, ValueError("x")),
    ({"raises": "ValueError"}, UnicodeDecodeError),
]


@pytest.mark.parametrize(("rules", "value"), PASS)
def test_a_true_value_passes_and_prints_one_line(rule, capsys, rules, value):
    rule(rules, x=value)
    printed = capsys.readouterr().out
    assert printed.startswith("✓ Z1-01  x ") and printed.count("\n") == 1


FAIL = [
    ({"value": 0.5, "abs": 1e-3}, 0.502, "too far off"),
    ({"value": 0.5}, 0.5 + 1e-8, "too far off"),
    ({"value": [1.0, 2.0]}, [1.0, 2.1], "element 1"),
    ({"value": [1.0, 2.0]}, [1.0], "another shape"),
    ({"value": [1.0, 2.0]}, [[1.0, 2.0]], "another shape"),
    ({"value": [1.0, 1.0]}, 1.0, "another shape"),
    ({"value": [[1, 2], [3]]}, [[1], [2, 3]], "another shape"),
    ({"value": 200.0, "rel": 0.01}, 202.1, "too far off"),
    ({"value": math.inf}, 1e308, "too far off"),
    ({"value": 1.0, "abs": 9.0}, math.inf, "too far off"),
    ({"value": 1.0}, True, "not a number"),
    ({"value": 1.0}, "1.0", "not a number"),
    ({"equals": 4}, 5, "not equal"),
    ({"equals": 1}, True, "not equal"),
    ({"equals": True}, 1, "not equal"),
    ({"equals": [1, 2]}, [1, 2, 3], "not equal"),
    ({"equals": "a"}, "b", "not equal"),
    ({"above": 0.5}, 0.5, "out of bounds"),
    ({"above": 0.5}, [0.6, 0.4], "out of bounds"),
    ({"above": 0.5}, [], "non-empty"),
    ({"below": 1e-9}, 1e-9, "out of bounds"),
    ({"below": 1.0}, True, "not a number"),
    ({"between": [0, 1]}, 1.0001, "out of bounds"),
    ({"order": "increasing"}, [1, 2, 2], "not increasing"),
    ({"order": "decreasing"}, [1, 2], "not decreasing"),
    ({"order": "increasing"}, [1], "at least two"),
    ({"order": "increasing"}, [[1, 2], [3, 4]], "flat list"),
    ({"holds": "it is so"}, False, "not true"),
    ({"holds": "it is so"}, 1, "not a boolean"),
    ({"raises": "ValueError"}, TypeError("x"), "another exception"),
    ({"raises": "ValueError"}, "ValueError", "not an exception"),
]


@pytest.mark.parametrize(("rules", "value", "said"), FAIL)
def test_a_false_value_raises_and_says_why(rule, capsys, rules, value, said):
    with pytest.raises(ClaimError, match=said) as caught:
        rule(rules, x=value)
    text = str(caught.value)
    assert all(word in text for word in ("Z1-01", "x:", "given:", "expected:", "a made-up claim"))
    assert next(iter(rules)) in text
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("bad", [math.nan, [1.0, math.nan], torch.tensor([math.nan])])
def test_nan_is_refused_by_every_rule(rule, bad):
    for rules in ({"value": 1.0}, {"above": 0.0}, {"equals": 1}, {"order": "increasing"}):
        with pytest.raises(ClaimError, match="NaN"):
            rule(rules, x=bad)


def test_misuse_is_named(rule):
    with pytest.raises(ClaimError, match="missing: b"):
        rule({"a": {"equals": 1}, "b": {"equals": 1}}, a=1)
    with pytest.raises(ClaimError, match="not in the entry: c"):
        rule({"a": {"equals": 1}}, a=1, c=2)
    with pytest.raises(ClaimError, match="citation"):
        rule({"a": {"equals": 1}}, "cited", a=1)
    with pytest.raises(ClaimError, match="digits: got 5"):
        rule({"a": {"equals": 1}}, a=1, digits=5)
    with pytest.raises(ClaimError, match="got object"):
        rule({"a": {"equals": 1}}, a=object())
    with pytest.raises(ClaimError, match="got complex"):
        rule({"a": {"value": 1}}, a=1j)


def test_unknown_ids_name_their_neighbours():
    with pytest.raises(ClaimError, match=r"not in the ledger.*A02-0"):
        claim("A02-001", weights=1)
    with pytest.raises(TypeError):
        claim(claim_id="A02-01", weights=1)


@pytest.mark.parametrize(
    ("rules", "value", "shown"),
    [
        ({"value": 0.216, "abs": 1e-9}, 0.6**3, "0.216"),
        ({"value": 1.138, "abs": 1e-2}, 1.1380900204, "1.1381"),
        ({"below": 1e-9}, 3.2e-17, "< 1e-09"),
        ({"below": 0.25}, 0.15934, "0.1593"),
        ({"value": 0.0, "abs": 1e-3}, 3e-6, "< 0.0001"),
        ({"value": 0.0, "abs": 1e-3}, -3e-6, "> -0.0001"),
        ({"value": 0.0}, -0.0, "0"),
        ({"equals": 1048576}, 1048576, "1048576"),
        ({"above": 0}, list(range(1, 10)), "(9 values)"),
        ({"above": -1}, torch.zeros(7, 5), "(7×5 values)"),
        ({"holds": "so"}, True, "holds"),
    ],
)
def test_the_line_is_rounded(rule, capsys, rules, value, shown):
    rule(rules, x=value)
    assert capsys.readouterr().out == f"✓ Z1-01  x {shown}\n"


def test_without_digits_a_bounded_value_shows_its_bound(rule, capsys):
    for rules, shown in (
        ({"above": 0.9}, "> 0.9"),
        ({"below": 2}, "< 2"),
        ({"between": [0, 1]}, "in [0, 1]"),
        ({"value": 0.97, "abs": 0.01}, "0.9712"),
    ):
        rule(rules, x=0.97123, digits=None)
        assert capsys.readouterr().out == f"✓ Z1-01  x {shown}\n"


def test_float32_values_are_compared_in_float64(rule):
    with pytest.raises(ClaimError):
        rule({"value": 0.1}, x=torch.tensor(0.1))  # 0.1 in float32 is 1.5e-9 away
    rule({"value": 0.1}, x=torch.tensor(0.1, dtype=torch.float64, requires_grad=True))


def test_the_packed_ledger_is_the_books_and_every_rule_is_known():
    command = [sys.executable, str(ROOT / "tools" / "pack_ledger.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = json.loads((ROOT / "labcore" / "_ledger.json").read_text(encoding="utf-8"))
    for name, entry in entries.items():
        chapter = name.partition("-")[0]  # an entry of D5.1 may be numbered as D5-01
        assert entry["section"] == chapter or entry["section"].startswith(chapter + "."), name
        assert (entry["decide"] == "code") == bool(entry.get("expect")), name
        for value_name, rules in (entry.get("expect") or {}).items():
            assert value_name.isidentifier() and value_name != "digits", name
            assert len(set(rules) & set(claims._RULES)) == 1, (name, value_name)
            assert set(rules) <= set(claims._RULES) | {"abs", "rel"}, (name, value_name)
