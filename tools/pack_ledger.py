#!/usr/bin/env python3
"""Pack book/ledger/ledger_*.yml into labcore/_ledger.json, from which `claim` works in a wheel.

python tools/pack_ledger.py            write the file
python tools/pack_ledger.py --check    exit 1 when it is not what would be written
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("section", "decide", "claim", "expect")


def packed(folder):
    """The JSON text for the ledger in `folder`: one entry a line, for readable diffs."""
    entries = {}
    for path in sorted(folder.glob("ledger_*.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
            if entry["id"] in entries:
                sys.exit(f"{path.name}: {entry['id']} stands twice")
            entries[entry["id"]] = {k: entry[k] for k in KEPT if k in entry}
    rows = (f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in entries.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    args = parser.parse_args()
    target = ROOT / "labcore" / "_ledger.json"
    text = packed(ROOT / "book" / "ledger")
    if args.check:
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            sys.exit("labcore/_ledger.json is stale: run python tools/pack_ledger.py")
        return
    target.write_text(text, encoding="utf-8")
    print(f"{target.relative_to(ROOT)}: {len(text.splitlines()) - 2} entries")


if __name__ == "__main__":
    main()
