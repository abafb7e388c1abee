"""The terminal aggregate: every episode of the grid, checked, replayed and measured; or a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conditions.plan import Plan, plan_from_json
from conditions.store import AGGREGATE_FILE, SHARD_GLOB, ShardLine, pretty_json, read_run, read_shard, write_whole
from gates.measures import MEASURES, SR_CONDITIONS, Figures, Measure, measure
from gates.replay import Replay
from gates.stamp import check_stamp
from preregistration.protocol import Protocol
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.tokens import TokenCounter
from surface.loader import Surface

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class World:
    """What a run is checked against: the protocol, tasks, catalogs and identities as they are here and now."""

    protocol: Protocol
    surface: Surface
    catalogs: Mapping[int, Catalog]
    identities: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """The figures of one episode of the grid."""

    task: str
    catalog: int
    condition: str
    figures: Figures


@dataclass(frozen=True)
class Aggregate:
    """All episodes of a run, in the order of its grid."""

    run: Mapping[str, Any]
    plan: Plan
    rows: tuple[Row, ...]
    infrastructure_attempts: int
    cells: Mapping[str, str]

    def select(self, condition: str, keep: Callable[[Row], bool] = lambda row: True) -> list[Row]:
        """The rows of a condition that `keep` wants."""
        return [row for row in self.rows if row.condition == condition and keep(row)]

    def as_json(self) -> dict[str, Any]:
        """The aggregate as the file holds it: nothing in it depends on when, where or how the run was made."""
        return {
            "schema_version": SCHEMA_VERSION,
            "stamp": self.run["stamp"],
            "identities": self.run["identities"],
            "plan": self.run["plan"],
            "episodes": {"counted": len(self.rows), "expected": len(self.plan.units)},
            "infrastructure_attempts": self.infrastructure_attempts,
            "conditions": {name: condition_table(self.select(name)) for name in self.plan.conditions},
            "rows": [
                {"task": r.task, "catalog": r.catalog, "condition": r.condition, **r.figures.as_json()}
                for r in self.rows
            ],
        }


def ratio(rows: Iterable[Row], item: Measure) -> tuple[int, int]:
    """Numerator and denominator of a measure, as sums over rows."""
    numerator = denominator = 0
    for row in rows:
        numerator += getattr(row.figures, item.numerator)
        denominator += getattr(row.figures, item.denominator)
    return numerator, denominator * item.scale


def condition_table(rows: list[Row]) -> dict[str, Any]:
    """Every measure of a condition with its sums; a ratio without denominator is null, never 0 or 1."""
    table = {}
    for item in MEASURES:
        numerator, denominator = ratio(rows, item)
        value = numerator / denominator if denominator else None
        table[item.name] = {"numerator": numerator, "denominator": denominator, "value": value}
    return table


def compare_identities(stored: Mapping[str, Any], actual: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRunError telling every identity that differs between a header and the world here."""
    differing = [
        f"{name}: {stored.get(name)!r} in the run, {actual.get(name)!r} here"
        for name in sorted(set(stored) | set(actual))
        if stored.get(name) != actual.get(name)
    ]
    if differing:
        raise InvalidRunError(f"{place}: not the locked thing. " + "; ".join(differing))


def aggregate(folder: Path, world: World) -> Aggregate:
    """Check, replay and measure a terminal run.

    Raises InvalidRunError for an incomplete, duplicated, mixed or altered set of episodes, with what exactly is wrong.
    """
    run = read_run(folder)
    plan = plan_from_json(run["plan"], "run.json")
    _check_world(plan, world)
    check_stamp(run, world.protocol, world.surface, plan)
    compare_identities(run["identities"], world.identities(run), "run.json")
    collected = _collect(folder, run, plan, world)
    missing = [unit.episode_id for unit in plan.units if unit.episode_id not in collected.rows]
    if missing:
        shown = ", ".join(missing[:3])
        raise InvalidRunError(
            f"{folder} is not terminal: {len(plan.units) - len(missing)} of {len(plan.units)} episodes; "
            f"missing {shown}{' …' if len(missing) > 3 else ''}. The same run command goes on."
        )
    rows = tuple(collected.rows[unit.episode_id] for unit in plan.units)
    _same_openings(collected.openings)
    cells = {task: world.surface.cell(task) for task in plan.tasks}
    return Aggregate(run, plan, rows, collected.infrastructure, cells)


