"""Tunes the weights for every catalog view, and records the penalties tried, the folds, the choice and out-of-fold recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from gates.intervals import Interval
from gates.measures import BY_NAME
from gates.statistics import Statistics
from gates.tuning.conditions import conditions_out_of_fold
from gates.tuning.design import GROUPS, FeatureDesign, Penalty
from gates.tuning.search import (
    GRID,
    INNER,
    OUTER,
    Fold,
    PenaltyTrial,
    choose,
    out_of_fold,
    outer_folds,
    recall,
    refitted,
)
from preregistration.names import PROGRESSIVE, STATE_AWARE
from preregistration.protocol import Protocol
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import VIEWS, CatalogView
from schemarouter.retrieval.typed import Weights
from surface.loader import Surface, together

_ROUNDED = 6


@dataclass(frozen=True)
class Extent:
    """How much is tried: the grid of penalties, outer and inner folds, and whether each group of features is left out once."""

    grid: tuple[Penalty, ...] = GRID
    outer: int = OUTER
    inner: int = INNER
    ablation: bool = True


@dataclass(frozen=True)
class Tuned:
    """The weights picked for each view, and the record of the search."""

    weights: Mapping[str, Weights]
    record: Mapping[str, Any]


def tune(
    protocol: Protocol, surfaces: Sequence[Surface], catalogs: Mapping[int, Catalog], extent: Extent, *, workers: int
) -> Tuned:
    """Choose weights for both views from all tasks of some surfaces; the same to the byte whatever the number of workers."""
    work = partial(_tune_view, protocol, tuple(surfaces), dict(catalogs), extent)
    if workers > 1:
        with ProcessPoolExecutor(min(workers, len(VIEWS)), mp_context=get_context("spawn")) as pool:
            tuned = list(pool.map(work, VIEWS))
    else:
        tuned = [work(view) for view in VIEWS]
    record = {
        "schema_version": 1,
        "surfaces": {surface.name: surface.fingerprint for surface in surfaces},
        "catalogs": {str(size): catalog.fingerprint for size, catalog in sorted(catalogs.items())},
        "tasks": sum(len(surface.tasks) for surface in surfaces),
        "grid": [asdict(penalty) for penalty in extent.grid],
        "folds": {"outer": extent.outer, "inner": extent.inner},
        "views": {view: view_record for view, (_, view_record) in zip(VIEWS, tuned, strict=True)},
    }
    return Tuned({view: weights for view, (weights, _) in zip(VIEWS, tuned, strict=True)}, record)


def _parts_of(surfaces: Sequence[Surface], languages: Sequence[str]) -> dict[str, frozenset[str]]:
    """The tasks of each surface, where there are several, and of each language, by name."""
    tasks = [task.prompt for surface in surfaces for task in surface.tasks]
    by_surface = {surface.name: frozenset(surface.by_id) for surface in surfaces} if len(surfaces) > 1 else {}
    return by_surface | {name: frozenset(task.id for task in tasks if task.language == name) for name in languages}


def _tune_view(
    protocol: Protocol,
    surfaces: Sequence[Surface],
    catalogs: Mapping[int, Catalog],
    extent: Extent,
    view: CatalogView,
) -> tuple[Weights, dict[str, Any]]:
    surface, parts = together(*surfaces), _parts_of(surfaces, protocol.languages)
    design = FeatureDesign(protocol, surface, catalogs, view)
    folds = outer_folds(design, extent.grid, extent.outer, extent.inner)
    tried, picked = choose(design, design.tasks, extent.grid, extent.outer)
    weights = design.fitted(design.tasks, picked).as_weights()
    record: dict[str, Any] = {
        "folds": [_fold(fold, design) for fold in folds],
        "tried_on_all": [_tried(item) for item in tried],
        "picked": asdict(picked),
        "out_of_fold": _recall(design, folds, parts),
        "conditions_out_of_fold": _conditions(protocol, surface, catalogs, folds, view, parts),
    }
    if extent.ablation:
        record["without"] = {group: _recall(design, refitted(design, folds, [group]), {}) for group in GROUPS}
    return weights, record


def _tried(item: PenaltyTrial) -> dict[str, Any]:
    return {**asdict(item.penalty), "hits": item.hits, "decision_points": item.decision_points}


def _fold(fold: Fold, design: FeatureDesign) -> dict[str, Any]:
    hits = design.hits(design.largest, fold.tasks, fold.weights)
    return {
        "tasks": list(fold.tasks),
        "tried": [_tried(item) for item in fold.tried],
        "picked": asdict(fold.picked),
        "hits": sum(hits.values()),
        "decision_points": len(hits),
    }


def _recall(design: FeatureDesign, folds: Sequence[Fold], parts: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Out-of-fold Recall@k of a next required route over all decision points, by size, phase and part."""
    by_size: dict[str, Any] = {}
    for size, hits in out_of_fold(design, folds).items():
        by_size[str(size)] = {}
        for name, opening in (("opening", True), ("later", False)):
            rows = {"all": recall(design, hits, opening=opening)}
            rows |= {name: recall(design, hits, opening=opening, among=tasks) for name, tasks in parts.items()}
            by_size[str(size)][name] = {
                key: {"hits": row.hits, "decision_points": row.decision_points, **_interval(row.interval)}
                for key, row in rows.items()
            }
    return by_size


def _interval(interval: Interval) -> dict[str, Any]:
    ends = [None if end is None else round(end, _ROUNDED) for end in (interval.low, interval.high)]
    return {"interval": ends, "method": interval.method}


def _conditions(
    protocol: Protocol,
    surface: Surface,
    catalogs: Mapping[int, Catalog],
    folds: Sequence[Fold],
    view: CatalogView,
    parts: Mapping[str, frozenset[str]],
) -> dict[str, Any]:
    """Recall of the state-aware condition and recovery against the progressive one, in the experiment's own loop."""
    rows = conditions_out_of_fold(protocol, surface, catalogs, folds, view)
    statistics = Statistics(
        {task.prompt.id: surface.cell(task.prompt.id) for task in surface.tasks}, protocol.statistics
    )
    groups = {"all": rows}
    groups |= {f"catalog {size}": [row for row in rows if row.catalog == size] for size in catalogs}
    groups |= {name: [row for row in rows if row.task in tasks] for name, tasks in parts.items()}
    by_group: dict[str, Any] = {}
    for name, group in groups.items():
        aware = [row for row in group if row.condition == STATE_AWARE]
        progressive = [row for row in group if row.condition == PROGRESSIVE]
        difference = statistics.of_difference(aware, progressive, BY_NAME["initial_miss_recovery"])["rao_wu"]
        by_group[name] = {
            measure: {
                condition: _share(statistics, condition_rows, measure)
                for condition, condition_rows in (("state_aware", aware), ("progressive", progressive))
            }
            for measure in ("task_pass", "next_required_recall", "initial_miss_recovery")
        }
        by_group[name]["recovery_difference"] = _interval(difference)
    return by_group


def _share(statistics: Statistics, rows: list[Any], measure: str) -> dict[str, Any]:
    numerator, denominator = statistics.sums(rows, BY_NAME[measure])
    interval = statistics.of_measure(rows, BY_NAME[measure])["logit_t"]
    return {"numerator": int(numerator.sum()), "denominator": int(denominator.sum()), **_interval(interval)}
