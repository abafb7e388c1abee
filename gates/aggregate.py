"""Reads a complete run: every episode of the grid is checked, replayed and measured, or the run is refused with the reason.

`read_complete_run` gives the `CompleteRun` that the gate judges, and that its `aggregate` writes as ``aggregate.json``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BeforeValidator, ConfigDict, PlainSerializer

from conditions.registry import ranks
from conditions.running.plan import Plan, PlanDocument, Shard, Unit, plan_of
from conditions.storage.run_directory import AGGREGATE_FILE, Identities, RunHeader, ShardHeader, read_header
from conditions.storage.shards import SHARD_GLOB, RawLine, read_lines, shard_name, shards_in
from gates.episode_table import EpisodeRow, EpisodeTable, GridSums, TaskSums
from gates.exploratory import check_stamp
from gates.identities import ReferenceData
from gates.measures import ENDINGS, MEASURES, EpisodeCounts, measure
from gates.repeats import RepeatedMeasure, repeats
from gates.replay import Replay
from schemarouter.agents.registry import order_of
from schemarouter.caches import Bounded
from schemarouter.errors import InvalidRunError
from schemarouter.files import Document, VersionOne, pretty_json, write_whole
from schemarouter.gc_tuning import reduced_gc
from schemarouter.records import SCHEMA_VERSION as RECORD_VERSION
from schemarouter.records import EpisodeRecord, RecordEnvelope, split_envelope
from schemarouter.tokens import TokenCounter

_MAX_KNOWN = 20_000


class EpisodesCounted(Document):
    """How many episodes count, of how many that are expected."""

    counted: int
    """Episodes on record."""
    expected: int
    """Episodes of the grid."""


class MeasureSums(Document):
    """A measure as a ratio of sums over episodes."""

    numerator: int
    """Sum over episodes, as `gates.measures.MEASURES` names it."""
    denominator: int
    """The same for what it is divided by."""
    value: float | None
    """The ratio; null, never 0 or 1, where the denominator is 0."""


class Aggregate(Document):
    """aggregate.json: all episodes of a complete run. Nothing in it depends on when, where or how the run was made."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    schema_version: VersionOne
    """Version of this document."""
    stamp: str
    """Why the run is exploratory; empty for the locked protocol alone."""
    identities: Identities
    """What the result rests on."""
    plan: PlanDocument
    """The grid of episodes."""
    episodes: EpisodesCounted
    """How many episodes count."""
    infrastructure_attempts: int
    """Attempts that ended by an infrastructure failure; all are kept, and were run again."""
    conditions: dict[str, dict[str, MeasureSums]]
    """Every measure by condition."""
    endings: dict[str, dict[str, int]]
    """How many episodes ended for each reason, by condition and reason; they add up to its episodes."""
    repeats: dict[str, dict[str, RepeatedMeasure]]
    """Every measure by condition in each repeat; empty for a single run of the grid."""
    rows: Annotated[
        EpisodeTable,
        BeforeValidator(EpisodeTable.from_json),
        PlainSerializer(lambda table: [*table.as_json()]),
    ]
    """The counts of every episode, in the order of the grid."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the file, one row a line, in chunks, so that many rows are never in memory as text."""
        before, after = pretty_json({**self.model_dump(mode="json", exclude={"rows"}), "rows": []}).split(b'"rows": []')
        yield before + b'"rows": ['
        for index, row in enumerate(self.rows.as_json()):
            yield (b",\n    " if index else b"\n    ") + orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
        yield (b"\n  ]" if self.rows else b"]") + after


@dataclass(frozen=True)
class CompleteRun:
    """A run whose every episode was checked, replayed and measured: what the gate judges.

    `rows` are in the order of the grid, `cells` names the cell of every task (``stratum/language``), `families` its family.
    """

    header: RunHeader
    plan: Plan
    rows: EpisodeTable
    infrastructure_attempts: int
    cells: Mapping[str, str]
    families: Mapping[str, str]

    def select(self, condition: str, keep: Callable[[EpisodeRow], bool] = lambda row: True) -> list[EpisodeRow]:
        """The rows of a condition for which `keep` is true."""
        return [row for row in self.rows if row.condition == condition and keep(row)]

    def aggregate(self) -> Aggregate:
        """The document of the run."""
        sums = GridSums(self.rows, self.plan.tasks)
        return Aggregate(
            schema_version=1,
            stamp=self.header.stamp,
            identities=self.header.identities,
            plan=self.header.plan,
            episodes=EpisodesCounted(counted=len(self.rows), expected=len(self.plan.units)),
            infrastructure_attempts=self.infrastructure_attempts,
            conditions={name: measure_sums(sums.by_task(name)) for name in self.plan.conditions},
            endings=endings(sums, self.plan),
            repeats=repeats(self.rows, self.plan),
            rows=self.rows,
        )


