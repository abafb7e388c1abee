"""The figures of every episode of a grid, as one table of integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from conditions.plan import Unit
from gates.measures import FIGURES, READ_FIGURES, Figures

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
