"""Interrupts that are not lost: Python drops what a signal handler raises inside some calls of C code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], None]]:
    """Yield a check that raises KeyboardInterrupt where an interrupt came in the block and was lost on its way.

    The handlers that are installed are called as before; what they raise inside an abstract class's instance check or a
    destructor goes nowhere, and the run would go on to its end.
    """
    usual = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread() or not usual:
        yield lambda: None
        return
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        usual[signal.Signals(number)](number, frame)

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    for number in usual:
        signal.signal(number, note)
    try:
        yield check
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back for the block: processes and threads that are started in it never get one.

    A worker that is interrupted while it is still importing would print a traceback; who started it ends it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
