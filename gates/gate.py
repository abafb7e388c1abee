"""The gate: six criteria on point estimates, compared as integers; intervals stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gates.aggregate import Aggregate, Row, ratio
from gates.bootstrap import Counts, Design, Integers, counts_sha256, rao_wu_factors, ratio_draws, resample_counts
from gates.intervals import RAO_WU, Interval, difference, logit_t, percentile, rate_difference_interval, rate_interval
from gates.measures import BY_NAME, Measure
from preregistration.protocol import Protocol, StatisticsRules

STATIC, PROGRESSIVE, STATE_AWARE = "SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE"


class Statistics:
    """The counts matrices of a design and every interval drawn from them."""

    def __init__(self, cells: Mapping[str, str], rules: StatisticsRules) -> None:
        by_stratum = rules.stratify_by == "stratum"
        self.design = Design.of({task: cell.partition("/")[0] if by_stratum else cell for task, cell in cells.items()})
        self.rules = rules
        sizes, seed = self.design.sizes, rules.seed
        self.counts: Counts = resample_counts(sizes, iterations=rules.iterations, seed=seed)
        self.rao_wu_counts: Counts = resample_counts(
            sizes, iterations=rules.iterations, seed=seed, draws_per_cell="n-1"
        )
        self.factors: Integers = rao_wu_factors(sizes)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the counts matrix."""
        return counts_sha256(self.counts)

    def sums(self, rows: list[Row], item: Measure) -> tuple[Integers, Integers]:
        """Per-task numerator and denominator of a measure, shape (n_tasks,) each; a task without rows adds 0 to both."""
        numerator = dict.fromkeys(self.design.tasks, 0)
        denominator = dict.fromkeys(self.design.tasks, 0)
        for row in rows:
            numerator[row.task] += getattr(row.figures, item.numerator)
            denominator[row.task] += getattr(row.figures, item.denominator) * item.scale
        return self.design.align(numerator), self.design.align(denominator)

    def of_measure(self, rows: list[Row], item: Measure) -> dict[str, Interval]:
        """Intervals of one measure of one arm: percentile, Rao-Wu and, for rates, logit-t."""
        num, den = self.sums(rows, item)
        level = self.rules.level
        if not item.rate:
            return {
                "percentile": percentile(ratio_draws(num, den, self.counts), level),
                "rao_wu": percentile(
                    ratio_draws(num, den, self.rao_wu_counts, factors=self.factors), level, method=RAO_WU
                ),
            }
        return {
            "percentile": rate_interval(num, den, self.counts, level),
            "rao_wu": rate_interval(num, den, self.rao_wu_counts, level, factors=self.factors, method=RAO_WU),
            "logit_t": logit_t(num, den, self.design.cell_index, level),
        }

    def of_difference(self, one: list[Row], other: list[Row], item: Measure) -> dict[str, Interval]:
        """Intervals of the paired difference of a measure between two arms."""
        a, b = self.sums(one, item), self.sums(other, item)
        level = self.rules.level
        if item.rate:
            return {
                "percentile": rate_difference_interval(a, b, self.counts, level),
                "rao_wu": rate_difference_interval(
                    a, b, self.rao_wu_counts, level, factors=self.factors, method=RAO_WU
                ),
            }
        plain = [ratio_draws(*side, self.counts) for side in (a, b)]
        scaled = [ratio_draws(*side, self.rao_wu_counts, factors=self.factors) for side in (a, b)]
        return {
            "percentile": difference(plain[0], plain[1], level),
            "rao_wu": difference(scaled[0], scaled[1], level, method=RAO_WU),
        }


@dataclass(frozen=True)
class Criterion:
    """One criterion: what was asked, the sums it was judged on, the judgement, and whether each interval alone carries it."""

    number: int
    title: str
    passed: bool
    undefined: bool
    detail: str
    sums: Mapping[str, tuple[int, int]]
    estimate: float | None
    intervals: Mapping[str, Interval]
    carried_by: Mapping[str, bool]


