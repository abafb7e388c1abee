"""Nested cross-validation over tasks: penalties are chosen inside, features are read outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.intervals import Interval, logit_t
from gates.tuning.design import Design, FittedWeights, Penalty, folds_of

GRID: tuple[Penalty, ...] = tuple(Penalty(shared, 10 * shared) for shared in (3e-4, 1e-3, 3e-3))
OUTER, INNER = 5, 4


@dataclass(frozen=True)
class Tried:
    """One penalty and how often, out of fold, the next route was among the Top-k."""

    penalty: Penalty
    hits: int
    decision_points: int


@dataclass(frozen=True)
class Fold:
    """One outer fold: what was tried inside, what was picked, and the weights that its tasks are judged by."""

    tasks: tuple[str, ...]
    tried: tuple[Tried, ...]
    picked: Penalty
    weights: FittedWeights


def choose(
    design: Design, tasks: Collection[str], grid: Sequence[Penalty], inner: int
) -> tuple[tuple[Tried, ...], Penalty]:
    """Try every penalty by cross-validation within `tasks` on the largest catalog; the stronger one wins a tie."""
    fold_of = folds_of(tasks, inner)
    tried = []
    for penalty in grid:
        hits: dict[int, bool] = {}
        for fold in range(inner):
            held = {task for task, place in fold_of.items() if place == fold}
            weights = design.fitted(set(tasks) - held, penalty)
            hits |= design.hits(design.largest, held, weights)
        tried.append(Tried(penalty, sum(hits.values()), len(hits)))
    best = max(tried, key=lambda item: (item.hits, item.penalty.shared))
    return tuple(tried), best.penalty


def outer_folds(design: Design, grid: Sequence[Penalty] = GRID, outer: int = OUTER, inner: int = INNER) -> list[Fold]:
    """The outer folds, each with weights that have seen none of its tasks."""
    fold_of = folds_of(design.tasks, outer)
    folds = []
    for fold in range(outer):
        held = tuple(task for task in design.tasks if fold_of[task] == fold)
        seen = [task for task in design.tasks if fold_of[task] != fold]
        tried, picked = choose(design, seen, grid, inner)
        folds.append(Fold(held, tried, picked, design.fitted(seen, picked)))
    return folds


def refitted(design: Design, folds: Sequence[Fold], without: Collection[str]) -> list[Fold]:
    """The same folds and penalties with kinds of evidence left out."""
    seen = [set(design.tasks) - set(fold.tasks) for fold in folds]
    return [
        Fold(fold.tasks, fold.tried, fold.picked, design.fitted(tasks, fold.picked, without))
        for fold, tasks in zip(folds, seen, strict=True)
    ]


@dataclass(frozen=True)
class Recall:
    """How often the next required route was among the Top-k, with a logit-t interval over tasks within strata."""

    hits: int
    decision_points: int
    interval: Interval

    @property
    def value(self) -> float | None:
        """The share, None without decision_points."""
        return self.hits / self.decision_points if self.decision_points else None


def out_of_fold(design: Design, folds: Sequence[Fold]) -> dict[int, dict[int, bool]]:
    """By catalog size, for every point whether it is a hit under the weights that have not seen its task."""
    found: dict[int, dict[int, bool]] = {}
    for size in design.sizes:
        found[size] = {}
        for fold in folds:
            found[size] |= design.hits(size, fold.tasks, fold.weights)
    return found


def recall(design: Design, hits: Mapping[int, bool], *, opening: bool, language: str = "") -> Recall:
    """Recall over the opening decision points, or over all later ones; of one language where one is named."""
    tasks = list(design.tasks)
    place = {task: number for number, task in enumerate(tasks)}
    good = np.zeros(len(tasks), np.int64)
    every = np.zeros(len(tasks), np.int64)
    strata: dict[str, int] = {}
    cell = np.zeros(len(tasks), np.int64)
    for number, point in enumerate(design.decision_points):
        cell[place[point.task]] = strata.setdefault(point.stratum, len(strata))
        if (point.turn == 0) is opening and language in ("", point.language):
            good[place[point.task]] += hits[number]
            every[place[point.task]] += 1
    return Recall(int(good.sum()), int(every.sum()), logit_t(good, every, cell, design.protocol.statistics.level))
