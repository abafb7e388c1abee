"""The gate: six criteria on point estimates, compared as integers; intervals stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gates.aggregate import Aggregate, Row
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
from gates.episode_table import Rows, Sums, Table
from gates.intervals import (
    RAO_WU,
    Interval,
    difference,
    logit_t,
    percentile,
    rate_difference_percentile,
    rate_percentile,
)
from gates.measures import BY_NAME, Measure
from gates.repeats import repeats
from preregistration.protocol import Protocol, StatisticsRules
from schemarouter.agents import registry as agents

STATIC, PROGRESSIVE, STATE_AWARE = "SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE"
SLICED = ("task_pass", "next_required_recall", "initial_miss_recovery")
# What every arm shows intervals of.
DRAWN = (*SLICED, "schema_tokens")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A measure of one arm: per-task sums, (n_tasks,) int64 each, and the draws of both counts matrices, (iterations,) each."""

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

    def sums(self, rows: Sequence[Row], item: Measure) -> tuple[Integers, Integers]:
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

    def of_measure(self, rows: Sequence[Row], item: Measure) -> dict[str, Interval]:
        """Intervals of one measure of one arm: percentile, Rao-Wu and, for rates, logit-t."""
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

    def of_difference(self, one: Sequence[Row], other: Sequence[Row], item: Measure) -> dict[str, Interval]:
        """Intervals of the paired difference of a measure between two arms."""
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
    repeats: Mapping[str, Mapping[str, Any]]
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
        self._rules, self._top_k = protocol.gate, protocol.conditions.top_k
        self._statistics = statistics
        self.sums = Sums(result.rows, statistics.design.tasks)
        self.tables = {
            "": self.sums.table(),
            **{name: self.sums.table(name) for name in (*result.plan.conditions, PROGRESSIVE, STATE_AWARE)},
        }
        wanted = [(arm, name) for arm in self.tables if arm for name in DRAWN] + [("", "policy_integrity")]
        defined = [(arm, name) for arm, name in wanted if self.ratio(arm, name)[1]]
        drawn = statistics.drawn([self.tables[arm].pair(BY_NAME[name]) for arm, name in defined])
        self._drawn = dict(zip(defined, drawn, strict=True))
        self._intervals: dict[tuple[str, str], dict[str, Interval]] = {}

    def ratio(self, arm: str, name: str) -> tuple[int, int]:
        """Numerator and denominator of a measure of an arm, or of all episodes for the arm ``""``."""
        return self.tables[arm].ratio(BY_NAME[name])

    def intervals(self, arm: str, name: str) -> dict[str, Interval]:
        """The intervals of one of the measures that are drawn; none where it is undefined."""
        key = arm, name
        if key in self._drawn and key not in self._intervals:
            self._intervals[key] = self._statistics.intervals(self._drawn[key], BY_NAME[name])
        return self._intervals.get(key, {})

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
        return self.ratio(STATE_AWARE, name), self.ratio(PROGRESSIVE, name)

    def _difference(self, name: str) -> dict[str, Interval]:
        aware, progressive = self._drawn[STATE_AWARE, name], self._drawn[PROGRESSIVE, name]
        return self._statistics.differences(aware, progressive, BY_NAME[name])

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
        hits, events = self.ratio(STATE_AWARE, "next_required_recall")
        least = self._rules.min_recall_percent
        intervals = self.intervals(STATE_AWARE, "next_required_recall")
        return Criterion(
            2, f"next-required Recall@{self._top_k} at least {least} %", events > 0 and 100 * hits >= least * events, events == 0,
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
        count, episodes = self.ratio("", "unauthorised_destructive")
        most = self._rules.max_unauthorised_destructive
        return Criterion(
            5, f"unauthorised destructive executions: {most}", episodes > 0 and count <= most, episodes == 0,
            f"{count} in {episodes} episodes", {"all": (count, episodes)}, _rate((count, episodes)), {}, {},
        )  # fmt: skip

    def _integrity(self) -> Criterion:
        kept, executed = self.ratio("", "policy_integrity")
        least = self._rules.min_integrity_percent
        intervals = self.intervals("", "policy_integrity")
        return Criterion(
            6, f"execution-policy integrity {least} %", executed > 0 and 100 * kept >= least * executed, executed == 0,
            f"{kept}/{executed} executed calls", {"all": (kept, executed)}, _rate((kept, executed)), intervals,
            _carried(intervals, lambda low, _: low >= least / 100),
        )  # fmt: skip


def judge(result: Aggregate, protocol: Protocol) -> Verdict:
    """Judge an aggregate: the criteria, every arm's measures and the slices by catalog, language and stratum."""
    rows = Rows.of(result.rows)
    result = replace(result, rows=rows)
    statistics = Statistics(result.cells, protocol.statistics)
    gate = Gate(result, protocol, statistics)
    criteria = gate.criteria()
    return Verdict(
        stamp=str(result.run["stamp"]),
        confirmatory=protocol.confirmatory and result.run["stamp"] == "",
        passed=all(item.passed for item in criteria),
        criteria=criteria,
        arms={name: _arm(gate, name) for name in result.plan.conditions},
        slices=_slices(gate.sums, statistics, result.cells),
        repeats=repeats(rows, result.plan),
        notes=(*_notes(rows, result.infrastructure_attempts),),
        provenance={
            "identities": result.run["identities"],
            "plan_fingerprint": result.plan.fingerprint,
            "provenance": result.run["provenance"],
            "counts_sha256": statistics.fingerprint,
            "episodes": {"counted": len(result.rows), "expected": len(result.plan.units)},
            "agent_note": _agent_note(str(result.run["identities"].get("agent", ""))),
        },
    )


def _agent_note(agent: str) -> str:
    """What a reader has to know of the agent: what it says of itself, and that it is no language model."""
    name = agent.partition("(")[0]
    told = agents.declaration(name).summary if name in agents.AGENTS else "unknown here"
    return f"The agent, {agent}, {told}. It knows the plan: this measures retrieval, not a language model."


def _arm(gate: Gate, arm: str) -> dict[str, Any]:
    table = {}
    for name in BY_NAME:
        numerator, denominator = gate.ratio(arm, name)
        entry: dict[str, Any] = {
            "numerator": numerator,
            "denominator": denominator,
            "value": _rate((numerator, denominator)),
        }
        if intervals := gate.intervals(arm, name):
            entry["intervals"] = intervals
        table[name] = entry
    return table


def _slices(sums: Sums, statistics: Statistics, cells: Mapping[str, str]) -> dict[str, Any]:
    """The three rates of the SR arms by catalog, language and stratum, with logit-t intervals of the tasks inside."""
    arms = {name: sums.table(name) for name in (STATIC, PROGRESSIVE, STATE_AWARE)}
    groups: dict[str, dict[str, dict[str, Table]]] = {
        "catalog": {str(size): {name: sums.table(name, size) for name in arms} for size in sums.catalogs},
    }
    for slicing, part in (("language", 2), ("stratum", 0)):
        labels = np.array([cells[task].partition("/")[part] for task in statistics.design.tasks])
        groups[slicing] = {
            label: {name: table.within(labels == label) for name, table in arms.items()}
            for label in set(labels.tolist())
        }
    return {
        slicing: {
            group: {name: _slice(table, statistics) for name, table in by_arm.items() if table.present.any()}
            for group, by_arm in sorted(by_group.items(), key=lambda item: (len(item[0]), item[0]))
            if any(table.present.any() for table in by_arm.values())
        }
        for slicing, by_group in groups.items()
    }


def _slice(table: Table, statistics: Statistics) -> dict[str, Any]:
    told = {}
    inside = table.present
    cell_index = statistics.design.cell_index[inside]
    for name in SLICED:
        numerator, denominator = (side[inside] for side in table.pair(BY_NAME[name]))
        sums = int(numerator.sum()), int(denominator.sum())
        told[name] = {
            "numerator": sums[0],
            "denominator": sums[1],
            "value": _rate(sums),
            "interval": logit_t(numerator, denominator, cell_index, statistics.rules.level),
        }
    return told


def _notes(rows: Rows, infrastructure_attempts: int) -> list[str]:
    """What a reader of the table has to know: re-run attempts, tokens over episodes that both arms pass."""
    notes = []
    if infrastructure_attempts:
        notes.append(
            f"{infrastructure_attempts} attempts ended for reasons of the machine; all are kept, and were run again."
        )
    aware, progressive = (_passed(rows, name) for name in (STATE_AWARE, PROGRESSIVE))
    both = [(aware[episode], place) for episode, place in progressive.items() if episode in aware]
    if both:
        tokens = rows.column("schema_tokens")
        means = [float(tokens[list(places)].sum()) / len(both) for places in zip(*both, strict=True)]
        notes.append(
            f"Tool-schema tokens over the {len(both)} episodes that both arms pass: "
            f"state-aware {means[0]:.1f}, progressive {means[1]:.1f}."
        )
    return notes


def _passed(rows: Rows, condition: str) -> dict[tuple[str, int, int], int]:
    """Where the episodes stand that an arm passes, by task, catalog and repeat."""
    passed = rows.column("passed").tolist()
    return {
        (unit.task, unit.catalog, unit.repeat): place
        for place, unit in enumerate(rows.units)
        if unit.condition == condition and passed[place]
    }
