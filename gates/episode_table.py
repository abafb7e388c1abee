"""The counts of every episode of a grid as one table of integers, and their sums by condition, catalog and task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from conditions.running.plan import Unit
from gates.bootstrap import DesignError, Integers, magnitude
from gates.measures import COUNTS, MEASURES, READ_COUNTS, EpisodeCounts, Measure

Name = TypeVar("Name")
_NAMES = (*Unit._fields, *COUNTS)
COLUMN = {name: index for index, name in enumerate(COUNTS)}


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """The counts of one episode of the grid."""

    task: str
    catalog: int
    condition: str
    counts: EpisodeCounts
    repeat: int = 1


class EpisodeTable(Sequence[EpisodeRow]):
    """The counts of episodes, in the order of their units; a hundred thousand fit in a few megabytes.

    `table` is (n_units, n_counts) int64, a row a unit, columns in the order of `COUNTS`. As a sequence it gives `EpisodeRow`s.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.table: npt.NDArray[np.int64] = np.zeros((len(units), len(COUNTS)), np.int64)
        self._filled: npt.NDArray[np.bool_] = np.zeros(len(units), np.bool_)

    @classmethod
    def of(cls, rows: Sequence[EpisodeRow]) -> EpisodeTable:
        """Build a table from rows; a table is returned as it is. Raises OverflowError for counts beyond 64 bits."""
        if isinstance(rows, EpisodeTable):
            return rows
        table = cls([Unit(row.task, row.catalog, row.condition, row.repeat) for row in rows])
        for index, row in enumerate(rows):
            table.put(index, row.counts)
        return table

    @classmethod
    def from_json(cls, rows: Any) -> EpisodeTable:
        """Build a table from objects as `as_json` gives them; a table is returned as it is. Raises ValueError otherwise."""
        if isinstance(rows, EpisodeTable):
            return rows
        try:
            table = cls([Unit(*(row[name] for name in Unit._fields)) for row in rows])
            for index, row in enumerate(rows):
                table.put(index, EpisodeCounts(*(row[name] for name in COUNTS)))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"no rows of an aggregate ({type(error).__name__}: {error})") from None
        return table

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """One count of every unit, shape (n_units,)."""
        return self.table[:, COLUMN[name]]

    def put(self, index: int, counts: EpisodeCounts) -> None:
        """Enter the counts of the unit at an index."""
        self.table[index] = READ_COUNTS(counts)
        self._filled[index] = True

    def copy(self, index: int, other: int) -> None:
        """Enter for one unit the counts of another."""
        self.table[index] = self.table[other]
        self._filled[index] = True

    def has(self, index: int) -> bool:
        """Whether the counts of a unit were entered."""
        return bool(self._filled[index])

    def missing(self) -> list[int]:
        """Indexes of the units without counts."""
        return [int(index) for index in np.flatnonzero(~self._filled)]

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Every row as an object, its counts by name."""
        for unit, values in zip(self.units, self.table, strict=True):
            yield dict(zip(_NAMES, (*unit, *values.tolist()), strict=True))

    def __len__(self) -> int:
        return len(self.units)

    @overload
    def __getitem__(self, index: int) -> EpisodeRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[EpisodeRow]: ...

    def __getitem__(self, index: int | slice) -> EpisodeRow | Sequence[EpisodeRow]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        unit = self.units[index]
        counts = EpisodeCounts(*self.table[index].tolist())
        return EpisodeRow(unit.task, unit.catalog, unit.condition, counts, unit.repeat)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class TaskSums:
    """Sums of every count by task, (n_tasks, n_counts) int64, and which tasks have an episode among them, (n_tasks,) bool."""

    values: Integers
    present: npt.NDArray[np.bool_]

    def pair(self, item: Measure) -> tuple[Integers, Integers]:
        """Per-task numerator and denominator of a measure, (n_tasks,) int64 each; 0 of 0 for a task without episodes."""
        return self.values[:, COLUMN[item.numerator]], self.values[:, COLUMN[item.denominator]] * item.scale

    def ratio(self, item: Measure) -> tuple[int, int]:
        """Numerator and denominator of a measure over all tasks."""
        numerator, denominator = self.pair(item)
        return int(numerator.sum()), int(denominator.sum())

    def total(self, name: str) -> int:
        """One count over all tasks."""
        return int(self.values[:, COLUMN[name]].sum())

    def within(self, inside: npt.NDArray[np.bool_]) -> TaskSums:
        """The same with only the tasks that `inside`, (n_tasks,) bool, selects; the others count as without episodes."""
        return TaskSums(np.where(inside[:, np.newaxis], self.values, 0), self.present & inside)


class GridSums:
    """Sums of every count of a grid of episodes, by condition, catalog and task.

    Episodes are added up once, so that the sums of any part of the grid come from a small array. `tasks` is the order of
    the task axis; every row's task is among them. Raises `DesignError` for counts whose sums could pass 64 bits.
    """

    def __init__(self, rows: Sequence[EpisodeRow], tasks: Sequence[str]) -> None:
        table = _checked_table(rows)
        units = table.units
        self.conditions = _indexes(unit.condition for unit in units)
        self.catalogs = _indexes(unit.catalog for unit in units)
        index = _indexes(tasks)
        shape = (len(self.conditions), len(self.catalogs), len(tasks))
        at = tuple(
            np.array(column, dtype=np.int64)
            for column in (
                [self.conditions[unit.condition] for unit in units],
                [self.catalogs[unit.catalog] for unit in units],
                [index[unit.task] for unit in units],
            )
        )
        self._values = np.zeros((*shape, len(COUNTS)), dtype=np.int64)
        np.add.at(self._values, at, table.table)
        self._present = np.zeros(shape, dtype=np.bool_)
        self._present[at] = True

    def by_task(self, condition: str | None = None, catalog: int | None = None) -> TaskSums:
        """Sums by task over the episodes of a condition, of a catalog, of both, or of all; zeros where there are none."""
        conditions = _selected(self.conditions, condition)
        catalogs = _selected(self.catalogs, catalog)
        values = self._values[conditions][:, catalogs].sum(axis=(0, 1))
        return TaskSums(values, np.any(self._present[conditions][:, catalogs], axis=(0, 1)))


def _indexes(names: Iterable[Name]) -> dict[Name, int]:
    return {name: index for index, name in enumerate(dict.fromkeys(names))}


def _selected(indexes: Mapping[Name, int], name: Name | None) -> list[int]:
    if name is None:
        return list(indexes.values())
    return [indexes[name]] if name in indexes else []


def _checked_table(rows: Sequence[EpisodeRow]) -> EpisodeTable:
    """The rows as a table of integers, such that no sum of rows and no scale can overflow."""
    try:
        table = EpisodeTable.of(rows)
    except OverflowError:
        raise DesignError("counts beyond 64 bits; they cannot be added up.") from None
    maximum = magnitude(table.table)
    if maximum * len(rows) * max(item.scale for item in MEASURES) >= 2**63:
        raise DesignError(f"counts up to {maximum} in {len(rows)} episodes; their sums could pass 64 bits.")
    return table
