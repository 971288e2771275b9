"""python -m labcore.experiments [NAME …] [--seed N] [--force] [--check] [--folder PATH]"""

import argparse
import sys

from labcore.experiments import ResultError, check, find, names, run


def main(arguments=None):
    """0 when all went well, 1 when a result is refused, 2 for unusable arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m labcore.experiments",
        description="Runs recorded experiments; a run that was stopped goes on where it was.",
    )
    parser.add_argument("name", nargs="*", help='experiments to run, or "all"; none: list them')
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--force", action="store_true", help="start anew, dropping the recording")
    parser.add_argument("--check", action="store_true", help="re-run one seed and compare")
    parser.add_argument("--folder", help="where the JSON files lie (default: in the package)")
    given = parser.parse_args(arguments)
    chosen = names() if given.name == ["all"] else given.name
    if not chosen:
        for name in names():
            experiment = find(name)
            runs = len(experiment.points) * len(experiment.seeds)
            print(f"{name}: {experiment.about} ({runs} runs)")
        return 0
    try:
        for name in chosen:
            _one(name, given)
    except ResultError as error:
        print(error, file=sys.stderr)
        return 1
    except ValueError as error:
        parser.error(str(error))
    return 0


def _one(name, given):
    if not given.check:
        print(run(name, seed=given.seed, force=given.force, folder=given.folder))
        return
    for key, then, now in check(name, seed=given.seed, folder=given.folder):
        print(f"{name}: {key} recorded {then:.6g}, now {now:.6g}: within tolerance")


if __name__ == "__main__":
    sys.exit(main())