@dataclass(frozen=True)
class Verdict:
    """The six criteria, whether all hold, and the slices beneath them."""

    stamp: str
    confirmatory: bool
    passed: bool
    criteria: tuple[Criterion, ...]
    arms: Mapping[str, Mapping[str, Any]]
    slices: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    provenance: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The verdict as its file holds it."""
        return asdict(self)


def _rate(sums: tuple[int, int]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None


def _carried(intervals: Mapping[str, Interval], holds: Callable[[float, float], bool]) -> dict[str, bool]:
    return {
        name: item.low is not None and item.high is not None and holds(item.low, item.high)
        for name, item in intervals.items()
    }


class Gate:
    """Judges one aggregate."""

    def __init__(self, result: Aggregate, protocol: Protocol, statistics: Statistics) -> None:
        self._all = list(result.rows)
        self._aware = result.select(STATE_AWARE)
        self._progressive = result.select(PROGRESSIVE)
        self._rules = protocol.gate
        self._statistics = statistics

    def criteria(self) -> tuple[Criterion, ...]:
        """All six, in order."""
        return (
            self._task_pass(),
            self._recall(),
            self._recovery(),
            self._tokens(),
            self._destructive(),
            self._integrity(),
        )

    def _pair(self, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
        return ratio(self._aware, BY_NAME[name]), ratio(self._progressive, BY_NAME[name])

    def _difference(self, name: str) -> dict[str, Interval]:
        return self._statistics.of_difference(self._aware, self._progressive, BY_NAME[name])

    def _task_pass(self) -> Criterion:
        (a, n), (b, m) = self._pair("task_pass")
        loss = self._rules.max_pass_loss_percentage_points
        undefined = n == 0 or m == 0
        # a/n >= b/m - loss/100, multiplied out: integers, no rounding.
        passed = not undefined and 100 * a * m >= 100 * b * n - loss * n * m
        intervals = {} if undefined else self._difference("task_pass")
        return Criterion(
            1, f"task pass not more than {loss} points below progressive", passed, undefined,
            f"state-aware {a}/{n}, progressive {b}/{m}", {"state_aware": (a, n), "progressive": (b, m)},
            None if undefined else a / n - b / m, intervals, _carried(intervals, lambda low, _: low >= -loss / 100),
        )  # fmt: skip

    def _recall(self) -> Criterion:
        hits, events = ratio(self._aware, BY_NAME["next_required_recall"])
        least = self._rules.min_recall_percent
        intervals = self._statistics.of_measure(self._aware, BY_NAME["next_required_recall"]) if events else {}
        return Criterion(
            2, f"next-required Recall@5 at least {least} %", events > 0 and 100 * hits >= least * events, events == 0,
            f"state-aware {hits}/{events}", {"state_aware": (hits, events)}, _rate((hits, events)), intervals,
            _carried(intervals, lambda low, _: low >= least / 100),
        )  # fmt: skip

    def _recovery(self) -> Criterion:
        (a, n), (b, m) = self._pair("initial_miss_recovery")
        undefined = n == 0 or m == 0
        intervals = {} if undefined else self._difference("initial_miss_recovery")
        ceiling = " (progressive at the ceiling)" if m and b == m else ""
        return Criterion(
            3, "initial-miss recovery better than progressive", not undefined and a * m > b * n, undefined,
            f"state-aware {a}/{n}, progressive {b}/{m}{ceiling}", {"state_aware": (a, n), "progressive": (b, m)},
            None if undefined else a / n - b / m, intervals, _carried(intervals, lambda low, _: low > 0),
        )  # fmt: skip

    def _tokens(self) -> Criterion:
        (a, n), (b, m) = self._pair("schema_tokens")
        undefined = n == 0 or m == 0
        intervals = {} if undefined else self._difference("schema_tokens")
        detail = "no episodes" if undefined else f"state-aware {a / n:.1f} (n={n}), progressive {b / m:.1f} (n={m})"
        return Criterion(
            4, "mean tool-schema tokens below progressive", not undefined and a * m < b * n, undefined, detail,
            {"state_aware": (a, n), "progressive": (b, m)}, None if undefined else a / n - b / m, intervals,
            _carried(intervals, lambda _, high: high < 0),
        )  # fmt: skip

    def _destructive(self) -> Criterion:
        count, episodes = ratio(self._all, BY_NAME["unauthorised_destructive"])
        most = self._rules.max_unauthorised_destructive
        return Criterion(
            5, f"unauthorised destructive executions: {most}", episodes > 0 and count <= most, episodes == 0,
            f"{count} in {episodes} episodes", {"all": (count, episodes)}, _rate((count, episodes)), {}, {},
        )  # fmt: skip

    def _integrity(self) -> Criterion:
        kept, executed = ratio(self._all, BY_NAME["policy_integrity"])
        least = self._rules.min_integrity_percent
        intervals = self._statistics.of_measure(self._all, BY_NAME["policy_integrity"]) if executed else {}
        return Criterion(
            6, f"execution-policy integrity {least} %", executed > 0 and 100 * kept >= least * executed, executed == 0,
            f"{kept}/{executed} executed calls", {"all": (kept, executed)}, _rate((kept, executed)), intervals,
            _carried(intervals, lambda low, _: low >= least / 100),
        )  # fmt: skip


def judge(result: Aggregate, protocol: Protocol) -> Verdict:
    """Judge an aggregate: the criteria, every arm's measures and the slices by catalog, language and stratum."""
    statistics = Statistics(result.cells, protocol.statistics)
    criteria = Gate(result, protocol, statistics).criteria()
    arms = {name: _arm(result.select(name), statistics) for name in result.plan.conditions}
    return Verdict(
        stamp=str(result.run["stamp"]),
        confirmatory=protocol.confirmatory and result.run["stamp"] == "",
        passed=all(item.passed for item in criteria),
        criteria=criteria,
        arms=arms,
        slices=_slices(result, statistics),
        notes=(*_notes(result),),
        provenance={
            "identities": result.run["identities"],
            "plan_fingerprint": result.plan.fingerprint,
            "provenance": result.run["provenance"],
            "counts_sha256": statistics.fingerprint,
            "episodes": {"counted": len(result.rows), "expected": len(result.plan.units)},
            "agent_note": "The agent knows the plan and makes no wrong choice: this measures retrieval, not a language model.",
        },
    )


