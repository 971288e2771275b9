"""The code behind the book: Transformer and mixture-of-experts parts, each one small and checked.

Importing the package is cheap: the parts are imported where they are used.
"""

import importlib

__version__ = "0.1.0"

_PARTS = (
    "attention",
    "bench",
    "blocks",
    "claims",
    "embed",
    "experiments",
    "ffn",
    "kernels",
    "metrics",
    "models",
    "norms",
    "runtime",
    "shapes",
    "train",
    "viz",
)


def __getattr__(name):
    """The part called `name`, imported at its first use."""
    if name in _PARTS:
        return importlib.import_module(f"labcore.{name}")
    raise AttributeError(f"labcore has no part {name!r}; its parts are {', '.join(_PARTS)}")


def __dir__():
    return sorted([*globals(), *_PARTS])
