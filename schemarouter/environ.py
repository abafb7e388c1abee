"""Environment variables set within a block, for this process and those it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# On small matrices, several threads of a numeric library slow each other down.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@cache
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have numpy's products take one thread in the block, and as many as before after it.

    Over small matrices more of them wait for each other, a hundred times as long where another process is at work.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, and for processes started in it; restored afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
