"""A ledger rule in words: what a claimed value must obey."""

SHOWN = 60


def rule_text(rule):
    """One rule as a short phrase.

    >>> rule_text({"value": 0.324, "abs": 0.0005})
    '0.324 ± 0.0005'
    """
    if "value" in rule:
        slack = f"± {100 * rule['rel']:g} %" if "rel" in rule else f"± {rule.get('abs', 1e-9):g}"
        return f"{plain(rule['value'])} {slack}"
    if "between" in rule:
        low, high = rule["between"]
        return f"between {plain(low)} and {plain(high)}"
    (kind, wanted) = next(iter(rule.items()))
    return {
        "equals": "exactly {}",
        "above": "above {}",
        "below": "below {}",
        "order": "strictly {}",
        "holds": "{}",
        "raises": "raises {}",
    }[kind].format(plain(wanted))


def plain(value):
    """A value as the page shows it; long lists are cut."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", "∞")
    if isinstance(value, list):
        words = "[" + ", ".join(plain(item) for item in value) + "]"
        return words if len(words) <= SHOWN else f"{words[:SHOWN]}… ({len(value)} values)"
    return str(value)
