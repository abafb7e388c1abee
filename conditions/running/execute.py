"""Filling a run directory: every episode of a grid, or of one shard of it, is appended as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from conditions.running.engines.base import Engine
from conditions.running.engines.jobs import Done, Job
from conditions.running.interrupts import noted_interrupts
from conditions.running.plan import WHOLE, Plan, Shard, Unit
from conditions.running.spending import LimitReachedError, Spending
from conditions.storage.append_log import Log
from conditions.storage.run_directory import RUN_FILE, RunHeader, ShardHeader, read_header
from conditions.storage.run_lock import LOCK_PREFIX, hold, hold_named
from conditions.storage.shards import SHARD_GLOB, ShardWriter, header_line, shard_name, timing_name
from schemarouter.errors import InvalidRunError
from schemarouter.files import write_new, write_whole

# From the header of a run that was begun under other code, the header with which it is resumed.
ResumeHeader = Callable[[RunHeader], RunHeader]
_HEADER_LOCK = f"{LOCK_PREFIX}header"
# How long to wait for the lock of the header, which each process holds briefly when it begins.
_HEADER_LOCK_SECONDS = 30.0
_MAX_LISTED = 5
# A single failure may pass, so the episode is run again later; as many in a row as this will not pass by itself.
_MAX_FAILURES_IN_A_ROW = 3
COMPARED = ("identities", "plan", "limits", "provenance")


class InfrastructureError(InvalidRunError):
    """Infrastructure failures ended too many episodes in a row; they are recorded, and the same command runs them again."""


def prepare(folder: Path, run: RunHeader, resume: ResumeHeader | None = None) -> None:
    """Make a run directory, or resume one of the same run. Raises InvalidRunError with every difference.

    With `resume`, a run of which only the provenance differs (code, packages, commit) is resumed under the header it returns.
    """
    if not holds_a_run(folder) and write_new(folder / RUN_FILE, run.to_bytes()):
        return
    stored = read_header(folder)
    latest = stored.model_copy(update={"provenance": (stored.provenance, *stored.resumed)[-1]})
    of_another_run = header_differences(latest, run, ("identities", "plan", "limits"))
    lines = of_another_run + header_differences(latest, run, ("provenance",))
    if stored.stamp != run.stamp and not stored.resumed:
        lines.append(f"stamp: {stored.stamp!r} there, {run.stamp!r} now")
    if not lines:
        return
    if resume is None or of_another_run:
        stamping = "" if of_another_run else ", or resume it with --exploratory, which stamps the run"
        remedy = f"use another --out{stamping}"
        raise InvalidRunError(f"{folder} holds another run; {remedy}. What differs:\n  " + "\n  ".join(lines))
    # Read again under a lock: the process of another shard may be recording its code too.
    with hold_named(folder, _HEADER_LOCK, timeout=_HEADER_LOCK_SECONDS):
        write_whole(folder / RUN_FILE, resume(read_header(folder)).to_bytes())


def header_differences(
    stored: RunHeader | ShardHeader, now: RunHeader | ShardHeader, parts: Iterable[str], where: str = "now"
) -> list[str]:
    """The differences of two headers in these parts, a line each; command lines may differ. `where` names the second header."""
    lines = []
    for part in parts:
        one, other = getattr(stored, part).as_json(), getattr(now, part).as_json()
        lines += [
            f"{part}.{name}: {_shortened(one.get(name), other.get(name))} there, "
            f"{_shortened(other.get(name), one.get(name))} {where}"
            for name in sorted({*one, *other} - {"argv"})
            if one.get(name) != other.get(name)
        ]
    return lines


def _shortened(value: Any, other: Any) -> str:
    """A value in words: for a long list the number of entries, and the first few that the other list lacks."""
    if not (isinstance(value, list) and isinstance(other, list) and len(value) > _MAX_LISTED):
        return repr(value)
    own = [item for item in value if item not in other]
    listed = ", ".join(map(repr, own[:_MAX_LISTED])) + (", …" if len(own) > _MAX_LISTED else "")
    return f"{len(value)} entries" + (f" (only in these: {listed})" if own else "")


def holds_a_run(folder: Path) -> bool:
    """Whether a folder holds a run to resume. Raises InvalidRunError where it cannot hold one."""
    try:
        if (folder / RUN_FILE).exists():
            return True
        # Locks and a header that is being written belong to another run that has just begun or was killed.
        names = {item.name for item in folder.iterdir()} if folder.exists() else set()
        if any(not name.startswith((LOCK_PREFIX, f".{RUN_FILE}.")) for name in names):
            raise InvalidRunError(
                f"{folder} holds other files and no {RUN_FILE}; choose an empty or new folder for --out."
            )
    except OSError as error:
        raise InvalidRunError(f"{folder}: cannot be a run directory ({error.strerror}).") from None
    return False


def _divide(folder: Path, shard: Shard) -> None:
    """Create the file of a shard. Raises InvalidRunError where the run is divided into another number of shards."""
    end = f"-of-{shard.count:05d}.jsonl"
    # Of two processes that begin at once with different divisions, the second finds the first one's file.
    with hold_named(folder, _HEADER_LOCK, timeout=_HEADER_LOCK_SECONDS):
        others = sorted(path.name for path in folder.glob(SHARD_GLOB) if not path.name.endswith(end))
        if others:
            raise InvalidRunError(
                f"{folder} is divided into other shards ({others[0]}), and this is {shard.index}/{shard.count}; "
                "divide a run one way only, or use another --out."
            )
        path = folder / shard_name(shard)
        try:
            path.touch()
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def execute(
    folder: Path,
    run: RunHeader,
    plan: Plan,
    engine: Engine,
    progress: Callable[[int], None],
    *,
    shard: Shard = WHOLE,
    spending: Spending | None = None,
    resume: ResumeHeader | None = None,
) -> None:
    """Run every unit of a shard that is not finished yet; `progress` is called with the number finished so far.

    An episode that an infrastructure failure ended is recorded and run again after the others. Raises InfrastructureError
    after several failures in a row, LimitReachedError where `spending` allows no more, and InvalidRunError when another
    process is at work on the shard.
    """
    holds_a_run(folder)  # Not even a lock is put among other files.
    with hold(folder, shard):
        prepare(folder, run, resume)
        _divide(folder, shard)
        _ShardRun(folder, run, shard.units(plan), engine, progress, shard, spending or Spending()).complete()


def _by_task(units: Iterable[Unit]) -> Iterator[Unit]:
    """Units grouped by task and catalog, all repeats together: what is read of a task serves the whole group."""
    together: dict[tuple[int, str], list[Unit]] = {}
    for unit in units:
        together.setdefault((unit.catalog, unit.task), []).append(unit)
    return chain.from_iterable(together.values())


class _ShardRun:
    """The run of one shard."""

    def __init__(
        self,
        folder: Path,
        run: RunHeader,
        units: Sequence[Unit],
        engine: Engine,
        progress: Callable[[int], None],
        shard: Shard,
        spending: Spending,
    ) -> None:
        self._units = units
        self._engine = engine
        self._progress = progress
        self._spending = spending
        self._shard_path = folder / shard_name(shard)
        self._timing_path = folder / timing_name(shard)
        self._header = header_line(run, shard)
        self._failures_in_a_row = 0

    def complete(self) -> None:
        """Run every unit that is not finished; errors as `execute`."""
        with (
            Log(self._timing_path, durable=False) as timing,
            ShardWriter(self._shard_path, self._header, self._spending.add_recorded) as writer,
        ):
            self._progress(len(writer.finished))
            with noted_interrupts() as raise_lost:
                while self._remain(writer) and not self._spending.reached:
                    with closing(self._engine.run(self._jobs(writer))) as finished:
                        for done in finished:
                            self._take(done, writer, timing)
                            raise_lost()
            if self._remain(writer):
                raise LimitReachedError(
                    f"stopped at {self._spending.reached}, {len(writer.finished)} of {len(self._units)} episodes done; "
                    "the same command with a higher limit resumes the run."
                )

    def _remain(self, writer: ShardWriter) -> bool:
        """Whether an episode of the shard is still to be finished."""
        return len(writer.finished) < len(self._units)

    def _jobs(self, writer: ShardWriter) -> Iterator[Job]:
        for unit in _by_task(self._units):
            name = unit.episode_id
            if name in writer.finished:
                continue
            if self._spending.reached:
                return
            yield Job(unit, writer.attempts.get(name, 0) + 1)

    def _take(self, done: Done, writer: ShardWriter, timing: Log) -> None:
        name = done.unit.episode_id
        writer.append_encoded(done.record, name, infrastructure=bool(done.failure))
        line = {"episode": name, "attempt": done.attempt, "wall_ms": round(done.wall_ms, 3)}
        timing.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._spending.add_done(done)
        self._failures_in_a_row = self._failures_in_a_row + 1 if done.failure else 0
        if done.final or self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            raise InfrastructureError(
                f"{name}: infrastructure failure ({' '.join(done.failure.split())}), {self._failures_in_a_row} in a row; "
                "they are recorded, nothing is lost, and the same command goes on."
            )
        self._progress(len(writer.finished))
