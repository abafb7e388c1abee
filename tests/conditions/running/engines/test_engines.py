"""What is made of batches that come back done, undone, late, or without their worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from conditions.running.engines.base import BatchOutcome, drive
from conditions.running.engines.jobs import Done, Job, Limits, lost
from schemarouter.records import Ended, decode
from tests.conditions.running.engines.test_pool import PLAN
from tests.strategies import laws

JOBS = tuple(Job(unit, 1) for unit in PLAN.units)
Fate = Callable[[tuple[Job, ...]], BatchOutcome]


def finished(job: Job) -> Done:
    return Done(job.unit, job.attempt, b"", 1.0)


def done(jobs: tuple[Job, ...]) -> BatchOutcome:
    return BatchOutcome(jobs, [finished(job) for job in jobs])


def undone(jobs: tuple[Job, ...]) -> BatchOutcome:
    return BatchOutcome(jobs, None, undone=True)


def late(jobs: tuple[Job, ...]) -> BatchOutcome:
    return BatchOutcome(jobs, None, late=True)


def died(jobs: tuple[Job, ...]) -> BatchOutcome:
    return BatchOutcome(jobs, None, died="struck")


class MadeUp:
    """Takes `capacity` batches at a time, which end as `fates` say, and after those are done."""

    def __init__(self, fates: list[Fate], capacity: int = 2) -> None:
        self._fates = deque(fates)
        self._capacity = capacity
        self._out: deque[tuple[Job, ...]] = deque()
        self.seen: list[tuple[Job, ...]] = []

    def has_capacity(self) -> bool:
        return len(self._out) < self._capacity

    def submit(self, jobs: tuple[Job, ...]) -> None:
        self._out.append(jobs)
        self.seen.append(jobs)

    def wait(self) -> list[BatchOutcome]:
        if not self._out:
            return []
        fate = self._fates.popleft() if self._fates else done
        return [fate(self._out.popleft())]


def driven(pool: MadeUp, jobs: tuple[Job, ...] = JOBS) -> list[Done]:
    return list(drive(pool, jobs, Limits(episode_seconds=3)))


def test_a_batch_that_comes_back_undone_is_handed_in_again_as_it_was() -> None:
    pool = MadeUp([undone], capacity=1)
    assert driven(pool) == [finished(job) for job in JOBS]
    first, second = pool.seen[:2]
    assert first == second == JOBS[: len(first)]


def test_the_jobs_of_a_batch_that_lost_its_worker_are_done_one_by_one() -> None:
    pool = MadeUp([died], capacity=1)
    made = driven(pool, JOBS[:3])
    assert made == [finished(job) for job in JOBS[:3]]
    assert pool.seen == [JOBS[:3], *((job,) for job in JOBS[:3])]


def test_a_job_that_loses_two_workers_alone_is_final_and_one_that_is_late_alone_has_failed() -> None:
    (job,) = JOBS[:1]
    first, second, last = driven(MadeUp([died, died]), (job,))
    again = Job(job.unit, 2)
    assert first == lost(job, "infrastructure", "struck")
    assert second == lost(again, "infrastructure", "struck", final=True)
    assert last == finished(Job(job.unit, 3))
    (slow,) = driven(MadeUp([late]), (job,))
    end = decode(slow.record, "x").events[-1]
    assert isinstance(end, Ended) and (end.reason, end.detail) == ("time_limit", "killed after more than 3 s")


@laws(100)
@given(st.lists(st.sampled_from([done, undone]), max_size=30), st.integers(1, 4))
def test_whatever_comes_back_undone_every_job_is_done_once_and_nobody_is_blamed(
    fates: list[Fate], capacity: int
) -> None:
    made = driven(MadeUp(fates, capacity))
    assert sorted(one.unit.episode_id for one in made) == sorted(job.unit.episode_id for job in JOBS)
    assert all((one.attempt, one.failure) == (1, "") for one in made)


@laws(100)
@given(st.lists(st.sampled_from([done, undone, late, died]), max_size=30), st.integers(1, 4))
def test_whatever_becomes_of_the_workers_no_job_is_left_out(fates: list[Fate], capacity: int) -> None:
    made = driven(MadeUp(fates, capacity))
    ended = [one.unit.episode_id for one in made if not one.failure]
    assert sorted(ended) == sorted(job.unit.episode_id for job in JOBS)