def measure_sums(sums: TaskSums) -> dict[str, MeasureSums]:
    """Every measure, by name, with its sums over all tasks."""
    measures = {}
    for item in MEASURES:
        numerator, denominator = sums.ratio(item)
        value = numerator / denominator if denominator else None
        measures[item.name] = MeasureSums(numerator=numerator, denominator=denominator, value=value)
    return measures


def endings(sums: GridSums, plan: Plan) -> dict[str, dict[str, int]]:
    """How many episodes ended for each reason, by condition and reason."""
    by_condition = {name: sums.by_task(name) for name in plan.conditions}
    return {
        name: {reason: part.total(count) for reason, count in ENDINGS.items()} for name, part in by_condition.items()
    }


def compare_identities(stored: Identities, actual: Identities, where: str) -> None:
    """Raise InvalidRunError with every identity that differs between a header and the reference data."""
    run, here = stored.as_json(), actual.as_json()
    differing = [f"{name}: {run[name]!r} in the run, {here[name]!r} here" for name in run if run[name] != here[name]]
    if differing:
        raise InvalidRunError(f"{where}: the run rests on other data or code than is here. " + "; ".join(differing))


def read_complete_run(folder: Path, reference: ReferenceData) -> CompleteRun:
    """Check, replay and measure a complete run.

    Args:
        folder: The folder of the run: ``run.json`` and every shard.
        reference: Protocol, tasks and catalogs to check it against, as `gates.identities.load_reference` gives them.

    Returns:
        The run with the counts of every episode, in the order of the grid.

    Raises:
        InvalidRunError: For an incomplete, duplicated, mixed or altered set of episodes, with what exactly is wrong.
    """
    run = read_header(folder)
    plan = plan_of(run.plan, "run.json")
    _check_reference(plan, reference)
    check_stamp(run, reference.protocol, reference.surface, plan)
    compare_identities(run.identities, reference.identities(run), "run.json")
    reader = _ShardReader(run, plan, reference)
    with reduced_gc():
        for shard in complete_shards(folder):
            reader.read(folder / shard_name(shard), shard)
    missing = reader.rows.missing()
    if missing:
        shown = ", ".join(plan.units[index].episode_id for index in missing[:3])
        raise InvalidRunError(
            f"{folder} is not complete: {len(plan.units) - len(missing)} of {len(plan.units)} episodes; "
            f"missing {shown}{' …' if len(missing) > 3 else ''}. The same run command resumes it."
        )
    cells = {task: reference.surface.cell(task) for task in plan.tasks}
    families = {task: reference.surface.family(task) for task in plan.tasks}
    return CompleteRun(run, plan, reader.rows, reader.infrastructure_attempts, cells, families)


def _check_reference(plan: Plan, reference: ReferenceData) -> None:
    """Raise InvalidRunError for tasks or catalogs of a plan that the reference data lack."""
    surface, catalogs = reference.surface, reference.catalogs
    for kind, named, known in (("task", plan.tasks, surface.by_id), ("catalog", plan.catalogs, catalogs)):
        unknown = [str(name) for name in named if name not in known]
        if unknown:
            raise InvalidRunError(f"run.json: {kind}s that are not there: {', '.join(unknown[:3])}.")


def complete_shards(folder: Path) -> list[Shard]:
    """All shards of a run, in order. Raises InvalidRunError for none, for a missing one, and for two divisions at once."""
    shards = shards_in(folder)
    if not shards:
        raise InvalidRunError(f"{folder} holds no shard ({SHARD_GLOB}).")
    counts = sorted({shard.count for shard in shards})
    if len(counts) > 1:
        named = ", ".join(map(shard_name, shards[:3]))
        raise InvalidRunError(f"{folder} is divided in {len(counts)} ways at once ({named}); keep one.")
    expected, present = [Shard(index, counts[0]) for index in range(1, counts[0] + 1)], set(shards)
    missing = [shard for shard in expected if shard not in present]
    if missing:
        first = missing[0]
        raise InvalidRunError(
            f"{folder} is not complete: shards missing: {len(missing)} of {counts[0]}, the first {shard_name(first)}; "
            f"add them with schemarouter merge, or run --shard {first.index}/{first.count}."
        )
    return expected


