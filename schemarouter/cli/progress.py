"""Progress of a run while it runs: counts only, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from typing import Any

import orjson
import typer

_EVENT_SECONDS = 1.0
_PLAIN_LINES = 10
# What a stream raises that is closed, full or without a reader; for the last of these rich raises SystemExit.
_UNWRITABLE = (OSError, ValueError, SystemExit)


class Display(StrEnum):
    """Displays of progress on stderr."""

    rich = "rich"
    plain = "plain"
    json = "json"
    none = "none"


class _Pace:
    """Episodes a second since the run began or was resumed, and the seconds that are left."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._start = time.monotonic()
        self._before: int | None = None

    def measure(self, done: int) -> dict[str, float | None]:
        """`episodes_per_second` and `seconds_left`, each None while unknown."""
        if self._before is None:
            self._before = done
        seconds = time.monotonic() - self._start
        pace = (done - self._before) / seconds if seconds > 0 else 0.0
        left = (self._total - done) / pace if pace > 0 else None
        return {"episodes_per_second": round(pace, 2) or None, "seconds_left": None if left is None else round(left, 1)}


@contextmanager
def progress_display(display: Display | None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that displays the numbers of episodes finished and expected, by default a bar on a terminal, else lines.

    A display that cannot be written is dropped, and the run continues without it.
    """
    chosen = display or (Display.rich if sys.stderr.isatty() else Display.plain)
    open_display = {Display.none: _silent, Display.plain: _lines, Display.json: _events, Display.rich: _bar}[chosen]
    with ExitStack() as opened:
        show: Callable[[int], None] | None = None

        def update(done: int, total: int) -> None:
            nonlocal show
            try:
                if show is None:
                    show = _ignore
                    show = opened.enter_context(open_display(total))
                show(done)
            except _UNWRITABLE:
                show = _ignore

        try:
            yield update
        finally:
            with suppress(*_UNWRITABLE):
                opened.close()


def _ignore(done: int) -> None:
    """Show nothing."""


@contextmanager
def _silent(total: int) -> Iterator[Callable[[int], None]]:
    yield _ignore


@contextmanager
def _lines(total: int) -> Iterator[Callable[[int], None]]:
    step = max(1, total // _PLAIN_LINES)

    def say(done: int) -> None:
        if done and (done % step == 0 or done == total):
            typer.echo(f"{done}/{total} episodes", err=True)

    yield say


@contextmanager
def _events(total: int) -> Iterator[Callable[[int], None]]:
    """A JSON object on each line: ``start``, ``progress`` at most once a second, and ``end``, however the run ends."""
    pace = _Pace(total)
    latest: dict[str, Any] = {"finished": 0, "expected": total}
    written_at = float("-inf")

    def say(event: str) -> None:
        line = orjson.dumps({"event": event, **latest}, option=orjson.OPT_SORT_KEYS)
        typer.echo(line.decode(), err=True)

    def show(done: int) -> None:
        nonlocal latest, written_at
        first, latest = written_at < 0, {"finished": done, "expected": total, **pace.measure(done)}
        if first or time.monotonic() - written_at >= _EVENT_SECONDS:
            written_at = time.monotonic()
            say("start" if first else "progress")

    try:
        yield show
    finally:
        say("end")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("episodes"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
        TimeRemainingColumn(),
    )
    pace = _Pace(total)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("episodes", total=total, pace="")

        def show(done: int) -> None:
            rate = pace.measure(done)["episodes_per_second"]
            bar.update(task, completed=done, pace=f"{rate:.1f}/s" if rate else "")

        yield show
