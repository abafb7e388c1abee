"""The gate against a plain reading of its definitions: rows added up in Python, and one measure resampled at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.plan import Plan
from gates.aggregate import CompleteRun
from gates.bootstrap import Counts, DesignError, Floats, Integers, rao_wu_factors, resample_counts
from gates.episode_table import EpisodeRow, GridSums
from gates.gate import judge
from gates.intervals import (
    RAO_WU,
    Interval,
    difference,
    logit_t,
    percentile,
    rate_difference_percentile,
    rate_percentile,
)
from gates.measures import BY_NAME, EpisodeCounts, Measure
from gates.statistics import Statistics
from gates.verdict import Estimate, SliceEstimate
from tests.strategies import LAWS, laws
from tests.toys import SR, complete_run, toy_protocol

STATIC, PROGRESSIVE, AWARE = SR
CONDITIONS = (*SR, "FULL", "ORACLE")
NAMES = [item.name for item in fields(EpisodeCounts)]
RATES = [(item.numerator, item.denominator) for item in BY_NAME.values() if item.rate]
SHOWN = ("task_pass", "next_required_recall", "initial_miss_recovery", "schema_tokens")


def ratio(rows: Iterable[EpisodeRow], item: Measure) -> tuple[int, int]:
    """Numerator and denominator of a measure, as sums over rows."""
    numerator = denominator = 0
    for row in rows:
        numerator += getattr(row.counts, item.numerator)
        denominator += getattr(row.counts, item.denominator)
    return numerator, denominator * item.scale


@st.composite
def aggregates(draw: st.DrawFn) -> CompleteRun:
    """Some tasks in some cells, two catalogs, episodes and whole conditions missing; hits are among their events."""
    named = st.sampled_from(["deep/en", "deep/ko", "flat/en", "flat/ko"])
    # Two of each, so that there are intervals, and now and then one alone, so that there are none.
    drawn = [cell for cell in draw(st.lists(named, min_size=1, max_size=4)) for _ in range(2)]
    cells = {f"t{n}": cell for n, cell in enumerate([*drawn, *draw(st.lists(named, max_size=1))])}
    tasks = tuple(cells)
    random = draw(st.randoms(use_true_random=False))
    conditions = draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, unique=True))
    maximum = draw(st.sampled_from([0, 1, 3, 9_000]))
    kept = draw(st.sampled_from([0.5, 1.0]))
    rows = []
    for task in tasks:
        for catalog in (250, 100):
            for condition in conditions:
                values = {name: random.randint(0, maximum) for name in NAMES}
                values |= {"episodes": 1, "passed": random.randint(0, 1)}
                for hits, events in RATES:
                    values[hits] = min(values[hits], values[events])
                if random.random() < kept:
                    rows.append(EpisodeRow(task, catalog, condition, EpisodeCounts(**values)))
    return complete_run(Plan(tasks, (100, 250), tuple(conditions)), rows, cells)


def alone(sizes: Sequence[int], names: Sequence[str]) -> dict[str, Interval]:
    """No interval: some cells hold one task."""
    note = f"undefined: {list(sizes).count(1)} cells hold one task, and an interval needs two in each"
    methods = {"percentile": "percentile", "rao_wu": RAO_WU, "logit_t": "logit-t"}
    return {name: Interval(None, None, methods[name], note=note) for name in names}


class Plain:
    """Every interval by the functions for single measures, from sums that are made anew each time."""

    def __init__(self, result: CompleteRun, statistics: Statistics) -> None:
        self.result, self.design, self.rules = result, statistics.design, statistics.rules
        sizes, rules = self.design.sizes, self.rules
        self.counts = resample_counts(sizes, iterations=rules.iterations, seed=rules.seed)
        self.fewer = resample_counts(sizes, iterations=rules.iterations, seed=rules.seed, draws_per_cell="n-1")
        self.factors = rao_wu_factors(sizes)

    def sums(self, rows: Sequence[EpisodeRow], item: Measure) -> tuple[Integers, Integers]:
        parts = [ratio([row for row in rows if row.task == task], item) for task in self.design.tasks]
        return np.array([num for num, _ in parts]), np.array([den for _, den in parts])

    def draws(self, pair: tuple[Integers, Integers], counts: Counts, factors: Integers | None) -> Floats:
        weights = [1] * len(self.design.tasks) if factors is None else factors.tolist()
        ratios = []
        for times in counts.tolist():
            above, below = (
                sum(value * weight * count for value, weight, count in zip(side.tolist(), weights, times, strict=True))
                for side in pair
            )
            ratios.append(above / below if below else float("nan"))
        return np.array(ratios)

    def measure(self, rows: Sequence[EpisodeRow], item: Measure) -> dict[str, Interval]:
        pair = self.sums(rows, item)
        plain, fewer = self.draws(pair, self.counts, None), self.draws(pair, self.fewer, self.factors)
        if 1 in self.design.sizes:
            return alone(self.design.sizes, ("percentile", "rao_wu", *(["logit_t"] if item.rate else [])))
        if not item.rate:
            return {"percentile": percentile(plain), "rao_wu": percentile(fewer, method=RAO_WU)}
        return {
            "percentile": rate_percentile(plain, *pair),
            "rao_wu": rate_percentile(fewer, *pair, method=RAO_WU),
            "logit_t": logit_t(*pair, self.design.cell_index),
        }

    def difference(self, item: Measure) -> dict[str, Interval]:
        a, b = (self.sums(self.result.select(name), item) for name in (AWARE, PROGRESSIVE))
        plain = [self.draws(pair, self.counts, None) for pair in (a, b)]
        fewer = [self.draws(pair, self.fewer, self.factors) for pair in (a, b)]
        if 1 in self.design.sizes:
            return alone(self.design.sizes, ("percentile", "rao_wu"))
        if not item.rate:
            return {
                "percentile": difference(plain[0], plain[1]),
                "rao_wu": difference(fewer[0], fewer[1], method=RAO_WU),
            }
        return {
            "percentile": rate_difference_percentile(plain[0], plain[1], a, b),
            "rao_wu": rate_difference_percentile(fewer[0], fewer[1], a, b, method=RAO_WU),
        }

    def slice(self, slicing: str, group: str, condition: str) -> dict[str, Any]:
        def within(row: EpisodeRow) -> bool:
            stratum, _, language = self.result.cells[row.task].partition("/")
            return {"catalog": str(row.catalog), "language": language, "stratum": stratum}[slicing] == group

        rows = self.result.select(condition, within)
        inside = np.array([task in {row.task for row in rows} for task in self.design.tasks])
        rates = {}
        for name in SHOWN[:3]:
            num, den = self.sums(rows, BY_NAME[name])
            above, below = ratio(rows, BY_NAME[name])
            index = self.design.cell_index[inside]
            sizes = [index.tolist().count(cell) for cell in set(index.tolist())]
            interval = logit_t(num[inside], den[inside], index)
            if 1 in sizes:
                interval = alone(sizes, ("logit_t",))["logit_t"]
            value = above / below if below else None
            rates[name] = SliceEstimate(numerator=above, denominator=below, value=value, interval=interval)
        return rates


@laws(40)
@given(aggregates(), st.sampled_from(["cell", "stratum"]))
def test_the_verdict_is_the_plain_reading_of_its_definitions_to_the_last_bit(result: CompleteRun, by: str) -> None:
    protocol = toy_protocol(20)
    rules = protocol.statistics.model_copy(update={"iterations": 40, "stratify_by": by})
    found = judge(result, protocol.model_copy(update={"statistics": rules}))
    plain = Plain(result, Statistics(result.cells, rules))
    for name in result.plan.conditions:
        rows = result.select(name)
        for item in BY_NAME.values():
            above, below = ratio(rows, item)
            expected = Estimate(
                numerator=above,
                denominator=below,
                value=above / below if below else None,
                intervals=plain.measure(rows, item) if below and item.name in SHOWN else {},
            )
            assert found.conditions[name][item.name] == expected, (name, item.name)
    for index, measure in ((0, "task_pass"), (2, "initial_miss_recovery"), (3, "schema_tokens")):
        if not found.criteria[index].undefined:
            assert found.criteria[index].intervals == plain.difference(BY_NAME[measure])
    if not found.criteria[1].undefined:
        assert found.criteria[1].intervals == plain.measure(result.select(AWARE), BY_NAME["next_required_recall"])
    if not found.criteria[5].undefined:
        assert found.criteria[5].intervals == plain.measure(result.rows, BY_NAME["policy_integrity"])
    for slicing, groups in found.slices.items():
        for group, conditions in groups.items():
            assert conditions == {name: plain.slice(slicing, group, name) for name in conditions}


@given(aggregates())
@LAWS
def test_slices_hold_the_groups_and_conditions_that_have_episodes_and_no_other(result: CompleteRun) -> None:
    protocol = toy_protocol(20)
    rules = protocol.statistics.model_copy(update={"iterations": 2})
    slices = judge(result, protocol.model_copy(update={"statistics": rules})).slices
    found = {
        (slicing, group, condition)
        for slicing, groups in slices.items()
        for group, conditions in groups.items()
        for condition in conditions
    }
    expected = set()
    for row in result.rows:
        stratum, _, language = result.cells[row.task].partition("/")
        if row.condition in SR:
            expected |= {
                ("catalog", str(row.catalog), row.condition),
                ("language", language, row.condition),
                ("stratum", stratum, row.condition),
            }
    assert found == expected


@pytest.mark.parametrize("tokens", [2**62, 2**64])
def test_counts_whose_sums_could_overflow_are_refused(tokens: int) -> None:
    counts = EpisodeCounts(**{**dict.fromkeys(NAMES, 0), "schema_tokens": tokens})
    with pytest.raises(DesignError, match="64 bits"):
        GridSums([EpisodeRow("t", 100, AWARE, counts)] * 2, ["t"])