class _ShardReader:
    """Reads the shards of a run, one after the other, into `rows`; checks, replays and measures every record."""

    def __init__(self, run: RunHeader, plan: Plan, reference: ReferenceData) -> None:
        self._run = run
        self._plan = plan
        self._reference = reference
        self._order = order_of(run.identities.agent)
        self._counter = TokenCounter()
        # Attempts that ended by an infrastructure failure, by the index of their episode.
        self._failed_attempts: Counter[int] = Counter()
        # Equal events of one task, catalog and condition have equal counts: the index of the first episode that had them.
        self._known: Bounded[tuple[tuple[str, int, str], bytes], int] = Bounded(_MAX_KNOWN)
        self._openings: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
        self.rows = EpisodeTable(plan.units)
        self.infrastructure_attempts = 0

    def read(self, path: Path, shard: Shard) -> None:
        """Read every record of a shard. Raises InvalidRunError with shard, line and reason, for the first that is wrong."""
        for line in read_lines(path):
            if isinstance(line, RawLine):
                self._read_record(line, shard)
            else:
                _check_header(line, self._run, path.name)

    def _read_record(self, line: RawLine, shard: Shard) -> None:
        envelope = split_envelope(line.data)
        key = None if envelope is None else (envelope[:3], hashlib.sha256(envelope.events).digest())
        known = None if key is None else self._known.get(key)
        index = self._index(line, envelope, shard)
        if known is not None:
            self.rows.copy(index, known)
            return
        counts = self._replayed_counts(line)
        if counts is None:
            self.infrastructure_attempts += 1
            self._failed_attempts[index] += 1
            return
        self.rows.put(index, counts)
        if key is not None:
            self._known[key] = index

    def _replayed_counts(self, line: RawLine) -> EpisodeCounts | None:
        """Replay a record and measure it; None where an infrastructure failure ended the attempt.

        Raises InvalidRunError, with the location, for what cannot have happened.
        """
        record, where = line.record(), line.location
        catalog, task = self._reference.catalogs[record.catalog], self._reference.surface.by_id[record.task]
        protocol = self._reference.protocol
        timeline = Replay(record, task, catalog, protocol, self._counter, where, order=self._order).run()
        if timeline.exposures and ranks(record.condition):
            self._check_opening(where, record, timeline.exposures[0].ranking)
        if record.out_of_time and self._run.limits.episode_seconds is None:
            raise InvalidRunError(f"{where}: {record.episode_id} ended by a time limit, and this run has none.")
        return None if record.infrastructure else measure(record, timeline, task.key, protocol.conditions)

    def _index(self, line: RawLine, envelope: RecordEnvelope | None, shard: Shard) -> int:
        """The index of an episode in the grid. Raises InvalidRunError for one that does not belong into this line."""
        if envelope is None:
            record = line.record()
            unit, attempt = Unit(record.task, record.catalog, record.condition, record.repeat), record.attempt
            version = record.schema_version
        else:
            unit, attempt, version = Unit(*envelope[:4]), envelope.attempt, RECORD_VERSION
        if version != self._run.schema_version:
            raise InvalidRunError(
                f"{line.location}: a record of schema_version {version} in a run of {self._run.schema_version}."
            )
        index = self._plan.index(unit)
        if index is None:
            raise InvalidRunError(f"{line.location}: episode {unit.episode_id} is not in the grid of this run.")
        if index % shard.count != shard.index - 1:
            raise InvalidRunError(
                f"{line.location}: episode {unit.episode_id} belongs to shard {index % shard.count + 1} of {shard.count}."
            )
        if self.rows.has(index):
            raise InvalidRunError(
                f"{line.location}: episode {unit.episode_id} was completed before; its record is there twice."
            )
        expected = self._failed_attempts[index] + 1 if self._failed_attempts else 1
        if attempt != expected:
            raise InvalidRunError(
                f"{line.location}: attempt {attempt} of {unit.episode_id} where {expected} comes next."
            )
        return index

    def _check_opening(self, where: str, record: EpisodeRecord, ranking: tuple[str, ...]) -> None:
        """Check that the conditions of a task that rank open with one ranking, or their initial misses could not be compared."""
        first, opening = self._openings.setdefault((record.task, record.catalog), (where, ranking))
        if ranking != opening:
            raise InvalidRunError(
                f"{record.task}/{record.catalog}: the conditions start from different rankings: {first}, {where}."
            )


def _check_header(header: ShardHeader, run: RunHeader, file: str) -> None:
    for part in ("identities", "plan", "limits"):
        stored, expected = getattr(header, part).as_json(), getattr(run, part).as_json()
        if stored != expected:
            differing = [name for name in expected if stored[name] != expected[name]]
            raise InvalidRunError(
                f"{file}, line 1: the shard's {part} are not those of run.json: {', '.join(differing)}."
            )


def write_aggregate(folder: Path, result: Aggregate) -> None:
    """Write aggregate.json beside the shards."""
    write_whole(folder / AGGREGATE_FILE, result.chunks())


def same_aggregate(folder: Path, result: Aggregate) -> bool | None:
    """Whether aggregate.json is what the shards give; None without one. Raises InvalidRunError when it cannot be read."""
    try:
        with (folder / AGGREGATE_FILE).open("rb") as file:
            return all(file.read(len(chunk)) == chunk for chunk in result.chunks()) and not file.read(1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRunError(f"{folder / AGGREGATE_FILE}: cannot be read ({error.strerror}).") from None
