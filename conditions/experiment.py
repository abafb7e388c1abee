"""A run directory filled: episodes in the order of the grid, each on disk before the next is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from conditions.lock import LOCK_FILE, hold
from conditions.plan import Plan
from conditions.runner import Runner
from conditions.store import (
    RUN_FILE,
    TIMING_FILE,
    ShardWriter,
    append_line,
    header_line,
    open_log,
    pretty_json,
    read_run,
    shard_name,
    write_whole,
)
from schemarouter.errors import InvalidRunError


class InfrastructureError(InvalidRunError):
    """The machine failed under an episode; it stays on record and is run again by the same command."""


def prepare(folder: Path, run: Mapping[str, Any]) -> None:
    """Make a run directory, or go on in one of the same run. Raises InvalidRunError telling every difference."""
    if not _holds_a_run(folder):
        write_whole(folder / RUN_FILE, pretty_json(run))
        return
    stored = read_run(folder)
    differences = [
        f"{part}.{name}: {stored[part].get(name)!r} there, {run[part].get(name)!r} now"
        for part in ("identities", "plan", "provenance")
        for name in sorted(set(stored[part]) | set(run[part]))
        if name != "argv" and stored[part].get(name) != run[part].get(name)
    ]
    if stored["stamp"] != run["stamp"]:
        differences.append(f"stamp: {stored['stamp']!r} there, {run['stamp']!r} now")
    if differences:
        raise InvalidRunError(
            f"{folder} holds another run; use another --out. What differs:\n  " + "\n  ".join(differences)
        )


def _holds_a_run(folder: Path) -> bool:
    """Whether there is a run to go on with. Raises InvalidRunError for a place where no run can be."""
    try:
        if (folder / RUN_FILE).exists():
            return True
        # A lock, and a header on its way in, are of another run that has just begun or was killed.
        names = {item.name for item in folder.iterdir()} - {LOCK_FILE} if folder.exists() else set()
        if any(not name.startswith(f".{RUN_FILE}.") for name in names):
            raise InvalidRunError(
                f"{folder} holds other files and no {RUN_FILE}; choose an empty or new folder for --out."
            )
    except OSError as error:
        raise InvalidRunError(f"{folder}: cannot be a run directory ({error.strerror}).") from None
    return False


def execute(folder: Path, run: Mapping[str, Any], plan: Plan, runner: Runner, progress: Callable[[int], None]) -> None:
    """Run every unit that is not finished yet, appending records; `progress` is told the number finished so far.

    Raises InfrastructureError when the machine failed under an episode, after putting that on record, and InvalidRunError
    when another process is at work in the folder.
    """
    _holds_a_run(folder)  # Nothing, not even a lock, is put among somebody's other files.
    with hold(folder):
        prepare(folder, run)
        _run_unfinished(folder, run, plan, runner, progress)


def _run_unfinished(
    folder: Path, run: Mapping[str, Any], plan: Plan, runner: Runner, progress: Callable[[int], None]
) -> None:
    header = header_line(run["identities"], run["plan"], 1, 1)
    with ShardWriter(folder / shard_name(1, 1), header) as writer, open_log(folder / TIMING_FILE) as timing:
        progress(len(writer.finished))
        for unit in plan.units:
            if unit.episode_id in writer.finished:
                continue
            start = time.perf_counter_ns()
            record = runner.run(unit, attempt=writer.attempts.get(unit.episode_id, 0) + 1)
            wall_ms = (time.perf_counter_ns() - start) / 1e6
            writer.append(record)
            line = {"episode": unit.episode_id, "attempt": record.attempt, "wall_ms": round(wall_ms, 3)}
            append_line(timing, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            if record.infrastructure:
                raise InfrastructureError(
                    f"{unit.episode_id}: the machine failed ({record.events[-1].detail}); it is on record, "  # type: ignore[union-attr]
                    "nothing is lost, and the same command runs this episode again."
                )
            progress(len(writer.finished))
