"""A time limit on a block of code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds after which the error is raised again in a block that did not end.
_REPEAT_SECONDS = 1.0


class EpisodeTimeLimitError(BaseException):
    """An episode exceeded its time limit. Not an Exception, so that an agent's own error handling does not swallow it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise EpisodeTimeLimitError inside the block after so many seconds, where the system has timers.

    It is raised again every second until the block ends, since one may be lost in a destructor or be caught by a bare except.
    A timer interrupts Python code alone; a worker that hangs in native code is killed by the pool.
    """
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise EpisodeTimeLimitError(too_long(seconds))

    before = signal.signal(signal.SIGALRM, end)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        # Once more: the time may have been up just before the line above.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def too_long(seconds: float) -> str:
    """The reason recorded for an episode that exceeded its time limit."""
    return f"the episode took more than {seconds:g} s"
