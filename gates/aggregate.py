"""The terminal aggregate: every episode of the grid, checked, replayed and measured; or a refusal that says why."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from conditions.running.plan import Plan, Shard, Unit, plan_from_json
from conditions.storage.run_directory import AGGREGATE_FILE, pretty_json, read_run, write_whole
from conditions.storage.shards import ENDED_BY_THE_MACHINE, SHARD_GLOB, RawLine, read_lines, shard_name, shards_in
from gates.episode_table import Row as Row
from gates.episode_table import Rows, Sums, Table
from gates.exploratory import check_stamp
from gates.measures import MEASURES
from gates.parallel_replay import Bench, Case, Judge, Judged, bench
from gates.repeats import repeats
from preregistration.protocol import Protocol
from schemarouter.caches import Bounded
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.gc_tuning import seldom_collected
from schemarouter.records import SCHEMA_VERSION as RECORD_VERSION
from schemarouter.records import Outside, outside
from surface.loader import Surface

# Version 1 knew no repeats, and one line for every figure.
SCHEMA_VERSION = 2
_MOST_KNOWN = 20_000
Line = dict[str, Any] | RawLine


@dataclass(frozen=True)
class World:
    """What a run is checked against: the protocol, tasks, catalogs and identities as they are here and now."""

    protocol: Protocol
    surface: Surface
    catalogs: Mapping[int, Catalog]
    identities: Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Aggregate:
    """All episodes of a run, in the order of its grid."""

    run: Mapping[str, Any]
    plan: Plan
    rows: Sequence[Row]
    infrastructure_attempts: int
    cells: Mapping[str, str]

    def select(self, condition: str, keep: Callable[[Row], bool] = lambda row: True) -> list[Row]:
        """The rows of a condition that `keep` wants."""
        return [row for row in self.rows if row.condition == condition and keep(row)]

    def as_json(self) -> dict[str, Any]:
        """The aggregate as the file holds it: nothing in it depends on when, where or how the run was made."""
        return {**self._without_rows(), "rows": [*Rows.of(self.rows).as_json()]}

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the file, a row a line, so that many rows never stand in memory as text."""
        before, after = pretty_json({**self._without_rows(), "rows": []}).split(b'"rows": []')
        yield before + b'"rows": ['
        for place, row in enumerate(Rows.of(self.rows).as_json()):
            yield (b",\n    " if place else b"\n    ") + orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
        yield (b"\n  ]" if self.rows else b"]") + after

    def _without_rows(self) -> dict[str, Any]:
        sums = Sums(self.rows, self.plan.tasks)
        return {
            "schema_version": SCHEMA_VERSION,
            "stamp": self.run["stamp"],
            "identities": self.run["identities"],
            "plan": self.run["plan"],
            "episodes": {"counted": len(self.rows), "expected": len(self.plan.units)},
            "infrastructure_attempts": self.infrastructure_attempts,
            "conditions": {name: condition_table(sums.table(name)) for name in self.plan.conditions},
            "repeats": repeats(Rows.of(self.rows), self.plan),
        }


def condition_table(sums: Table) -> dict[str, Any]:
    """Every measure of a condition with its sums; a ratio without denominator is null, never 0 or 1."""
    table = {}
    for item in MEASURES:
        numerator, denominator = sums.ratio(item)
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


