"""`claim`: a number that a cell computed, held against the ledger's rule for it.

A ledger entry names its values and gives each exactly one rule: `value` with `abs` or `rel`,
`equals`, `above`, `below`, `between`, `order`, `holds` or `raises`. A claim that is false raises,
so a notebook that runs to its end has proved every statement it makes.
"""

import difflib
import functools
import json
import math
from importlib import resources


class ClaimError(AssertionError):
    """A claim that is false, or that does not fit its ledger entry."""


@functools.cache
def ledger():
    """The packed ledger: a mapping from id to section, decide, claim and expect.

    >>> ledger()["A02-02"]["section"]
    'A02'
    """
    text = resources.files("labcore").joinpath("_ledger.json").read_text(encoding="utf-8")
    return json.loads(text)


def claim(claim_id, /, *, digits=4, **values):
    """None; prints one line when every named value obeys its rule in the ledger.

    Values are numbers, strings, booleans, exceptions, NumPy arrays, tensors on any device, or
    nested lists of these; numbers are compared on the CPU in float64. `digits` is how many
    decimals the line shows, at most 4; with None a bounded value shows as its bound, for values
    that training leaves to the machine. Raises `ClaimError` that says id, name, given value,
    expected value and rule.

    >>> claim("A01-05", source_length=4, target_length=2, weight_shapes=[[2, 4], [5, 2], [3, 3]])
    ✓ A01-05  source_length 4  target_length 2  weight_shapes [[2, 4], [5, 2], [3, 3]]
    """
    entry = _entry(claim_id)
    if isinstance(digits, bool) or digits not in (None, 0, 1, 2, 3, 4):
        raise ClaimError(f"{claim_id}: digits: got {digits!r}; allowed: 0 to 4, or None")
    _check_names(claim_id, entry["expect"], values)
    shown = [f"✓ {claim_id}"]
    for name, rule in entry["expect"].items():
        value = _plain(values[name], f"{claim_id}: {name}")
        fault = _fault(value, rule)
        if fault:
            raise ClaimError(
                f"{claim_id}: {name}: {fault}\n  given:    {_short(value)}\n"
                f"  expected: {_rule_text(rule)}\n  claim:    {entry['claim']}"
            )
        shown.append(f"{name} {_printed(value, rule, digits)}")
    print("  ".join(shown))


def _entry(claim_id):
    entries = ledger()
    if claim_id not in entries:
        near = difflib.get_close_matches(str(claim_id), entries, n=3)
        hint = f"; close to it: {', '.join(near)}" if near else ""
        raise ClaimError(f"{claim_id!r} is not in the ledger{hint}")
    if entries[claim_id]["decide"] != "code":
        raise ClaimError(f"{claim_id} is decided by a citation; no cell can claim it")
    return entries[claim_id]


def _check_names(claim_id, expect, values):
    for word, names in (
        ("missing", [n for n in expect if n not in values]),
        ("not in the entry", [n for n in values if n not in expect]),
    ):
        if names:
            told = ", ".join(expect)
            raise ClaimError(f"{claim_id}: {word}: {', '.join(names)}; the entry has {told}")


