"""Batches hold every job once and in order, keep a task together, and are as long as its episodes let them be."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.engines import batches
from conditions.running.engines.batches import FIRST, Batches
from conditions.running.engines.jobs import Done, Job
from conditions.running.plan import Unit
from tests.strategies import LAWS

jobs_of = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 60)), max_size=12).map(
    lambda groups: [
        Job(Unit(f"t{task}-{index}", 100, "FULL", repeat), 1)
        for index, (task, size) in enumerate(groups)
        for repeat in range(1, size + 1)
    ]
)
walls = st.floats(0, 1e5)


def took(jobs: tuple[Job, ...], wall_ms: float) -> list[Done]:
    return [Done(job.unit, job.attempt, b"", wall_ms) for job in jobs]


@LAWS
@given(jobs=jobs_of, times=st.lists(walls, max_size=5))
def test_every_job_is_handed_out_once_and_in_order(jobs: list[Job], times: list[float]) -> None:
    queue, taken = Batches(jobs), list[Job]()
    while batch := queue.take():
        taken += batch
        if times:
            queue.learn(took(batch, times.pop()))
        assert len(batch) <= 2 * batches._MAX
    assert taken == jobs
    assert queue.take() == ()


@pytest.mark.parametrize(
    ("repeats", "lengths"), [(1, [5, 5, 2]), (4, [8, 8, 8, 8, 8, 8]), (10, [10] * 12), (12, [10, 10, 10])]
)
def test_a_task_stays_together_as_far_as_that_does_not_double_a_batch(repeats: int, lengths: list[int]) -> None:
    jobs = [Job(Unit(f"t{task}", 100, "FULL", repeat), 1) for task in range(12) for repeat in range(1, repeats + 1)]
    queue = Batches(jobs)
    assert [len(queue.take()) for _ in lengths] == lengths
    assert FIRST == 5


@pytest.mark.parametrize(
    ("wall_ms", "size"), [(30_000, 1), (250, 1), (100, 2), (10, 25), (5, 50), (0.001, 50), (0, 50)]
)
def test_slow_episodes_make_short_batches_and_quick_ones_long(wall_ms: float, size: int) -> None:
    jobs = [Job(Unit(f"t{task}", 100, "FULL"), 1) for task in range(200)]
    queue = Batches(jobs)
    queue.learn(took(queue.take(), wall_ms))
    assert len(queue.take()) == size


def test_a_task_over_two_catalogs_is_two() -> None:
    jobs = [Job(Unit("t", catalog, "FULL", repeat), 1) for catalog in (100, 250) for repeat in range(1, 8)]
    queue = Batches(jobs)
    sizes = [[len([*group]) for _, group in groupby(queue.take(), lambda job: job.unit.catalog)] for _ in range(2)]
    assert sizes == [[7], [7]]
