"""Python's collector of cycles, told to look less often where many small things live and die without any."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Allocations before the youngest, and collections before the older generations are looked through; Python's own are 700, 10, 10.
_SELDOM = (100_000, 50, 100)


@contextmanager
def reduced_gc() -> Iterator[None]:
    """Look for cycles seldom in the block, and through what was there before it not at all."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@cache
def skip_final_gc() -> None:
    """Let the process end without a last look for cycles, which takes longer than many a command: all goes with the process."""
    atexit.register(gc.freeze)
