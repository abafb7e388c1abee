"""Sensitivity of the verdict: the same bootstrap with families of tasks, which tell one plot, instead of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gates.bootstrap import Integers
from gates.intervals import Interval
from gates.measures import Measure
from gates.statistics import Statistics
from preregistration.protocol import StatisticsRules


class FamilyStatistics:
    """Percentile intervals for which a family's tasks are drawn together, in the cell of the first of them by id.

    `tasks` is the order of per-task sums, `cells` the cell of every task, `families` the family of every task.
    """

    def __init__(
        self, tasks: Sequence[str], cells: Mapping[str, str], families: Mapping[str, str], rules: StatisticsRules
    ) -> None:
        self._statistics = Statistics({families[task]: cells[task] for task in sorted(tasks, reverse=True)}, rules)
        column = {family: index for index, family in enumerate(self._statistics.design.tasks)}
        self._column = np.array([column[families[task]] for task in tasks], np.int64)

    def _by_family(self, sums: Integers) -> Integers:
        """Per-family sums, (n_families,), of per-task ones, (n_tasks,)."""
        added = np.zeros(len(self._statistics.design.tasks), np.int64)
        np.add.at(added, self._column, sums)
        return added

    def interval(self, pair: tuple[Integers, Integers], item: Measure) -> Interval:
        """The interval of a measure of one condition, from its per-task numerator and denominator."""
        (draws,) = self._statistics.draw([(self._by_family(pair[0]), self._by_family(pair[1]))])
        return self._statistics.intervals(draws, item)["percentile"]

    def difference(self, one: tuple[Integers, Integers], other: tuple[Integers, Integers], item: Measure) -> Interval:
        """The interval of the paired difference of a measure between two conditions."""
        pairs = [(self._by_family(above), self._by_family(below)) for above, below in (one, other)]
        a, b = self._statistics.draw(pairs)
        return self._statistics.differences(a, b, item)["percentile"]
