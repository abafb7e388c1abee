"""What a worker process works with: made before anything is asked of it, or else the reason why it could not be."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


def leave_interruptions() -> None:
    """Leave Ctrl-C to the process that gives out the work; it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class ProcessLocal(Generic[Value]):
    """One thing for all the work of a process."""

    def __init__(self) -> None:
        self._held: list[Value | Exception] = []

    def make(self, make: Callable[[], Value]) -> None:
        """Make it. What is raised is told with the first work: here it would only be a process that ended."""
        try:
            self._held[:] = [make()]
        except Exception as error:
            self._held[:] = [error]

    def get(self) -> Value:
        """The thing. Raises what making it raised."""
        (held,) = self._held
        if isinstance(held, Exception):
            raise held
        return held
