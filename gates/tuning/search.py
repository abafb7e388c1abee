"""Nested cross-validation over groups of tasks: the inner folds choose a penalty, the outer ones estimate recall."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.intervals import Interval, logit_t
from gates.tuning.design import FeatureDesign, FittedWeights, Penalty, folds_of

GRID: tuple[Penalty, ...] = tuple(Penalty(shared, 10 * shared) for shared in (3e-4, 1e-3, 3e-3))
OUTER, INNER = 5, 4


@dataclass(frozen=True)
class PenaltyTrial:
    """One penalty tried: at how many decision points, out of fold, the next route was among the Top-k."""

    penalty: Penalty
    hits: int
    decision_points: int


@dataclass(frozen=True)
class Fold:
    """One outer fold: the penalties tried inside, the one picked, and the weights that its tasks are ranked with."""

    tasks: tuple[str, ...]
    tried: tuple[PenaltyTrial, ...]
    picked: Penalty
    weights: FittedWeights


def choose(
    design: FeatureDesign, tasks: Collection[str], grid: Sequence[Penalty], inner: int
) -> tuple[tuple[PenaltyTrial, ...], Penalty]:
    """Try every penalty by cross-validation within `tasks` on the largest catalog; the stronger one wins a tie."""
    fold_of = folds_of({task: design.groups[task] for task in tasks}, inner)
    tried = []
    for penalty in grid:
        hits: dict[int, bool] = {}
        for fold in range(inner):
            held_out = {task for task in fold_of if fold_of[task] == fold}
            weights = design.fitted(set(tasks) - held_out, penalty)
            hits |= design.hits(design.largest, held_out, weights)
        tried.append(PenaltyTrial(penalty, sum(hits.values()), len(hits)))
    best = max(tried, key=lambda item: (item.hits, item.penalty.shared))
    return tuple(tried), best.penalty


def outer_folds(
    design: FeatureDesign, grid: Sequence[Penalty] = GRID, outer: int = OUTER, inner: int = INNER
) -> list[Fold]:
    """The outer folds, each with weights that have seen none of its tasks."""
    fold_of = folds_of({task: design.groups[task] for task in design.tasks}, outer)
    folds = []
    for fold in range(outer):
        held_out = tuple(task for task in design.tasks if fold_of[task] == fold)
        training = [task for task in design.tasks if fold_of[task] != fold]
        tried, picked = choose(design, training, grid, inner)
        folds.append(Fold(held_out, tried, picked, design.fitted(training, picked)))
    return folds


def refitted(design: FeatureDesign, folds: Sequence[Fold], without: Collection[str]) -> list[Fold]:
    """The same folds and penalties, fitted with groups of features left out."""
    training = [set(design.tasks) - set(fold.tasks) for fold in folds]
    return [
        Fold(fold.tasks, fold.tried, fold.picked, design.fitted(tasks, fold.picked, without))
        for fold, tasks in zip(folds, training, strict=True)
    ]


@dataclass(frozen=True)
class Recall:
    """How often the next required route was among the Top-k, with a logit-t interval over tasks within strata."""

    hits: int
    decision_points: int
    interval: Interval

    @property
    def value(self) -> float | None:
        """The share, None without decision points."""
        return self.hits / self.decision_points if self.decision_points else None


def out_of_fold(design: FeatureDesign, folds: Sequence[Fold]) -> dict[int, dict[int, bool]]:
    """By catalog size and decision point, whether it is a hit under the weights that were fitted without its task."""
    hits: dict[int, dict[int, bool]] = {}
    for size in design.sizes:
        hits[size] = {}
        for fold in folds:
            hits[size] |= design.hits(size, fold.tasks, fold.weights)
    return hits


def recall(
    design: FeatureDesign, hits: Mapping[int, bool], *, opening: bool, among: Collection[str] | None = None
) -> Recall:
    """Recall over the opening decision points, or over all later ones; of some tasks where they are named."""
    tasks = list(design.tasks)
    task_index = {task: index for index, task in enumerate(tasks)}
    numerator = np.zeros(len(tasks), np.int64)
    denominator = np.zeros(len(tasks), np.int64)
    strata: dict[str, int] = {}
    cell_index = np.zeros(len(tasks), np.int64)
    for number, point in enumerate(design.decision_points):
        task = task_index[point.task]
        cell_index[task] = strata.setdefault(point.stratum, len(strata))
        if (point.turn == 0) is opening and (among is None or point.task in among):
            numerator[task] += hits[number]
            denominator[task] += 1
    interval = logit_t(numerator, denominator, cell_index, design.protocol.statistics.level)
    return Recall(int(numerator.sum()), int(denominator.sum()), interval)
