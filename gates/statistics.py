"""Every confidence interval of the gate: bootstrap draws of ratios of per-task sums, and the intervals made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gates.bootstrap import (
    Counts,
    Floats,
    Integers,
    counts_sha256,
    locked_counts,
    rao_wu_factors,
    ratio_draws,
    resample_counts,
)
from gates.episode_table import EpisodeRow, GridSums
from gates.intervals import (
    LOGIT_T,
    PERCENTILE,
    RAO_WU,
    Interval,
    difference,
    logit_t,
    percentile,
    rate_difference_percentile,
    rate_percentile,
)
from gates.measures import Measure
from preregistration.protocol import StatisticsRules

# The key of each method in a verdict.
_NAMES = {PERCENTILE: "percentile", RAO_WU: "rao_wu", LOGIT_T: "logit_t"}


def _lonely_note(cells: int) -> str:
    return f"undefined: {cells} cells hold one task, and an interval needs two in each"


@dataclass(frozen=True, slots=True)
class RatioDraws:
    """A ratio's per-task sums, (n_tasks,) int64 each, and its bootstrap draws, (iterations,) float64 each.

    `plain` are draws of the ordinary bootstrap, `rao_wu` those of Rao and Wu's (n - 1 of n tasks in each cell).
    """

    numerator: Integers
    denominator: Integers
    plain: Floats
    rao_wu: Floats


class Statistics:
    """Intervals of measures and of their differences, all from the two counts matrices of one design.

    `cells` names the cell (``stratum/language``) of every task; `rules` give seed, iterations and level.
    """

    def __init__(self, cells: Mapping[str, str], rules: StatisticsRules) -> None:
        self.rules = rules
        self.design, self.counts = locked_counts(cells, rules)

    @cached_property
    def rao_wu_counts(self) -> Counts:
        """The counts matrix with n - 1 of n tasks drawn in each cell; (iterations, n_tasks) uint8."""
        return resample_counts(
            self.design.sizes, iterations=self.rules.iterations, seed=self.rules.seed, draws_per_cell="n-1"
        )

    @cached_property
    def factors(self) -> Integers:
        """The weights of the draws of `rao_wu_counts`; (n_tasks,) int64."""
        return rao_wu_factors(self.design.sizes)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the ordinary counts matrix, as a lock holds it."""
        return counts_sha256(self.counts)

    def sums(self, rows: Sequence[EpisodeRow], item: Measure) -> tuple[Integers, Integers]:
        """Per-task numerator and denominator of a measure, shape (n_tasks,) each; a task without rows adds 0 to both."""
        return GridSums(rows, self.design.tasks).by_task().pair(item)

    def draw(self, pairs: Sequence[tuple[Integers, Integers]]) -> list[RatioDraws]:
        """Bootstrap many ratios at once, of (numerator, denominator) by task: one product for each counts matrix."""
        if not pairs:
            return []
        above, below = np.stack([num for num, _ in pairs]), np.stack([den for _, den in pairs])
        plain = ratio_draws(above, below, self.counts)
        rao_wu = ratio_draws(above, below, self.rao_wu_counts, factors=self.factors)
        return [RatioDraws(*pair, plain[index], rao_wu[index]) for index, pair in enumerate(pairs)]

    @cached_property
    def lonely(self) -> int:
        """Cells that hold one task: what it differs by from others of its cell is not known, so there is no interval."""
        return self.design.sizes.count(1)

    def _undefined(self, methods: Sequence[str]) -> dict[str, Interval]:
        return {_NAMES[method]: Interval(None, None, method, note=_lonely_note(self.lonely)) for method in methods}

    def of_slice(self, numerator: Integers, denominator: Integers, cell_index: Integers) -> Interval:
        """Logit-t interval of a rate over part of the tasks; (n_tasks,) each."""
        lonely = int(np.count_nonzero(np.unique(cell_index, return_counts=True)[1] == 1))
        if lonely:
            return Interval(None, None, LOGIT_T, note=_lonely_note(lonely))
        return logit_t(numerator, denominator, cell_index, self.rules.level)

    def of_measure(self, rows: Sequence[EpisodeRow], item: Measure) -> dict[str, Interval]:
        """Intervals of one measure of one condition: percentile, Rao-Wu and, for rates, logit-t."""
        return self.intervals(self.draw([self.sums(rows, item)])[0], item)

    def intervals(self, draws: RatioDraws, item: Measure) -> dict[str, Interval]:
        """As `of_measure`, from draws already made."""
        if self.lonely:
            return self._undefined((PERCENTILE, RAO_WU, LOGIT_T) if item.rate else (PERCENTILE, RAO_WU))
        level = self.rules.level
        if not item.rate:
            return {
                "percentile": percentile(draws.plain, level),
                "rao_wu": percentile(draws.rao_wu, level, method=RAO_WU),
            }
        sums = draws.numerator, draws.denominator
        return {
            "percentile": rate_percentile(draws.plain, *sums, level),
            "rao_wu": rate_percentile(draws.rao_wu, *sums, level, method=RAO_WU),
            "logit_t": logit_t(*sums, self.design.cell_index, level),
        }

    def of_difference(
        self, one: Sequence[EpisodeRow], other: Sequence[EpisodeRow], item: Measure
    ) -> dict[str, Interval]:
        """Intervals of the paired difference of a measure between two conditions."""
        a, b = self.draw([self.sums(one, item), self.sums(other, item)])
        return self.differences(a, b, item)

    def differences(self, a: RatioDraws, b: RatioDraws, item: Measure) -> dict[str, Interval]:
        """As `of_difference`, from draws already made."""
        if self.lonely:
            return self._undefined((PERCENTILE, RAO_WU))
        level = self.rules.level
        if not item.rate:
            return {
                "percentile": difference(a.plain, b.plain, level),
                "rao_wu": difference(a.rao_wu, b.rao_wu, level, method=RAO_WU),
            }
        sums = (a.numerator, a.denominator), (b.numerator, b.denominator)
        return {
            "percentile": rate_difference_percentile(a.plain, b.plain, *sums, level),
            "rao_wu": rate_difference_percentile(a.rao_wu, b.rao_wu, *sums, level, method=RAO_WU),
        }
