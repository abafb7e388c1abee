"""Alternating measurements: every system takes its turn in every round, so that a busy spell of the computer hits them all."""

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
_MIN_ROUNDS = 3


@dataclass(frozen=True)
class Effort:
    """How long one comparison is measured: at most `rounds` rounds and, after three of them, `seconds`; `burst` calls a turn.

    Within a burst the processor's caches hold a system's own data, as in use, and not that of the other systems.
    """

    rounds: int
    seconds: float
    burst: int = 25


@dataclass(frozen=True)
class Row:
    """One line of a table. Times of one call in milliseconds; `ratio` is this median over that of the first system.

    `build_s` in seconds, `kept_mb` and `peak_mb` in 10^6 bytes; None where they were not measured.
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
    """Something built, its build time (s), the memory that it keeps and the peak memory of building it (10^6 bytes)."""

    value: Built
    seconds: float
    kept_mb: float
    peak_mb: float


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection inside; objects that exist now are left out of every later one."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def build(make: Callable[[], Built]) -> Build[Built]:
    """Build twice: once for the time, once under tracemalloc, which slows it, for the memory."""
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
    """Wall times of single calls in milliseconds, by system: all get the same items, in bursts that alternate."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    with undisturbed():
        for call in systems.values():
            call(items[0])
        until = time.perf_counter() + effort.seconds
        for round_number in range(effort.rounds):
            if round_number >= _MIN_ROUNDS and time.perf_counter() > until:
                break
            first = round_number * effort.burst
            burst = [items[(first + index) % len(items)] for index in range(effort.burst)]
            # Forwards and backwards, so that no system always follows the same other one.
            for name in list(systems)[:: 1 if round_number % 2 == 0 else -1]:
                times[name] += [timed(systems[name], item) for item in burst]
    return times


def once(systems: Mapping[str, Callable[[Item], object]], items: Sequence[Item]) -> dict[str, list[float]]:
    """Wall times of single calls in milliseconds, by system: one call for every item but the first, the systems in turn.

    The first item is called unmeasured before all others, so that no time includes loading.
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
    """One row a system, with the ratio of its median to that of the first."""
    first_median = statistics.median(next(iter(times.values())))
    table_rows = []
    for name, measured in times.items():
        median = statistics.median(measured)
        built = (builds or {}).get(name)
        table_rows.append(
            Row(
                table,
                entries,
                name,
                len(measured),
                median,
                min(measured),
                median / first_median,
                built.seconds if built else None,
                built.kept_mb if built else None,
                built.peak_mb if built else None,
                (notes or {}).get(name, ""),
            )
        )
    return table_rows
