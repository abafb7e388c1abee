"""The figures of every episode of a grid as one table of integers, and their sums by condition, catalog and task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from conditions.running.plan import Unit
from gates.bootstrap import DesignError, Integers, magnitude
from gates.measures import FIGURES, MEASURES, READ_FIGURES, Figures, Measure

Name = TypeVar("Name")
_NAMES = (*Unit._fields, *FIGURES)
COLUMN = {name: place for place, name in enumerate(FIGURES)}


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one episode of the grid."""

    task: str
    catalog: int
    condition: str
    figures: Figures
    repeat: int = 1


class Rows(Sequence[Row]):
    """Rows in the order of their units, kept as integers: what a hundred thousand need fits in a few megabytes."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.table: npt.NDArray[np.int64] = np.zeros((len(units), len(FIGURES)), np.int64)
        self._filled: npt.NDArray[np.bool_] = np.zeros(len(units), np.bool_)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Any rows as a table; a table as it is. Raises OverflowError for figures beyond 64 bits."""
        if isinstance(rows, Rows):
            return rows
        made = cls([Unit(row.task, row.catalog, row.condition, row.repeat) for row in rows])
        for place, row in enumerate(rows):
            made.put(place, row.figures)
        return made

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """One figure of every unit, shape (n,)."""
        return self.table[:, COLUMN[name]]

    def put(self, place: int, figures: Figures) -> None:
        """Take the figures of a unit in."""
        self.table[place] = READ_FIGURES(figures)
        self._filled[place] = True

    def reserve(self, place: int) -> None:
        """Count the figures of a unit as taken in, though they come later, by `put` or `copy`."""
        self._filled[place] = True

    def copy(self, places: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> None:
        """Take the figures of other units in for these; both (n,)."""
        self.table[places] = self.table[others]
        self._filled[places] = True

    def has(self, place: int) -> bool:
        """Whether the figures of a unit were taken in."""
        return bool(self._filled[place])

    def missing(self) -> list[int]:
        """Places of the units whose figures were not taken in."""
        return [int(place) for place in np.flatnonzero(~self._filled)]

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Every row as an object, its figures by name."""
        for unit, values in zip(self.units, self.table, strict=True):
            yield dict(zip(_NAMES, (*unit, *values.tolist()), strict=True))

    def __len__(self) -> int:
        return len(self.units)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        unit = self.units[place]
        figures = Figures(*self.table[place].tolist())
        return Row(unit.task, unit.catalog, unit.condition, figures, unit.repeat)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Table:
    """Sums of every figure by task, (n_tasks, n_figures) int64, and which tasks have an episode here, (n_tasks,) bool."""

    values: Integers
    present: npt.NDArray[np.bool_]

    def pair(self, item: Measure) -> tuple[Integers, Integers]:
        """Per-task numerator and denominator of a measure, (n_tasks,) int64 each; 0 of 0 for a task without episodes."""
        return self.values[:, COLUMN[item.numerator]], self.values[:, COLUMN[item.denominator]] * item.scale

    def ratio(self, item: Measure) -> tuple[int, int]:
        """Numerator and denominator of a measure over all tasks."""
        numerator, denominator = self.pair(item)
        return int(numerator.sum()), int(denominator.sum())

    def within(self, inside: npt.NDArray[np.bool_]) -> Table:
        """The same of the tasks that `inside`, (n_tasks,), says; the others count as without episodes."""
        return Table(np.where(inside[:, np.newaxis], self.values, 0), self.present & inside)


class Sums:
    """Every figure of every episode, added up once; tables of parts are then sums of a small array.

    `tasks` is the order of the task axis; every row's task is among them. Raises `DesignError` for figures that could add up
    to more than 64 bits hold.
    """

    def __init__(self, rows: Sequence[Row], tasks: Sequence[str]) -> None:
        table = _table(rows)
        units = table.units
        self.conditions = _places(unit.condition for unit in units)
        self.catalogs = _places(unit.catalog for unit in units)
        place = _places(tasks)
        shape = (len(self.conditions), len(self.catalogs), len(tasks))
        at = tuple(
            np.array(column, dtype=np.int64)
            for column in (
                [self.conditions[unit.condition] for unit in units],
                [self.catalogs[unit.catalog] for unit in units],
                [place[unit.task] for unit in units],
            )
        )
        self._values = np.zeros((*shape, len(FIGURES)), dtype=np.int64)
        np.add.at(self._values, at, table.table)
        self._present = np.zeros(shape, dtype=np.bool_)
        self._present[at] = True

    def table(self, condition: str | None = None, catalog: int | None = None) -> Table:
        """Sums over the episodes of a condition, of a catalog, of both, or of all; zeros where there are none."""
        conditions = _chosen(self.conditions, condition)
        catalogs = _chosen(self.catalogs, catalog)
        values = self._values[conditions][:, catalogs].sum(axis=(0, 1))
        return Table(values, np.any(self._present[conditions][:, catalogs], axis=(0, 1)))


def _places(names: Iterable[Name]) -> dict[Name, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _chosen(places: Mapping[Name, int], name: Name | None) -> list[int]:
    if name is None:
        return list(places.values())
    return [places[name]] if name in places else []


def _table(rows: Sequence[Row]) -> Rows:
    """The rows as a table of integers, such that no sum of rows and no scale can overflow."""
    try:
        table = Rows.of(rows)
    except OverflowError:
        raise DesignError("figures beyond 64 bits; they cannot be added up.") from None
    most = magnitude(table.table)
    if most * len(rows) * max(item.scale for item in MEASURES) >= 2**63:
        raise DesignError(f"figures up to {most} in {len(rows)} episodes; their sums could pass 64 bits.")
    return table