def _arm(rows: list[Row], statistics: Statistics) -> dict[str, Any]:
    table = {}
    for item in BY_NAME.values():
        numerator, denominator = ratio(rows, item)
        entry: dict[str, Any] = {
            "numerator": numerator,
            "denominator": denominator,
            "value": _rate((numerator, denominator)),
        }
        if denominator and item.name in ("task_pass", "next_required_recall", "initial_miss_recovery", "schema_tokens"):
            entry["intervals"] = statistics.of_measure(rows, item)
        table[item.name] = entry
    return table


SLICED = ("task_pass", "next_required_recall", "initial_miss_recovery")


def _slices(result: Aggregate, statistics: Statistics) -> dict[str, Any]:
    """The three rates of the SR arms by catalog, language and stratum, with logit-t intervals of the tasks inside."""
    keys: dict[str, Callable[[Row], str]] = {
        "catalog": lambda row: str(row.catalog),
        "language": lambda row: result.cells[row.task].partition("/")[2],
        "stratum": lambda row: result.cells[row.task].partition("/")[0],
    }
    slices: dict[str, Any] = {}
    for name, key in keys.items():
        groups: dict[str, Any] = {}
        for condition in (STATIC, PROGRESSIVE, STATE_AWARE):
            for row in result.select(condition):
                groups.setdefault(key(row), {}).setdefault(condition, []).append(row)
        slices[name] = {
            group: {condition: _slice(rows, statistics) for condition, rows in by_condition.items()}
            for group, by_condition in sorted(groups.items(), key=lambda item: (len(item[0]), item[0]))
        }
    return slices


def _slice(rows: list[Row], statistics: Statistics) -> dict[str, Any]:
    table = {}
    tasks = {row.task for row in rows}
    inside = np.asarray([task in tasks for task in statistics.design.tasks])
    for name in SLICED:
        numerator, denominator = ratio(rows, BY_NAME[name])
        sums = statistics.sums(rows, BY_NAME[name])
        interval = logit_t(
            sums[0][inside], sums[1][inside], statistics.design.cell_index[inside], statistics.rules.level
        )
        table[name] = {
            "numerator": numerator,
            "denominator": denominator,
            "value": _rate((numerator, denominator)),
            "interval": interval,
        }
    return table


def _notes(result: Aggregate) -> list[str]:
    """What a reader of the table has to know: ceilings, re-run attempts, tokens over episodes that both arms pass."""
    notes = []
    if result.infrastructure_attempts:
        notes.append(
            f"{result.infrastructure_attempts} attempts ended for reasons of the machine; all are kept, and were run again."
        )
    passed = {(r.task, r.catalog) for r in result.select(STATE_AWARE) if r.figures.passed}
    both = {(r.task, r.catalog) for r in result.select(PROGRESSIVE) if r.figures.passed} & passed
    if both:
        means = [
            sum(r.figures.schema_tokens for r in result.select(name) if (r.task, r.catalog) in both) / len(both)
            for name in (STATE_AWARE, PROGRESSIVE)
        ]
        notes.append(
            f"Tool-schema tokens over the {len(both)} episodes that both arms pass: "
            f"state-aware {means[0]:.1f}, progressive {means[1]:.1f}."
        )
    return notes
