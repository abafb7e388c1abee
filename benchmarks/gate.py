"""The gate's arithmetic: a whole verdict against a paired bootstrap in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from benchmarks.timing import Effort, Row, alternate, rows
from conditions.running.plan import Plan
from conditions.storage.run_directory import Identities, Provenance, RunHeader, RunLimits
from gates.aggregate import CompleteRun
from gates.episode_table import EpisodeRow, EpisodeTable
from gates.gate import judge
from gates.measures import BY_NAME, EpisodeCounts
from preregistration.names import PROGRESSIVE, STATE_AWARE
from preregistration.protocol import Protocol, load_protocol

_SEED = 20260929


def gate_rows(effort: Effort, iterations: int | None = None) -> list[Row]:
    """A verdict with all its intervals against one interval of one criterion, each from `iterations` draws, or the protocol's.

    The run is synthetic: as many tasks, cells, catalogs and conditions as the confirmatory protocol has, 2,700 episodes.
    """
    protocol = load_protocol("frozen")
    iterations = iterations or protocol.statistics.iterations
    rules = protocol.statistics.model_copy(update={"iterations": iterations})
    protocol = protocol.model_copy(update={"statistics": rules})
    run = synthetic_run(protocol)
    systems: dict[str, Callable[[int], object]] = {
        "judge: six criteria, every condition and slice": lambda _: judge(run, protocol),
        "plain Python: one interval of one criterion": lambda seed: plain_interval(run, protocol, seed),
    }
    times = alternate(systems, [_SEED], replace(effort, rounds=max(effort.rounds // 40, 1), burst=1))
    note = f"{iterations:,} draws of each of two kinds; the plain one makes one kind"
    return rows("gate over an aggregate", len(run.rows), times, notes={next(iter(systems)): note})


def synthetic_run(protocol: Protocol) -> CompleteRun:
    """A complete run of the confirmatory shape whose counts are random, numerators of rates within their denominators."""
    generator = random.Random(_SEED)
    cells = {
        f"task-{stratum}{language}-{number}": f"stratum_{stratum}/language_{language}"
        for stratum in range(len(protocol.strata))
        for language in range(len(protocol.languages))
        for number in range(protocol.tasks_per_cell)
    }
    plan = Plan(tuple(sorted(cells)), protocol.catalogs, protocol.conditions.names)
    episodes = [
        EpisodeRow(task, size, condition, _counts(generator))
        for task in plan.tasks
        for size in plan.catalogs
        for condition in plan.conditions
    ]
    return CompleteRun(_header(plan), plan, EpisodeTable.of(episodes), 0, cells, {task: task for task in cells})


def _header(plan: Plan) -> RunHeader:
    """A header whose contents no one reads."""
    named = dict.fromkeys(Identities.model_fields, "synthetic") | {"catalogs": {}, "catalog_view": "full"}
    return RunHeader(
        schema_version=1,
        surface="development",
        stamp="",
        identities=Identities.model_validate(named),
        plan=plan.document(),
        provenance=Provenance(argv=(), code="", commit=None, dirty=None, packages={}, python=""),
        limits=RunLimits(episode_seconds=None),
        resumed=(),
    )


def _counts(generator: random.Random) -> EpisodeCounts:
    values = {item.name: generator.randint(0, 4) for item in fields(EpisodeCounts)}
    values |= {"episodes": 1, "passed": generator.randint(0, 1), "missed": generator.randint(0, 1)}
    values |= {"schema_tokens": generator.randint(500, 20_000), "unauthorised_destructive": 0}
    for item in BY_NAME.values():
        if item.rate:
            values[item.numerator] = min(values[item.numerator], values[item.denominator])
    return EpisodeCounts(**values)


def plain_interval(run: CompleteRun, protocol: Protocol, seed: int) -> tuple[float, float]:
    """The percentile interval of the paired difference in task pass: stratified by cell, tasks drawn with replacement."""
    generator = random.Random(seed)
    by_cell: dict[str, list[str]] = {}
    for task in sorted(run.cells):
        by_cell.setdefault(run.cells[task], []).append(task)
    aware, progressive = (_passes(run, name) for name in (STATE_AWARE, PROGRESSIVE))
    differences = []
    for _ in range(protocol.statistics.iterations):
        sums = [0, 0, 0, 0]
        for tasks in by_cell.values():
            for _ in tasks:
                task = tasks[generator.randrange(len(tasks))]
                for side, passes in enumerate((aware, progressive)):
                    sums[2 * side] += passes[task][0]
                    sums[2 * side + 1] += passes[task][1]
        differences.append(sums[0] / sums[1] - sums[2] / sums[3])
    differences.sort()
    tail = (1 - protocol.statistics.level) / 2
    return _quantile(differences, tail), _quantile(differences, 1 - tail)


def _passes(run: CompleteRun, condition: str) -> Mapping[str, tuple[int, int]]:
    """Passed episodes and episodes by task."""
    by_task: dict[str, tuple[int, int]] = {}
    for row in run.select(condition):
        passed, episodes = by_task.get(row.task, (0, 0))
        by_task[row.task] = passed + row.counts.passed, episodes + row.counts.episodes
    return by_task


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest of sorted values."""
    index = share * (len(ordered) - 1)
    below = int(index)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (index - below)
