"""Whole runs by the command: by one process and by two, with everything cached and with nothing, beside a bare loop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Row
from schemarouter.errors import SchemaRouterError

_SPIN = "sum(i * i for i in range({}))"
_SPIN_STEPS = 40_000_000
_REPEATED = ("--agent", "fallible(slip=0.1)", "--repeat")
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
    return Took(time.perf_counter() - start, usage.ru_maxrss / 1000)


def run_rows(episodes: int, repeats: int) -> list[Row]:
    """Runs of `episodes`, and of `repeats` times as many with an agent that slips, by one process and by two; and aggregates."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        limit = ("--limit", str(episodes))
        warm = {"SCHEMAROUTER_CACHE": str(folder / "cache")}
        # A cold run fills the cache that the next one finds.
        cold = _run(folder / "cold", limit, warm)
        grid = {
            "one process, cached": _run(folder / "one", limit, warm),
            "two workers, cached": _run(folder / "two", (*limit, "--workers", "2"), warm),
            "one process, nothing cached": cold,
        }
        many = episodes * repeats
        again = ("--limit", str(many), *_REPEATED, str(repeats))
        _run(folder / "warming", again, warm)
        long = {
            "one process": _run(folder / "long1", again, warm),
            "two workers": _run(folder / "long2", (*again, "--workers", "2"), warm),
        }
        judged = {count: _aggregate(folder / f"judged{count}", count, episodes, warm) for count in _JUDGED}
    gained = long["one process"].seconds / long["two workers"].seconds
    cores = _cores()
    note = f"two workers gain {gained:.2f}x, a bare loop {cores:.2f}x: {gained / cores:.2f} of it"
    return [
        *_rows(f"run, {episodes:,} episodes by the command", episodes, grid, ""),
        *_rows(f"run, {many:,} episodes of an agent that slips", many, long, note),
        *(
            row
            for count, item in judged.items()
            for row in _rows("aggregate, replay included", count * episodes, item, "")
        ),
    ]


def _aggregate(out: Path, repeats: int, episodes: int, environment: Mapping[str, str]) -> dict[str, Took]:
    """Aggregate so many repeats of an agent that slips; what tools are shown does not matter to the pace, so they are random."""
    arguments = (
        *("--retriever", "random(seed=1)", *_REPEATED, str(repeats), "--workers", "2"),
        *("--limit", str(repeats * episodes)),
    )
    _run(out, arguments, environment)
    return {"one process": took([sys.executable, "-m", "schemarouter", "aggregate", str(out)], **environment)}


def _run(out: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Took:
    command = [sys.executable, "-m", "schemarouter", "run", "--exploratory", "--display", "none", "--out", str(out)]
    return took([*command, *arguments], **environment)


def _cores() -> float:
    """How much faster two processes count than one, the same work in all."""
    whole, half = (_SPIN.format(steps) for steps in (_SPIN_STEPS, _SPIN_STEPS // 2))
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", whole], check=True)
    one = time.perf_counter() - start
    start = time.perf_counter()
    halves = [subprocess.Popen([sys.executable, "-c", half]) for _ in range(2)]
    for child in halves:
        child.wait()
    return one / (time.perf_counter() - start)


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
