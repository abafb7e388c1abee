"""Alternating measurements: every system takes its turn in every round, so that a busy moment of the machine meets them all."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Built = TypeVar("Built")
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Effort:
    """How long one comparison is measured: at most `rounds` rounds and, from the third on, `seconds`; `burst` calls a turn.

    A burst finds its own data in the processor's caches, as in use, and not what the other systems left there.
    """

    rounds: int
    seconds: float
    burst: int = 25


@dataclass(frozen=True)
class Row:
    """One line of a table. Times of one call in milliseconds; `ratio` is this median over that of the first system.

    `build_s` in seconds, `kept_mb` and `peak_mb` in 10^6 bytes as tracemalloc counts them; None where it was not measured.
    """

    table: str
    entries: int
    system: str
    calls: int
    median_ms: float
    best_ms: float
    ratio: float
    build_s: float | None = None
    kept_mb: float | None = None
    peak_mb: float | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row as an object."""
        return asdict(self)


@dataclass(frozen=True)
class Build(Generic[Built]):
    """Something built, how long that took (s), what it keeps and what it needed at most (10^6 bytes)."""

    value: Built
    seconds: float
    kept_mb: float
    peak_mb: float


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection, and nothing that is alive now is ever looked at again by one."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def build(make: Callable[[], Built]) -> Build[Built]:
    """Build twice: once for the clock, once under tracemalloc, which slows it."""
    with undisturbed():
        start = time.perf_counter()
        value = make()
        seconds = time.perf_counter() - start
    tracemalloc.start()
    try:
        traced = make()
        kept, peak = tracemalloc.get_traced_memory()
        del traced
    finally:
        tracemalloc.stop()
    return Build(value, seconds, kept / 1e6, peak / 1e6)


def alternate(
    systems: Mapping[str, Callable[[Item], object]], items: Sequence[Item], effort: Effort
) -> dict[str, list[float]]:
    """Wall times of single calls in milliseconds, by system: all get the same items, a burst each in turn."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    with undisturbed():
        for call in systems.values():
            call(items[0])
        until = time.perf_counter() + effort.seconds
        for round_number in range(effort.rounds):
            if round_number >= _LEAST_ROUNDS and time.perf_counter() > until:
                break
            first = round_number * effort.burst
            burst = [items[(first + place) % len(items)] for place in range(effort.burst)]
            # Forwards and backwards, so that no system always follows the same other one.
            for name in list(systems)[:: 1 if round_number % 2 == 0 else -1]:
                times[name] += [timed(systems[name], item) for item in burst]
    return times


def once(systems: Mapping[str, Callable[[Item], object]], items: Sequence[Item]) -> dict[str, list[float]]:
    """Wall times of single calls in milliseconds, by system: every item is asked for once, the systems in turn.

    The first item comes once more before all others, unmeasured, so that nothing is loaded under the clock.
    """
    times: dict[str, list[float]] = {name: [] for name in systems}
    with undisturbed():
        for call in systems.values():
            call(items[0])
        for item in items[1:]:
            for name, call in systems.items():
                times[name].append(timed(call, item))
    return times


def timed(call: Callable[[Item], object], item: Item) -> float:
    """Wall time of one call in milliseconds."""
    start = time.perf_counter_ns()
    call(item)
    return (time.perf_counter_ns() - start) / 1e6


def rows(
    table: str,
    entries: int,
    times: Mapping[str, Sequence[float]],
    *,
    builds: Mapping[str, Build[Any]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """Rows of a table."""
    own = statistics.median(next(iter(times.values())))
    made = []
    for name, measured in times.items():
        median = statistics.median(measured)
        built = (builds or {}).get(name)
        made.append(
            Row(
                table,
                entries,
                name,
                len(measured),
                median,
                min(measured),
                median / own,
                built.seconds if built else None,
                built.kept_mb if built else None,
                built.peak_mb if built else None,
                (notes or {}).get(name, ""),
            )
        )
    return made
