"""Stratified task-cluster bootstrap on per-task sums: one counts matrix serves every measure and every condition."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from preregistration.protocol import StatisticsRules
from schemarouter.errors import SchemaRouterError

DrawsPerCell: TypeAlias = Literal["n", "n-1"]
Counts: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

EXACT_LIMIT = 2**53
_MAX_CELL = 255


class DesignError(SchemaRouterError, ValueError):
    """Cells, tasks or sums that cannot be resampled."""


@dataclass(frozen=True)
class Design:
    """Which task (cluster) belongs to which cell (stratum).

    `cells` holds (cell name, task ids), cells by name and tasks by id, both in code-point order; the columns of
    every array in this module follow that order. Raises `DesignError` for empty, unsorted or repeated cells or tasks.
    """

    cells: tuple[tuple[str, tuple[str, ...]], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.cells]
        if not names:
            raise DesignError("a design without tasks; give at least one task and its cell.")
        if names != sorted(set(names)):
            raise DesignError("cells are not sorted or repeat a name; build the design with Design.of(task_cells).")
        for name, tasks in self.cells:
            if not tasks or list(tasks) != sorted(set(tasks)):
                raise DesignError(f"cell {name!r}: tasks are missing, unsorted or repeated; use Design.of(task_cells).")
        if len(set(self.tasks)) != len(self.tasks):
            repeated = sorted(task for task in set(self.tasks) if self.tasks.count(task) > 1)
            raise DesignError(f"tasks in more than one cell: {', '.join(repeated)}; each task has one cell.")

    @classmethod
    def of(cls, task_cells: Mapping[str, str]) -> Design:
        """Build the design from task id -> cell name, in whatever order the mapping has."""
        grouped: dict[str, list[str]] = {}
        for task, cell in task_cells.items():
            grouped.setdefault(cell, []).append(task)
        return cls(tuple((cell, tuple(sorted(grouped[cell]))) for cell in sorted(grouped)))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Task ids in column order."""
        return tuple(task for _, tasks in self.cells for task in tasks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of tasks in each cell, in cell order."""
        return tuple(len(tasks) for _, tasks in self.cells)

    @cached_property
    def cell_index(self) -> Integers:
        """Index of each task's cell; (n_tasks,) int64."""
        return np.repeat(np.arange(len(self.cells), dtype=np.int64), self.sizes)


def locked_counts(cells: Mapping[str, str], rules: StatisticsRules) -> tuple[Design, Counts]:
    """The design of tasks by their cells, ``stratum/language``, and the counts matrix whose hash a lock holds."""
    by_stratum = rules.stratify_by == "stratum"
    design = Design.of({task: cell.partition("/")[0] if by_stratum else cell for task, cell in cells.items()})
    return design, resample_counts(design.sizes, iterations=rules.iterations, seed=rules.seed)


def resample_counts(sizes: Sequence[int], *, iterations: int, seed: int, draws_per_cell: DrawsPerCell = "n") -> Counts:
    """Count how often each task is drawn in each iteration; (iterations, n_tasks) uint8.

    Cell by cell, n (ordinary bootstrap) or n - 1 (Rao & Wu 1988) of its n tasks are drawn with replacement from one
    `Generator(PCG64(seed))`. A cell of one task is kept fixed at count 1 under both, so it shows no variation; under
    "n-1" there would be nothing to draw. Raises `DesignError` for cells that are empty or beyond 255 tasks, and for
    iterations or a seed that are no whole numbers.
    """
    if draws_per_cell not in ("n", "n-1"):
        raise DesignError(f"draws_per_cell is {draws_per_cell!r}; allowed are 'n' and 'n-1'.")
    if not _is_whole(iterations) or iterations < 1:
        raise DesignError(f"{iterations} iterations; a whole number from 1 is needed.")
    if not _is_whole(seed) or seed < 0:
        raise DesignError(f"seed {seed}; a whole number from 0 is needed.")
    _check_sizes(sizes)
    generator = np.random.Generator(np.random.PCG64(seed))
    counts = np.ones((iterations, sum(sizes)), dtype=np.uint8)
    row_start = np.arange(iterations, dtype=np.int64)[:, np.newaxis]
    column = 0
    for size in sizes:
        if size > 1:
            draws = size if draws_per_cell == "n" else size - 1
            drawn = generator.integers(0, size, size=(iterations, draws))
            # In place: at 10,000 iterations, another array of this size takes as long as drawing it.
            drawn += row_start * size
            flat = np.bincount(drawn.ravel(), minlength=iterations * size)
            counts[:, column : column + size] = flat.reshape(iterations, size)
        column += size
    return counts


def counts_sha256(counts: Counts) -> str:
    """Hash a counts matrix: SHA-256 over its shape, dtype and C-order bytes, as hex."""
    digest = hashlib.sha256(f"{counts.shape}{counts.dtype.str}".encode())
    digest.update(np.ascontiguousarray(counts).tobytes())
    return digest.hexdigest()


def rao_wu_factors(sizes: Sequence[int]) -> Integers:
    """Integer weight of one draw of each task when n - 1 of n are drawn; (n_tasks,) int64.

    With n - 1 draws the rescaled weight of a task is n / (n - 1) times its count (Rao & Wu 1988, m = n - 1). All
    weights are multiplied by the least common multiple of the n - 1 and divided by their greatest common divisor: a ratio
    does not see a common multiplier, and integers stay exact. Equal cells therefore all get 1. A cell of one task,
    which `resample_counts` keeps at count 1, has the weight 1 before scaling. Raises `DesignError` for empty cells
    or where the sizes need weights beyond 2**53.
    """
    _check_sizes(sizes)
    multiple = math.lcm(*(max(size - 1, 1) for size in sizes))
    scaled = [multiple * size // (size - 1) if size > 1 else multiple for size in sizes]
    shared = math.gcd(*scaled)
    factors = [factor // shared for factor in scaled]
    if max(factors) >= EXACT_LIMIT:
        raise DesignError(
            f"cell sizes {sorted(set(sizes))} need Rao-Wu weights beyond 2**53; use fewer distinct sizes."
        )
    return np.repeat(np.array(factors, dtype=np.int64), sizes)


def resampled_sums(values: npt.ArrayLike, counts: Counts, *, factors: npt.ArrayLike | None = None) -> Floats:
    """Sum the drawn tasks' values in every iteration; values (..., n_tasks) integers -> (..., iterations) float64.

    `factors`: (n_tasks,) integers from `rao_wu_factors`, or None for 1. Every product and partial sum is an integer
    below 2**53, which float64 holds exactly: no order of summation, BLAS kernel or thread count can change a bit.
    Raises `DesignError` for other than integers, a wrong length, or values that could pass that bound.
    """
    columns = _integers("values", values)
    if columns.ndim == 0 or columns.shape[-1] != counts.shape[1]:
        raise DesignError(f"values of shape {columns.shape} for {counts.shape[1]} tasks; the last axis is the task.")
    weights = np.ones(counts.shape[1], dtype=np.int64) if factors is None else _integers("factors", factors)
    if weights.shape != (counts.shape[1],):
        raise DesignError(f"factors of shape {weights.shape} for {counts.shape[1]} tasks; give one for each task.")
    max_draws = int(counts.sum(axis=1, dtype=np.int64).max(initial=0))
    bound = magnitude(columns) * magnitude(weights) * max_draws
    if bound >= EXACT_LIMIT:
        raise DesignError(f"sums could reach {bound}, beyond 2**53, and would be rounded; give smaller units.")
    return np.asarray((columns * weights).astype(np.float64) @ counts.T.astype(np.float64))


def ratio_draws(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike, counts: Counts, *, factors: npt.ArrayLike | None = None
) -> Floats:
    """Resample a ratio of sums, numerator and denominator together; (..., n_tasks) each -> (..., iterations) float64.

    Not-a-number where the denominator resamples to 0. The same `counts` for two conditions makes their draws paired.
    Errors and `factors` as in `resampled_sums`; numerator and denominator may differ in shape if they broadcast.
    """
    sides = np.broadcast_arrays(_integers("values", numerator), _integers("values", denominator))
    above, below = resampled_sums(np.stack(sides), counts, factors=factors)
    draws: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return draws


def magnitude(array: Integers) -> int:
    """The largest absolute value; 0 where there is none."""
    # Not np.abs: the smallest int64 has no positive twin.
    return max(int(array.max(initial=0)), -int(array.min(initial=0)))


def _check_sizes(sizes: Sequence[int]) -> None:
    wrong = [size for size in sizes if not (_is_whole(size) and 1 <= size <= _MAX_CELL)]
    if wrong or not sizes:
        raise DesignError(f"cell sizes {wrong or 'none'}; a cell has 1 to {_MAX_CELL} tasks.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _integers(what: str, values: npt.ArrayLike) -> Integers:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64):
        raise DesignError(f"{what} are {array.dtype}; only integers up to 64 bits (signed) are summed exactly.")
    return array.astype(np.int64, copy=False)
