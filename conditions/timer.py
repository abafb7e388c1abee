"""A limit on how long a block may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class EpisodeTimeLimitError(BaseException):
    """An episode took longer than it may. No Exception, so that no agent's own handling of errors takes it for one of its."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise EpisodeTimeLimitError inside the block after so many seconds, where the system has timers for it.

    A timer interrupts Python code alone; whoever waits in a library's own code is for the pool to kill.
    """
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise EpisodeTimeLimitError(f"the episode took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