def _plain(value, where):
    """Python numbers, strings, booleans and lists in place of tensors, arrays and tuples."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.double()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, float) and math.isnan(value):
        raise ClaimError(f"{where}: NaN cannot be claimed")
    caught = isinstance(value, type) and issubclass(value, BaseException)
    if caught or isinstance(value, (bool, int, float, str, BaseException)):
        return value
    kind = type(value).__name__
    raise ClaimError(f"{where}: got {kind}; allowed: numbers, strings, booleans, lists, tensors")


def _numbers(value):
    """All numbers in a nested list, or None where something else is among them."""
    if isinstance(value, list):
        parts = [_numbers(item) for item in value]
        return None if None in parts else [x for part in parts for x in part]
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else [value]


def _shape(value):
    """Nested lengths; ragged lists have the shapes of their items, so that they too compare."""
    return [_shape(item) for item in value] if isinstance(value, list) else ()


def _fault(value, rule):
    """What is wrong with `value` under `rule`, or an empty string."""
    kind = next(k for k in _RULES if k in rule)
    return _RULES[kind](value, rule) or _unsigned(value, rule)


def _unsigned(value, rule):
    """A residual is a size: below a small bound a negative number is a forgotten `abs`."""
    small = 0 < rule.get("below", math.inf) <= 1e-3
    negative = [x for x in _numbers(value) or [] if x < 0] if small else []
    return f"{negative[0]!r} is negative, and a residual has no sign" if negative else ""


def _near(value, rule):
    given, wanted = _numbers(value), _numbers(rule["value"])
    if given is None:
        return "not a number or a list of numbers"
    if _shape(value) != _shape(rule["value"]):
        return "another shape than expected"
    relative, slack = rule.get("rel", 0.0), rule.get("abs", 0.0 if "rel" in rule else 1e-9)
    for index, (got, want) in enumerate(zip(given, wanted, strict=True)):
        infinite = math.isinf(got) or math.isinf(want)
        if got != want and (infinite or abs(got - want) > max(slack, relative * abs(want))):
            return f"element {index} is {got!r}, not {want!r}" if len(given) > 1 else "too far off"
    return ""


def _same(value, rule):
    def alike(a, b):
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(alike, a, b))
        return isinstance(a, bool) == isinstance(b, bool) and a == b

    return "" if alike(value, rule["equals"]) else "not equal"


def _bounds(low, high):
    """A rule for a number, or every element of a list, strictly inside or on the two bounds."""

    def fault(value, rule):
        given = _numbers(value)
        if not given:
            return "not a number or a non-empty list of numbers"
        least, most = low(rule), high(rule)
        strict = "between" not in rule
        for got in given:
            if got < least or got > most or (strict and got in (least, most)):
                return f"{got!r} is out of bounds"
        return ""

    return fault


def _ordered(value, rule):
    given = _numbers(value)
    if given is None or not isinstance(value, list) or len(given) != len(value) or len(given) < 2:
        return "not a flat list of at least two numbers"
    up = rule["order"] == "increasing"
    pairs = zip(given, given[1:], strict=False)
    return "" if all(a < b if up else a > b for a, b in pairs) else f"not {rule['order']}"


def _held(value, rule):
    return "" if value is True else "not a boolean" if not isinstance(value, bool) else "not true"


def _raised(value, rule):
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, BaseException):
        return "not an exception"
    return "" if rule["raises"] in (c.__name__ for c in kind.__mro__) else "another exception"


_RULES = {
    "value": _near,
    "equals": _same,
    "above": _bounds(lambda r: r["above"], lambda r: math.inf),
    "below": _bounds(lambda r: -math.inf, lambda r: r["below"]),
    "between": _bounds(lambda r: r["between"][0], lambda r: r["between"][1]),
    "order": _ordered,
    "holds": _held,
    "raises": _raised,
}


def _short(value):
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "…"


def _rule_text(rule):
    return _short(", ".join(f"{k} {v}" for k, v in rule.items()))


def _printed(value, rule, digits):
    """The value as the line shows it: rounded, short, the same on another machine."""
    if "below" in rule and abs(rule["below"]) <= 1e-3:
        return f"< {rule['below']:g}"  # a residual: its digits are the machine's, not the claim's
    if "holds" in rule:
        return "holds"
    if "raises" in rule:
        return f"raises {rule['raises']}"
    if digits is None:
        for word, sign in (("above", "> "), ("below", "< "), ("between", "in ")):
            if word in rule:
                return f"{sign}{rule[word]}"
        digits = 4
    return _text(value, digits)


def _text(value, digits):
    if isinstance(value, list):
        flat = all(not isinstance(item, list) for item in value)
        if flat and len(value) <= 8:
            return "[" + ", ".join(_text(item, digits) for item in value) + "]"
        if not flat and len(value) <= 6 and all(isinstance(i, list) and len(i) <= 4 for i in value):
            return "[" + ", ".join(_text(item, digits) for item in value) + "]"
        lengths, inner = [], value
        while isinstance(inner, list):
            lengths.append(str(len(inner)))
            inner = inner[0] if inner else None
        return "(" + "×".join(lengths) + " values)"
    if isinstance(value, float) and math.isfinite(value):
        rounded = f"{value:.{digits}f}"
        if digits and value != 0 and float(rounded) == 0:
            return f"{'<' if value > 0 else '>'} {math.copysign(10.0**-digits, value):g}"
        text = rounded.rstrip("0").rstrip(".") if "." in rounded else rounded
        return "0" if text == "-0" else text
    return str(value)