def _check_world(plan: Plan, world: World) -> None:
    """Raise InvalidRunError for tasks or catalogs of a plan that are not there to check it against."""
    for kind, named, known in (("task", plan.tasks, world.surface.by_id), ("catalog", plan.catalogs, world.catalogs)):
        strange = [str(name) for name in named if name not in known]
        if strange:
            raise InvalidRunError(f"run.json: {kind}s that are not there: {', '.join(strange[:3])}.")


@dataclass
class _Collected:
    rows: dict[str, Row]
    openings: dict[tuple[str, int], dict[str, tuple[str, ...]]]
    infrastructure: int = 0


def _collect(folder: Path, run: Mapping[str, Any], plan: Plan, world: World) -> _Collected:
    units = {unit.episode_id for unit in plan.units}
    collected = _Collected({}, {})
    attempts: dict[str, int] = {}
    counter = TokenCounter()
    shards = sorted(folder.glob(SHARD_GLOB))
    if not shards:
        raise InvalidRunError(f"{folder} holds no shard ({SHARD_GLOB}).")
    for path in shards:
        for line in read_shard(path):
            if not isinstance(line, ShardLine):
                _check_header(line, run, path.name)
                continue
            record, name = line.record, line.record.episode_id
            if name not in units:
                raise InvalidRunError(f"{line.place}: episode {name} is not in the grid of this run.")
            if name in collected.rows:
                raise InvalidRunError(f"{line.place}: episode {name} was completed before; it stands there twice.")
            attempts[name] = attempts.get(name, 0) + 1
            if record.attempt != attempts[name]:
                raise InvalidRunError(
                    f"{line.place}: attempt {record.attempt} of {name} where {attempts[name]} comes next."
                )
            _take(line, world, counter, collected)
    return collected


def _take(line: ShardLine, world: World, counter: TokenCounter, collected: _Collected) -> None:
    """Replay a record and take its figures in; an attempt that the machine ended is checked alike, and only counted."""
    record = line.record
    catalog, task = world.catalogs[record.catalog], world.surface.by_id[record.task]
    timeline = Replay(record, task, catalog, world.protocol, counter, line.place).run()
    if timeline.exposures and record.condition in SR_CONDITIONS:
        opening = collected.openings.setdefault((record.task, record.catalog), {})
        opening[line.place] = timeline.exposures[0].ranking
    if record.infrastructure:
        collected.infrastructure += 1
        return
    figures = measure(record, timeline, task.key, world.protocol.conditions)
    collected.rows[record.episode_id] = Row(record.task, record.catalog, record.condition, figures)


def _check_header(header: Mapping[str, Any], run: Mapping[str, Any], place: str) -> None:
    for part in ("identities", "plan"):
        if header.get(part) != run[part]:
            given = header.get(part)
            stored: Mapping[str, Any] = given if isinstance(given, dict) else {}
            differing = [n for n in sorted({*stored, *run[part]}) if stored.get(n) != run[part].get(n)]
            raise InvalidRunError(
                f"{place}, line 1: the shard's {part} are not those of run.json: {', '.join(differing)}."
            )


def _same_openings(openings: Mapping[tuple[str, int], Mapping[str, tuple[str, ...]]]) -> None:
    """The SR arms of a task start from one ranking, or their misses are not the same episodes."""
    for (task, catalog), by_place in openings.items():
        if len(set(by_place.values())) > 1:
            raise InvalidRunError(f"{task}/{catalog}: the arms start from different rankings: {', '.join(by_place)}.")


def write_aggregate(folder: Path, result: Aggregate) -> None:
    """Write aggregate.json beside the shards."""
    write_whole(folder / AGGREGATE_FILE, pretty_json(result.as_json()))
