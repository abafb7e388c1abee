"""The protocol of an engine, the engine of this process, and how a pool of workers that may die or hang is driven."""

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
# Seconds that a batch may take beyond its episodes' limits before its process is killed: a retriever may have to be built first.
GRACE_SECONDS = 30.0
_MAX_DEATHS = 2


class WorkersLostError(InvalidRunError):
    """Workers end again and again before they have done any work: no episode is at fault, and none can be run."""


class Engine(Protocol):
    """Runs jobs."""

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield the outcome of each job, and of every further attempt that was needed, in the order in which they end."""


class InProcess:
    """Runs one job after the other in this process."""

    def __init__(self, runner: Runner, limits: Limits = NO_LIMITS) -> None:
        self._runner = runner
        self._limits = limits

    def run(self, jobs: Iterable[Job]) -> Generator[Done, None, None]:
        """Yield the outcome of each job, in order."""
        with reduced_gc():
            for job in jobs:
                yield perform(self._runner, job, self._limits)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """How a batch ended: it is done, or its worker `died`, or it was `late` and its worker was killed.

    A batch that is `undone` was lost when other workers failed, perhaps before any worker had it.
    """

    jobs: tuple[Job, ...]
    done: Sequence[Done] | None
    died: str = ""
    late: bool = False
    undone: bool = False


class WorkerPool(Protocol):
    """Workers that take batches while they have capacity, and give each back with its outcome."""

    def has_capacity(self) -> bool:
        """Whether another batch can be submitted."""

    def submit(self, jobs: tuple[Job, ...]) -> None:
        """Take a batch; call it only while `has_capacity`."""

    def wait(self) -> list[BatchOutcome]:
        """Wait until at least one batch has ended; an empty list when none is out. Raises what a worker raised."""


def drive(pool: WorkerPool, jobs: Iterable[Job], limits: Limits) -> Generator[Done, None, None]:
    """Submit jobs to a pool in batches and yield their outcomes.

    When a worker is lost, the jobs of its batch are run again one by one. A job that loses its worker alone is recorded as an
    infrastructure failure and tried once more. A batch that came back undone is submitted again unchanged.
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


def batch_timeout(jobs: Sequence[Job], limits: Limits) -> float | None:
    """Seconds that a batch may take; None without a limit."""
    return None if limits.episode_seconds is None else len(jobs) * limits.episode_seconds + GRACE_SECONDS
