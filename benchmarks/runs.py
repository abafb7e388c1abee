"""Whole runs by the command: with one process and with two, with everything cached and nothing, against a bare loop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from benchmarks.timing import Row
from schemarouter.errors import SchemaRouterError

_SPIN = "sum(i * i for i in range({}))"
_SPIN_STEPS = 40_000_000
_REPEATED = ("--agent", "fallible(slip=0.1)", "--repeat")
_GRIDS = 2
_TURNS = 2
# Repeats of the grid that are aggregated: some 10,000 and 100,000 records of the whole grid.
_AGGREGATED = (8, 74)


@dataclass(frozen=True)
class Cost:
    """Wall time of a command in seconds, and its peak memory in 10^6 bytes."""

    seconds: float
    peak_mb: float


def cost_of(command: Sequence[str], **environment: str) -> Cost:
    """Run a command to its end. Raises SchemaRouterError where it fails."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert child.stderr is not None
    with child.stderr as stream:
        message = stream.read().decode("utf-8", "replace")
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SchemaRouterError(f"{' '.join(command)}: {message.strip()}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6)


def run_rows(episodes: int, repeats: int) -> list[Row]:
    """Runs of 2 and of `repeats` times `episodes`, by one process and by two, of an agent that makes errors; and aggregates.

    Bytecode is cached in a folder that is empty at first, whatever this machine's settings say, as for an installed program.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm = {
            "SCHEMAROUTER_CACHE": str(folder / "cache"),
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        # A cold run fills the cache that the next one finds.
        cold = _run(folder / "cold", _repeated(episodes, _GRIDS), warm)
        grid = {
            "one process, cached": _run(folder / "one", _repeated(episodes, _GRIDS), warm),
            "two workers, cached": _run(folder / "two", (*_repeated(episodes, _GRIDS), "--workers", "2"), warm),
            "one process, nothing cached": cold,
        }
        _run(folder / "warming", _repeated(episodes, repeats), warm)
        long, cores = _side_by_side(folder, _repeated(episodes, repeats), warm)
        aggregated = {count: _aggregate(folder / f"aggregated{count}", count, episodes, warm) for count in _AGGREGATED}
    gained = long["one process"].seconds / long["two workers"].seconds
    note = f"two workers gain {gained:.2f}x, a bare loop {cores:.2f}x: {gained / cores:.2f} of it; best of {_TURNS}"
    return [
        *_rows("run, the grid twice", _GRIDS * episodes, grid, ""),
        *_rows(f"run, the grid {repeats} times", repeats * episodes, long, note),
        *(
            row
            for count, item in aggregated.items()
            for row in _rows("aggregate, replay included", count * episodes, item, "")
        ),
    ]


def _side_by_side(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, Cost], float]:
    """The best of some runs by one process and by two workers, and a bare loop's best speed-up, all measured in turn."""
    runs: dict[str, list[Cost]] = {"one process": [], "two workers": []}
    loops: list[tuple[float, float]] = []
    for turn in range(_TURNS):
        for name, workers in (("one process", ()), ("two workers", ("--workers", "2"))):
            runs[name].append(_run(folder / f"{name} {turn}", (*arguments, *workers), environment))
        loops.append((_spin(1), _spin(2)))
    one, two = (min(seconds) for seconds in zip(*loops, strict=True))
    return {name: min(items, key=attrgetter("seconds")) for name, items in runs.items()}, one / two


def _repeated(episodes: int, repeats: int) -> tuple[str, ...]:
    """Options for the first `repeats` times `episodes` episodes of a repeated grid."""
    return (*_REPEATED, str(repeats), "--limit", str(repeats * episodes))


def _aggregate(out: Path, repeats: int, episodes: int, environment: Mapping[str, str]) -> dict[str, Cost]:
    """Aggregate a run of so many repeats. Its retriever is random: which tools are shown does not change the speed."""
    _run(out, ("--retriever", "random(seed=1)", *_repeated(episodes, repeats), "--workers", "2"), environment)
    return {"one process": cost_of([sys.executable, "-m", "schemarouter", "aggregate", str(out)], **environment)}


def _run(out: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Cost:
    command = [sys.executable, "-m", "schemarouter", "run", "--exploratory", "--display", "none", "--out", str(out)]
    return cost_of([*command, *arguments], **environment)


def _spin(processes: int) -> float:
    """Seconds that a fixed amount of work takes, divided among so many processes."""
    share = _SPIN.format(_SPIN_STEPS // processes)
    start = time.perf_counter()
    children = [subprocess.Popen([sys.executable, "-c", share]) for _ in range(processes)]
    for child in children:
        child.wait()
    return time.perf_counter() - start


def _rows(table: str, entries: int, measured: Mapping[str, Cost], note: str) -> list[Row]:
    first = next(iter(measured.values())).seconds
    return [
        Row(
            table,
            entries,
            name,
            1,
            1000 * item.seconds,
            1000 * item.seconds,
            item.seconds / first,
            peak_mb=item.peak_mb,
            note=f"{entries / item.seconds:.0f} episodes a second" + (f"; {note}" if note and index else ""),
        )
        for index, (name, item) in enumerate(measured.items())
    ]
