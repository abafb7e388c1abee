"""Whole runs by the command: by one process and by two, with everything cached and with nothing, beside a bare loop."""

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
# Repeats whose records are judged: of the whole grid, some 10,000 and 100,000.
_JUDGED = (8, 74)


@dataclass(frozen=True)
class Took:
    """Wall time of a command and its children's largest memory, in seconds and 10^6 bytes."""

    seconds: float
    peak_mb: float


def took(command: Sequence[str], **environment: str) -> Took:
    """Run a command to its end. Raises SchemaRouterError where it fails."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert child.stderr is not None
    with child.stderr as stream:
        told = stream.read().decode("utf-8", "replace")
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SchemaRouterError(f"{' '.join(command)}: {told.strip()}")
    return Took(time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6)


def run_rows(episodes: int, repeats: int) -> list[Row]:
    """Runs of twice and of `repeats` times `episodes`, by one process and by two, of an agent that slips; and aggregates.

    Bytecode is kept in a folder that is empty at first, whatever this machine says about it, as it is where a program is used.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
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
        judged = {count: _aggregate(folder / f"judged{count}", count, episodes, warm) for count in _JUDGED}
    gained = long["one process"].seconds / long["two workers"].seconds
    note = f"two workers gain {gained:.2f}x, a bare loop {cores:.2f}x: {gained / cores:.2f} of it; best of {_TURNS}"
    return [
        *_rows("run, the grid twice", _GRIDS * episodes, grid, ""),
        *_rows(f"run, the grid {repeats} times", repeats * episodes, long, note),
        *(
            row
            for count, item in judged.items()
            for row in _rows("aggregate, replay included", count * episodes, item, "")
        ),
    ]


def _side_by_side(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, Took], float]:
    """The best of some runs by one process and by two workers, and what a bare loop gains at best, all taken in turn."""
    runs: dict[str, list[Took]] = {"one process": [], "two workers": []}
    loops: list[tuple[float, float]] = []
    for turn in range(_TURNS):
        for name, asked in (("one process", ()), ("two workers", ("--workers", "2"))):
            runs[name].append(_run(folder / f"{name} {turn}", (*arguments, *asked), environment))
        loops.append((_spin(1), _spin(2)))
    one, two = (min(seconds) for seconds in zip(*loops, strict=True))
    return {name: min(items, key=attrgetter("seconds")) for name, items in runs.items()}, one / two


def _repeated(episodes: int, repeats: int) -> tuple[str, ...]:
    """The first episodes of so many repeats of a grid that has `episodes`."""
    return (*_REPEATED, str(repeats), "--limit", str(repeats * episodes))


def _aggregate(out: Path, repeats: int, episodes: int, environment: Mapping[str, str]) -> dict[str, Took]:
    """Aggregate so many repeats of an agent that slips; what tools are shown does not matter to the pace, so they are random."""
    _run(out, ("--retriever", "random(seed=1)", *_repeated(episodes, repeats), "--workers", "2"), environment)
    return {"one process": took([sys.executable, "-m", "schemarouter", "aggregate", str(out)], **environment)}


def _run(out: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Took:
    command = [sys.executable, "-m", "schemarouter", "run", "--exploratory", "--display", "none", "--out", str(out)]
    return took([*command, *arguments], **environment)


def _spin(processes: int) -> float:
    """Seconds in which so many processes count, the same work in all."""
    share = _SPIN.format(_SPIN_STEPS // processes)
    start = time.perf_counter()
    children = [subprocess.Popen([sys.executable, "-c", share]) for _ in range(processes)]
    for child in children:
        child.wait()
    return time.perf_counter() - start


def _rows(table: str, entries: int, measured: Mapping[str, Took], note: str) -> list[Row]:
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
            note=f"{entries / item.seconds:.0f} episodes a second" + (f"; {note}" if note and place else ""),
        )
        for place, (name, item) in enumerate(measured.items())
    ]
