"""One thread for every test, and the folders that hold the book's checks and tools."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

TESTS = Path(__file__).resolve().parent
for folder in (TESTS / "book", TESTS.parent / "tools"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
