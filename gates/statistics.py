"""The counts matrices of a run's design, and every interval drawn from them."""

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
from gates.episode_table import EpisodeRow, Sums
from gates.intervals import (
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


@dataclass(frozen=True, slots=True)
class Drawn:
    """A measure of one condition: per-task sums, (n_tasks,) int64 each, and draws of both counts matrices, (iterations,)."""

    numerator: Integers
    denominator: Integers
    plain: Floats
    rao_wu: Floats


class Statistics:
    """The counts matrices of a design and every interval drawn from them."""

    def __init__(self, cells: Mapping[str, str], rules: StatisticsRules) -> None:
        self.rules = rules
        self.design, self.counts = locked_counts(cells, rules)

    @cached_property
    def rao_wu_counts(self) -> Counts:
        """The same with n - 1 of n drawn in each cell."""
        return resample_counts(
            self.design.sizes, iterations=self.rules.iterations, seed=self.rules.seed, draws_per_cell="n-1"
        )

    @cached_property
    def factors(self) -> Integers:
        """The weights of the draws of `rao_wu_counts`; (n_tasks,) int64."""
        return rao_wu_factors(self.design.sizes)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the counts matrix."""
        return counts_sha256(self.counts)

    def sums(self, rows: Sequence[EpisodeRow], item: Measure) -> tuple[Integers, Integers]:
        """Per-task numerator and denominator of a measure, shape (n_tasks,) each; a task without rows adds 0 to both."""
        return Sums(rows, self.design.tasks).table().pair(item)

    def drawn(self, pairs: Sequence[tuple[Integers, Integers]]) -> list[Drawn]:
        """Draw the ratios of many (numerator, denominator) at once: one product for each counts matrix."""
        if not pairs:
            return []
        above, below = np.stack([num for num, _ in pairs]), np.stack([den for _, den in pairs])
        plain = ratio_draws(above, below, self.counts)
        rao_wu = ratio_draws(above, below, self.rao_wu_counts, factors=self.factors)
        return [Drawn(*pair, plain[at], rao_wu[at]) for at, pair in enumerate(pairs)]

    def of_measure(self, rows: Sequence[EpisodeRow], item: Measure) -> dict[str, Interval]:
        """Intervals of one measure of one condition: percentile, Rao-Wu and, for rates, logit-t."""
        return self.intervals(self.drawn([self.sums(rows, item)])[0], item)

    def intervals(self, it: Drawn, item: Measure) -> dict[str, Interval]:
        """As `of_measure`, from draws already made."""
        level = self.rules.level
        if not item.rate:
            return {
                "percentile": percentile(it.plain, level),
                "rao_wu": percentile(it.rao_wu, level, method=RAO_WU),
            }
        sums = it.numerator, it.denominator
        return {
            "percentile": rate_percentile(it.plain, *sums, level),
            "rao_wu": rate_percentile(it.rao_wu, *sums, level, method=RAO_WU),
            "logit_t": logit_t(*sums, self.design.cell_index, level),
        }

    def of_difference(
        self, one: Sequence[EpisodeRow], other: Sequence[EpisodeRow], item: Measure
    ) -> dict[str, Interval]:
        """Intervals of the paired difference of a measure between two conditions."""
        a, b = self.drawn([self.sums(one, item), self.sums(other, item)])
        return self.differences(a, b, item)

    def differences(self, a: Drawn, b: Drawn, item: Measure) -> dict[str, Interval]:
        """As `of_difference`, from draws already made."""
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