def aggregate(folder: Path, world: World, *, workers: int = 1) -> Aggregate:
    """Check, replay and measure a terminal run, by so many processes besides this one where there is more than one.

    Raises InvalidRunError for an incomplete, duplicated, mixed or altered set of episodes, with what exactly is wrong.
    """
    run = read_run(folder)
    plan = plan_from_json(run["plan"], "run.json")
    _check_world(plan, world)
    check_stamp(run, world.protocol, world.surface, plan)
    compare_identities(run["identities"], world.identities(run), "run.json")
    timed = run["limits"].get("episode_seconds") is not None
    judge = Judge(world.protocol, world.surface, world.catalogs, timed)
    with seldom_collected(), bench(judge, workers) as judged:
        collected = _Collected(run, plan, judged)
        for shard in divided(folder):
            collected.read(folder / shard_name(shard), shard)
        collected.complete()
    missing = collected.rows.missing()
    if missing:
        shown = ", ".join(plan.units[place].episode_id for place in missing[:3])
        raise InvalidRunError(
            f"{folder} is not terminal: {len(plan.units) - len(missing)} of {len(plan.units)} episodes; "
            f"missing {shown}{' …' if len(missing) > 3 else ''}. The same run command goes on."
        )
    cells = {task: world.surface.cell(task) for task in plan.tasks}
    return Aggregate(run, plan, collected.rows, collected.infrastructure, cells)


def _check_world(plan: Plan, world: World) -> None:
    """Raise InvalidRunError for tasks or catalogs of a plan that are not there to check it against."""
    for kind, named, known in (("task", plan.tasks, world.surface.by_id), ("catalog", plan.catalogs, world.catalogs)):
        strange = [str(name) for name in named if name not in known]
        if strange:
            raise InvalidRunError(f"run.json: {kind}s that are not there: {', '.join(strange[:3])}.")


def divided(folder: Path) -> list[Shard]:
    """The shards of a run, all there. Raises InvalidRunError for none, for a missing one, and for two divisions at once."""
    shards = shards_in(folder)
    if not shards:
        raise InvalidRunError(f"{folder} holds no shard ({SHARD_GLOB}).")
    counts = sorted({shard.count for shard in shards})
    if len(counts) > 1:
        told = ", ".join(map(shard_name, shards[:3]))
        raise InvalidRunError(f"{folder} is divided in {len(counts)} ways at once ({told}); keep one.")
    whole, there = [Shard(index, counts[0]) for index in range(1, counts[0] + 1)], set(shards)
    missing = [shard for shard in whole if shard not in there]
    if missing:
        first = missing[0]
        raise InvalidRunError(
            f"{folder} is not terminal: shards missing: {len(missing)} of {counts[0]}, the first {shard_name(first)}; "
            f"bring them here with schemarouter merge, or run --shard {first.index}/{first.count}."
        )
    return whole


