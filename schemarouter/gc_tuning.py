"""Python's cyclic garbage collector, run less often where many short-lived objects form no cycles."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Thresholds of the three generations; Python's own are 700, 10, 10.
_THRESHOLDS = (100_000, 50, 100)


@contextmanager
def reduced_gc() -> Iterator[None]:
    """Collect cycles less often within the block, and leave objects that existed before it out of every collection."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@cache
def skip_final_gc() -> None:
    """Skip the collection at the end of the process, which takes longer than many a command and frees nothing of use."""
    atexit.register(gc.freeze)
