"""A value that a worker process makes once, or the error that making it raised."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the parent process handles it and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class ProcessLocal(Generic[Value]):
    """One value for every job of a process."""

    def __init__(self) -> None:
        self._value: list[Value | Exception] = []

    def make(self, make: Callable[[], Value]) -> None:
        """Make the value. An error is kept for `get`: raised here, it would only end the process without a reason."""
        try:
            self._value[:] = [make()]
        except Exception as error:
            self._value[:] = [error]

    def get(self) -> Value:
        """The value. Raises what making it raised."""
        (value,) = self._value
        if isinstance(value, Exception):
            raise value
        return value