class _Collected:
    """What the shards of a run give, as they are read; complete once all of it is settled."""

    def __init__(self, run: Mapping[str, Any], plan: Plan, judged: Bench) -> None:
        self._run = run
        self._plan = plan
        self._bench = judged
        # Attempts that the machine ended, by the place of their episode.
        self._lost: Counter[int] = Counter()
        # A replay is a function of the record and the world: what the same events gave they give again.
        self._known: Bounded[tuple[tuple[str, int, str], bytes], int] = Bounded(_MOST_KNOWN)
        # Places of records that say what others said, and the places of those.
        self._repeated, self._said = array("q"), array("q")
        self._openings: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
        self.rows = Rows(plan.units)
        self.infrastructure = 0

    def read(self, path: Path, shard: Shard) -> None:
        """Take every record of a shard in. Raises InvalidRunError with shard, line and reason, for the first that is wrong."""
        for line in self._after_those_before(read_lines(path)):
            if isinstance(line, RawLine):
                self._take(line, shard)
            else:
                _check_header(line, self._run, path.name)

    def settle(self) -> None:
        """Wait for what was given to be judged. Raises InvalidRunError as `read` does."""
        for case, judged in self._bench.rest():
            self._note(case, judged)

    def complete(self) -> None:
        """Settle the rest."""
        self.settle()
        self.rows.copy(np.frombuffer(self._repeated, np.int64), np.frombuffer(self._said, np.int64))

    def _after_those_before(self, lines: Iterator[Line]) -> Iterator[Line]:
        """The lines; what is wrong with one is told after what is wrong with those before it, which may be at work still."""
        try:
            yield from lines
        except InvalidRunError:
            self.settle()
            raise

    def _take(self, line: RawLine, shard: Shard) -> None:
        told = outside(line.data)
        key = None if told is None else (told[:3], hashlib.sha256(told.events).digest())
        known = None if key is None else self._known.get(key)
        try:
            place = self._place(line, told, shard)
        except InvalidRunError:
            self.settle()
            raise
        if known is not None:
            self.rows.reserve(place)
            self._repeated.append(place)
            self._said.append(known)
            return
        for case, judged in self._bench.take(Case(line, place)):
            self._note(case, judged)
        if ENDED_BY_THE_MACHINE in line.data:
            # Whether the episode is finished is not known before.
            self.settle()
            return
        self.rows.reserve(place)
        if key is not None:
            self._known[key] = place

    def _place(self, line: RawLine, told: Outside | None, shard: Shard) -> int:
        """The place of an episode in the grid. Raises InvalidRunError where it does not belong to where it stands."""
        if told is None:
            record = line.record()
            unit, attempt = Unit(record.task, record.catalog, record.condition, record.repeat), record.attempt
            version = record.schema_version
        else:
            unit, attempt, version = Unit(*told[:4]), told.attempt, RECORD_VERSION
        if version != self._run["schema_version"]:
            raise InvalidRunError(
                f"{line.place}: a record of schema_version {version} in a run of {self._run['schema_version']}."
            )
        place = self._plan.place(unit)
        if place is None:
            raise InvalidRunError(f"{line.place}: episode {unit.episode_id} is not in the grid of this run.")
        if place % shard.count != shard.index - 1:
            raise InvalidRunError(
                f"{line.place}: episode {unit.episode_id} belongs to shard {place % shard.count + 1} of {shard.count}."
            )
        if self.rows.has(place):
            raise InvalidRunError(
                f"{line.place}: episode {unit.episode_id} was completed before; it stands there twice."
            )
        lost = self._lost[place] if self._lost else 0
        if attempt != lost + 1:
            raise InvalidRunError(f"{line.place}: attempt {attempt} of {unit.episode_id} where {lost + 1} comes next.")
        return place

    def _note(self, case: Case, judged: Judged) -> None:
        """Take figures in; an attempt that the machine ended is checked alike, and only counted."""
        if judged.opening is not None:
            self._same_opening(case, judged.opening)
        if judged.figures is None:
            self.infrastructure += 1
            self._lost[case.place] += 1
        else:
            self.rows.put(case.place, judged.figures)

    def _same_opening(self, case: Case, ranking: tuple[str, ...]) -> None:
        """The SR arms of a task start from one ranking, or their misses are not the same episodes."""
        unit = self._plan.units[case.place]
        first, opening = self._openings.setdefault((unit.task, unit.catalog), (case.line.place, ranking))
        if ranking != opening:
            raise InvalidRunError(
                f"{unit.task}/{unit.catalog}: the arms start from different rankings: {first}, {case.line.place}."
            )


def _check_header(header: Mapping[str, Any], run: Mapping[str, Any], place: str) -> None:
    for part in ("identities", "plan", "limits"):
        if header.get(part) != run[part]:
            given = header.get(part)
            stored: Mapping[str, Any] = given if isinstance(given, dict) else {}
            differing = [n for n in sorted({*stored, *run[part]}) if stored.get(n) != run[part].get(n)]
            raise InvalidRunError(
                f"{place}, line 1: the shard's {part} are not those of run.json: {', '.join(differing)}."
            )


def write_aggregate(folder: Path, result: Aggregate) -> None:
    """Write aggregate.json beside the shards."""
    write_whole(folder / AGGREGATE_FILE, result.chunks())


def same_aggregate(folder: Path, result: Aggregate) -> bool | None:
    """Whether aggregate.json is what the shards give; None where there is none. Raises InvalidRunError when it cannot be read."""
    try:
        with (folder / AGGREGATE_FILE).open("rb") as file:
            return all(file.read(len(chunk)) == chunk for chunk in result.chunks()) and not file.read(1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRunError(f"{folder / AGGREGATE_FILE}: cannot be read ({error.strerror}).") from None
