"""Who does the work: this process, or a pool of others that may die, hang and be replaced."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from conditions.running.engines.batches import Batches
from conditions.running.engines.jobs import NO_LIMITS, Done, Job, Limits, lost, perform
from conditions.running.runner import Runner
from schemarouter.errors import InvalidRunError
from schemarouter.gc_tuning import reduced_gc

MakeRunner = Callable[[], Runner]
# How much longer than its own limits a batch is waited for before its process is killed, in seconds: a retriever may have to be
# built first.
GRACE_SECONDS = 30.0
_MAX_DEATHS = 2


class WorkersLostError(InvalidRunError):
    """Workers end again and again before they have done anything: no episode is to blame, and none can be run."""


class Engine(Protocol):
    """Does jobs, in whatever order they end."""

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield what came of each job, and of every further attempt that was needed."""


class InProcess:
    """Does one job after the other, here."""

    def __init__(self, runner: Runner, limits: Limits = NO_LIMITS) -> None:
        self._runner = runner
        self._limits = limits

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield what came of each job."""
        with reduced_gc():
            for job in jobs:
                yield perform(self._runner, job, self._limits)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch: all of it done, or its worker `died`, or it was `late` and its worker was killed.

    A batch that came back `undone` was lost with workers that it had nothing to do with, perhaps before any of them had it.
    """

    jobs: tuple[Job, ...]
    done: Sequence[Done] | None
    died: str = ""
    late: bool = False
    undone: bool = False


class WorkerPool(Protocol):
    """Workers of one kind: batches are handed in while there is room, and come back one way or another."""

    def has_capacity(self) -> bool:
        """Whether another batch can be handed in."""

    def submit(self, jobs: tuple[Job, ...]) -> None:
        """Hand in a batch."""

    def wait(self) -> list[BatchOutcome]:
        """Wait for batches to come back; an empty list when none is out. Raises what a worker raised."""


def drive(pool: WorkerPool, jobs: Iterable[Job], limits: Limits) -> Generator[Done, None, None]:
    """Give a pool its work and yield what comes back.

    The jobs of a batch whose worker was lost are done again one by one; one that loses its worker alone has failed for reasons
    of the machine, is put on record, and is tried once more. A batch that came back undone is handed in again as it was.
    """
    batches = Batches(jobs, singly=limits.watched)
    again: deque[tuple[Job, ...]] = deque()
    deaths: Counter[str] = Counter()
    while True:
        while pool.has_capacity():
            batch = again.popleft() if again else batches.take()
            if not batch:
                break
            pool.submit(batch)
        outcomes = pool.wait()
        if not outcomes:
            return
        for outcome in outcomes:
            if outcome.done is not None:
                batches.learn(outcome.done)
                yield from outcome.done
            elif outcome.undone:
                again.append(outcome.jobs)
            elif len(outcome.jobs) > 1:
                again.extend((job,) for job in outcome.jobs)
            elif outcome.late:
                yield lost(outcome.jobs[0], "time_limit", f"killed after more than {limits.episode_seconds:g} s")
            else:
                job = outcome.jobs[0]
                deaths[job.unit.episode_id] += 1
                final = deaths[job.unit.episode_id] >= _MAX_DEATHS
                yield lost(job, "infrastructure", outcome.died, final=final)
                again.append((Job(job.unit, job.attempt + 1),))


def most_seconds(jobs: Sequence[Job], limits: Limits) -> float | None:
    """How long a batch is waited for, in seconds; None without a limit."""
    return None if limits.episode_seconds is None else len(jobs) * limits.episode_seconds + GRACE_SECONDS
