"""Families are resampled as tasks are; without any the interval is that of the tasks."""

from __future__ import annotations

import numpy as np

from gates.families import FamilyStatistics
from gates.measures import BY_NAME
from gates.statistics import Statistics
from preregistration.protocol import load_protocol

RULES = load_protocol("development").statistics.model_copy(update={"iterations": 400})
CELLS = {f"t{number:02d}": f"{'ab'[number % 2]}/en" for number in range(12)}
ALONE = {task: task for task in CELLS}
PASS = BY_NAME["task_pass"]


def sums(statistics: Statistics, values: list[int]) -> tuple[np.ndarray, np.ndarray]:
    at = {task: values[int(task[1:])] for task in CELLS}
    return np.array([at[task] for task in statistics.design.tasks]), np.full(len(CELLS), 3)


def test_alone_every_task_gives_the_interval_of_tasks() -> None:
    statistics = Statistics(CELLS, RULES)
    one, other = (
        sums(statistics, [3, 1, 2, 0, 3, 2, 1, 0, 2, 2, 3, 1]),
        sums(statistics, [0, 1, 1, 0, 3, 0, 1, 0, 2, 1, 0, 1]),
    )
    families = FamilyStatistics(statistics.design.tasks, CELLS, ALONE, RULES)
    a, b = statistics.draw([one, other])
    assert families.interval(one, PASS) == statistics.intervals(a, PASS)["percentile"]
    assert families.difference(one, other, PASS) == statistics.differences(a, b, PASS)["percentile"]


def test_a_family_is_drawn_whole_in_the_cell_of_its_first_task() -> None:
    statistics = Statistics(CELLS, RULES)
    # Pairs over both cells (t00 with t01, …) that pass or fail together: six families, all of cell a.
    pairs = {task: f"t{int(task[1:]) // 2 * 2:02d}" for task in CELLS}
    together = sums(statistics, [3, 3, 0, 0, 3, 3, 0, 0, 3, 3, 0, 0])
    families = FamilyStatistics(statistics.design.tasks, CELLS, pairs, RULES)
    alone = FamilyStatistics(statistics.design.tasks, CELLS, ALONE, RULES)
    wide, narrow = families.interval(together, PASS), alone.interval(together, PASS)
    assert wide.low is not None and wide.high is not None and narrow.low is not None and narrow.high is not None
    assert wide.high - wide.low > narrow.high - narrow.low
    halves = {task: f"t{int(task[1:]) % 6:02d}" for task in CELLS}
    same = FamilyStatistics(statistics.design.tasks, CELLS, halves, RULES)
    found = same.interval(sums(statistics, [2, 1] * 6), PASS)
    assert found.low is not None and found.low <= 0.5 <= (found.high or 0.0)
