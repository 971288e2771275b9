"""Long comparisons: run once and recorded, loaded by notebooks, and replayed there in small."""

from labcore.experiments.registry import Experiment, experiment, find, names
from labcore.experiments.runner import check, replay, run
from labcore.experiments.store import ResultError, Results, load

__all__ = [
    "Experiment",
    "ResultError",
    "Results",
    "check",
    "experiment",
    "find",
    "load",
    "names",
    "replay",
    "run",
]
