"""The figures of an aggregate added up by condition, catalog and task: what every criterion, measure and slice is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gates.bootstrap import DesignError, Integers, magnitude
from gates.measures import FIGURES, MEASURES, Measure
from gates.rows import COLUMN, Row, Rows

Name = TypeVar("Name")


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
