"""Claims, citations and errata of a notebook against the ledger's entries of its sections."""

import ast
import builtins
import re

from checks.notebook import called, calls, tree

ENTRY = r"[A-Z]\d+(?:\.\d+)*-\d+"
COLD = {"bool", "int", "float", "str", "list", "tuple", "not", "True", "False", "None"}


def claims(book, ledger, sections):
    """Faults of `claim` calls: every entry that code decides, once, in its own section, and shown.

    `sections` are the ids that belong in this notebook.
    """
    faults, made = [], {}
    for number, cell in book.code:
        where = f"{book.name}, cell [{number}]"
        for call in calls(cell.source, "claim"):
            if not call.args or not isinstance(call.args[0], ast.Constant):
                faults.append(f"{where}: the id of a claim must be written out")
                continue
            name = call.args[0].value
            made.setdefault(name, []).append(book.section_of(cell))
            if name not in ledger:
                faults.append(f"{where}: {name} is not in the ledger")
            if f"✓ {name}" not in _stdout(cell):
                faults.append(f"{where}: {name} is claimed, but its line is not in the output")
    for name, entry in ledger.items():
        if entry["section"] in sections and entry["decide"] == "code":
            faults += _placed(book, name, entry["section"], made.get(name, []), "claim")
        elif name in made and entry["decide"] != "code":
            faults.append(f"{book.name}: {name} is decided by a citation, not by code")
    foreign = [n for n in made if n in ledger and ledger[n]["section"] not in sections]
    return faults + [f"{book.name}: {n} belongs to {ledger[n]['section']}" for n in foreign]


def _placed(book, name, section, where, what):
    """Fault of an entry that does not stand exactly once, in its own section."""
    if len(where) != 1:
        return [f"{book.name}: {what} {name} stands {len(where)} times, not once"]
    return [] if where == [section] else [f"{book.name}: {what} {name} stands in {where[0]}"]


def _stdout(cell):
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def literals(book, ledger):
    """Faults of claimed values that no computation gave: `holds=True`, a typed number, a type."""
    faults, constants = [], set()
    for number, cell in book.code:
        for call in calls(cell.source, "claim"):
            name = getattr(call.args[0], "value", "?") if call.args else "?"
            expect = ledger.get(name, {}).get("expect") or {}
            for keyword in call.keywords:
                if keyword.arg == "digits" and "digits" not in expect:
                    continue
                if _constant(keyword.value, constants | _assigned(cell, call.lineno)):
                    told = f"{keyword.arg}={ast.unparse(keyword.value)[:40]}"
                    faults.append(f"{book.name}, cell [{number}]: {name}: {told} is typed")
        constants = _after(cell, constants)
    return faults


def _constant(node, constants):
    """Whether an expression has nothing in it that a cell computed.

    >>> [_constant(ast.parse(e).body[0].value, {"ok"}) for e in ("not False", "ok", "f(x)", "[1]")]
    [True, True, False, True]
    """
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    cold = all(n in constants or n in COLD or _exception(n) for n in names)
    made = [called(n) for n in ast.walk(node) if isinstance(n, ast.Call)]
    return cold and all(name in COLD for name in made)


def _exception(name):
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _after(cell, constants):
    """Names that hold nothing but `True` or `False` after a cell."""
    return _flags(tree(cell.source).body, constants)


def _assigned(cell, line):
    body = [s for s in tree(cell.source).body if s.lineno < line]
    return _flags(body, set())


def _flags(body, constants):
    """Top-level names whose only assignments are a typed boolean."""
    known = set(constants)
    for statement in body:
        typed = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        typed = typed and isinstance(statement.value.value, bool)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                (known.add if typed else known.discard)(node.id)
    return known


def citations(book, ledger, sections):
    """Faults of entries that no cell can decide: cited in prose, right behind their sentence."""
    faults, told = [], {}
    for section, lines in book.paragraphs():
        for line in lines:
            for match in re.finditer(rf"<!-- ({ENTRY}) -->", line):
                name = match[1]
                told.setdefault(name, []).append(section)
                sentence = line[: match.start()]
                if not re.sub(r"<!--.*?-->|[-*>\s]", "", sentence):
                    faults.append(f"{book.name}: {name} does not follow its sentence")
                if "{cite" not in sentence and "{cite" not in " ".join(lines):
                    faults.append(f"{book.name}: {name} stands without a {{cite}}")
    for name in told:
        if name not in ledger:
            faults.append(f"{book.name}: {name} is not in the ledger")
        elif ledger[name]["decide"] != "cited":
            faults.append(f"{book.name}: {name} is decided by code, not by a citation")
    for name, entry in ledger.items():
        if entry["section"] in sections and entry["decide"] == "cited":
            faults += _placed(book, name, entry["section"], told.get(name, []), "citation")
    return faults


def is_erratum(entry):
    """Whether an entry says that the document is wrong, imprecise or one of two conventions."""
    erratum = entry.get("erratum")
    return bool(erratum) and erratum.get("class", "error") != "supplied"


def errata(book, ledger, sections):
    """Faults of errata: told once, in their section, in the first line of an admonition."""
    faults, told = [], {}
    for section, lines in book.paragraphs():
        for place, line in enumerate(lines):
            for name in re.findall(rf"<!-- erratum ({ENTRY}) -->", line):
                told.setdefault(name, []).append(section)
                if not _opens_admonition(lines[: place + 1]):
                    faults.append(f"{book.name}: erratum {name} does not open an admonition")
    for name in told:
        if name not in ledger or not is_erratum(ledger[name]):
            faults.append(f"{book.name}: erratum {name} is none of the ledger's")
    for name, entry in ledger.items():
        if entry["section"] in sections and is_erratum(entry):
            faults += _placed(book, name, entry["section"], told.get(name, []), "erratum")
    return faults


def _opens_admonition(lines):
    """Whether the last of these lines is an admonition's fence or its first line of text."""
    for line in reversed(lines[:-1]):
        if re.match(r"\s*(`{3,}|:{3,})\{", line):
            return True
        if not re.match(r"\s*:[\w-]+:", line) and "<!-- erratum" not in line and line.strip():
            return False
    return bool(re.match(r"\s*(`{3,}|:{3,})\{", lines[-1]))
