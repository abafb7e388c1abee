"""Batches of jobs: large enough to hide the cost of sending them, small enough to lose little with a worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from conditions.running.engines.jobs import Done, Job

# The conditions of a task: the worker that runs one of them has read its request for all.
FIRST = 5
_MAX = 50
_MILLISECONDS = 250.0


class Batches:
    """Cuts a stream of jobs into batches, in order; their size follows from how long jobs take.

    Jobs of one task over one catalog stay together, so that one worker reads the task, unless the batch would become more
    than twice as long. `singly` makes a batch of each job and takes none from the stream before it is needed.
    """

    def __init__(self, jobs: Iterable[Job], *, singly: bool = False) -> None:
        self._rest = iter(jobs)
        self._singly = singly
        self._next = None if singly else next(self._rest, None)
        self._size = FIRST

    def take(self) -> tuple[Job, ...]:
        """The next batch; empty at the end."""
        if self._singly:
            return tuple(islice(self._rest, 1))
        batch: list[Job] = []
        while self._next is not None and (len(batch) < self._size or self._belongs(batch)):
            batch.append(self._next)
            self._next = next(self._rest, None)
        return tuple(batch)

    def _belongs(self, batch: Sequence[Job]) -> bool:
        """Whether the next job is of the same task as the last one of a batch, and the batch has space for it."""
        assert self._next is not None
        unit, last = self._next.unit, batch[-1].unit
        return len(batch) < 2 * self._size and (unit.task, unit.catalog) == (last.task, last.catalog)

    def learn(self, done: Sequence[Done]) -> None:
        """Adapt the size of the next batches to the wall times of these jobs."""
        mean = sum(item.wall_ms for item in done) / len(done)
        self._size = max(1, min(_MAX, int(_MILLISECONDS / max(mean, _MILLISECONDS / _MAX))))
