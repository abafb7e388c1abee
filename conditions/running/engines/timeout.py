"""A limit on how long a block may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# How long after the limit, and after each time again, the block is told once more, in seconds.
_AGAIN_SECONDS = 1.0


class EpisodeTimeLimitError(BaseException):
    """An episode took longer than it may. No Exception, so that no agent's own handling of errors takes it for one of its."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise EpisodeTimeLimitError inside the block after so many seconds, where the system has timers for it.

    It is raised again every second until the block ends: one may be lost in a destructor, or be caught by whoever catches
    everything. A timer interrupts Python code alone; whoever waits in a library's own code is for the pool to kill.
    """
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise EpisodeTimeLimitError(too_long(seconds))

    before = signal.signal(signal.SIGALRM, end)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        # Once more: the time may have been up on the way to the line above.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def too_long(seconds: float) -> str:
    """What is said of an episode that took longer than it may."""
    return f"the episode took more than {seconds:g} s"
