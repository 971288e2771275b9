"""python -m labcore.bench [list | all | GROUP] [--json FILE] [--rounds N] [--quick] …"""

import argparse
import sys

import torch

from labcore import runtime
from labcore.bench.record import FOLDER, NOTE, keep, run, slug
from labcore.bench.registry import groups, rows


def main(arguments=None):
    """0 when measured; 1 with --strict when a row is below its floor; 2 for unusable arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m labcore.bench",
        description=f"Measures our parts against others' ({NOTE}).",
    )
    parser.add_argument("group", nargs="?", default="all", help='a group, "all", or "list"')
    parser.add_argument("--json", help="file for the record (default: in the package, by machine)")
    parser.add_argument("--rounds", type=int, help="rounds a row, each side once a round (15)")
    parser.add_argument("--quick", action="store_true", help="few short rounds, nothing recorded")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if any")
    parser.add_argument("--threads", type=int, default=1, help="threads on the CPU (1)")
    parser.add_argument("--strict", action="store_true", help="fail when a floor is missed")
    given = parser.parse_args(arguments)
    if given.group == "list":
        for name in groups():
            for one in rows(name):
                print(f"{name}: {one.title}, against {one.against}")
        return 0
    if given.threads < 1:
        parser.error(f"--threads: got {given.threads}; allowed: a whole number of at least 1")
    torch.set_num_threads(given.threads)
    options = {"rounds": 5, "block": 0.005, "warmup": 0.02} if given.quick else {}
    options |= {"rounds": given.rounds} if given.rounds is not None else {}
    try:
        device = runtime.device(given.device or "auto").type
        record = run(None if given.group == "all" else given.group, device=device, **options)
    except ValueError as error:
        parser.error(str(error))
    if given.json or not given.quick:
        path = given.json or FOLDER / f"{slug(record['machine'])}.json"
        keep(record, path)
        print(path)
    if device == "cpu":
        print(NOTE, file=sys.stderr)
    missed = [one["title"] for one in record["rows"] if one["verdict"] == "below floor"]
    for title in missed:
        print(f"below its floor: {title}", file=sys.stderr)
    return int(bool(missed) and given.strict)


if __name__ == "__main__":
    sys.exit(main())
