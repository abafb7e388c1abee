"""Nested cross-validation: no task takes part in fitting the weights it is ranked with; tuning gives the same bytes again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import pytest

from gates.tuning.design import FeatureDesign, Penalty
from gates.tuning.report import Extent, tune
from gates.tuning.search import Fold, choose, out_of_fold, outer_folds, recall, refitted
from preregistration.protocol import load_protocol
from schemarouter.catalog.views import VIEWS
from schemarouter.files import pretty_json
from schemarouter.retrieval.typed import WeightsFile
from surface.loader import load_catalogs, load_surface
from tests.gates.tuning.worlds import STRONG, WEAK, altered, design
from tests.toys import LARGE, SMALL

pytestmark = pytest.mark.slow

GRID = (WEAK, STRONG)


@cache
def folds() -> list[Fold]:
    return outer_folds(design(), GRID, 2, 2)


def test_each_task_is_judged_in_exactly_one_fold() -> None:
    judged = [task for fold in folds() for task in fold.tasks]
    assert sorted(judged) == design().tasks
    hits = out_of_fold(design(), folds())
    assert sorted(hits) == [SMALL, LARGE]
    for by_decision_point in hits.values():
        assert sorted(by_decision_point) == list(range(len(design().decision_points)))


def parts(fold: Fold) -> tuple[object, ...]:
    return fold.tasks, fold.tried, fold.picked, fold.weights.as_weights()


def test_folds_are_the_same_every_time_and_whatever_the_order_of_tasks() -> None:
    again = FeatureDesign.__new__(FeatureDesign)
    again.__dict__.update(design().__dict__)
    again.tasks = list(reversed(design().tasks))
    found = outer_folds(again, GRID, 2, 2)
    expected = [(set(fold.tasks), *parts(fold)[1:]) for fold in folds()]
    assert [(set(fold.tasks), *parts(fold)[1:]) for fold in found] == expected


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_held_out_task_holds_leaves_its_folds_weights_as_they_are(index: int) -> None:
    fold = folds()[index]
    found = outer_folds(altered({fold.tasks[0]}), GRID, 2, 2)
    assert parts(found[index]) == parts(fold)
    assert found[1 - index].weights.as_weights() != folds()[1 - index].weights.as_weights()


def test_a_penalty_is_tried_on_every_decision_point_once_and_the_best_is_picked() -> None:
    tried, picked = choose(design(), design().tasks, GRID, 2)
    assert [item.penalty for item in tried] == list(GRID)
    assert {item.decision_points for item in tried} == {len(design().decision_points)}
    best = max(item.hits for item in tried)
    assert picked == max((item.penalty for item in tried if item.hits == best), key=lambda penalty: penalty.shared)


def test_inner_folds_too_rank_no_task_with_weights_fitted_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[set[str]] = []
    judged: list[set[str]] = []

    def fit(self: FeatureDesign, tasks: Collection[str], penalty: Penalty) -> None:
        fitted.append(set(tasks))

    def judge(self: FeatureDesign, size: int, tasks: Collection[str], weights: None) -> dict[int, bool]:
        judged.append(set(tasks))
        return {}

    monkeypatch.setattr(FeatureDesign, "fitted", fit)
    monkeypatch.setattr(FeatureDesign, "hits", judge)
    tasks = design().tasks[:5]
    choose(design(), tasks, GRID, 2)
    assert len(fitted) == len(judged) == 4
    for seen, held in zip(fitted, judged, strict=True):
        assert held
        assert seen == set(tasks) - held


def test_the_stronger_penalty_wins_a_tie_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeatureDesign, "hits", lambda self, size, tasks, weights: dict.fromkeys(range(3), True))
    for grid in (GRID, GRID[::-1]):
        assert choose(design(), design().tasks, grid, 2)[1] == STRONG


def test_ablation_keeps_folds_and_penalties_and_leaves_evidence_out() -> None:
    for fold, other in zip(folds(), refitted(design(), folds(), ["error"]), strict=True):
        assert (other.tasks, other.tried, other.picked) == (fold.tasks, fold.tried, fold.picked)
        assert {row["retry"] for row in other.weights.as_weights().score.values()} == {0.0}
    assert [parts(fold) for fold in refitted(design(), folds(), [])] == [parts(fold) for fold in folds()]


def test_recall_counts_decision_points_of_the_phase_and_language_asked_for() -> None:
    hits = {number: number % 3 > 0 for number in range(len(design().decision_points))}
    opening, later = (recall(design(), hits, opening=first) for first in (True, False))
    assert opening.decision_points == len(design().tasks)
    assert opening.decision_points + later.decision_points == len(hits)
    assert opening.hits + later.hits == sum(hits.values())
    assert later.value == later.hits / later.decision_points
    low, high = later.interval.low, later.interval.high
    assert low is not None and high is not None and low <= later.hits / later.decision_points <= high
    assert recall(design(), hits, opening=True, among=design().tasks) == opening
    assert recall(design(), hits, opening=True, among=()).value is None


def test_tuning_is_the_same_bytes_with_one_process_and_with_two_and_records_all_it_did() -> None:
    protocol, whole = load_protocol("development"), load_surface("development")
    size = min(protocol.catalogs)
    statistics = protocol.statistics.model_copy(update={"iterations": 50})
    protocol = protocol.model_copy(update={"catalogs": (size,), "statistics": statistics})
    tasks = whole.tasks[::9]
    assert len(tasks) == 10
    surface = replace(whole, tasks=tasks, strata={task.prompt.id: whole.strata[task.prompt.id] for task in tasks})
    extent = Extent(grid=(WEAK,), outer=2, inner=2, ablation=False)
    one, again = (tune(protocol, [surface], load_catalogs([size]), extent, workers=count) for count in (1, 2))
    assert pretty_json(one.record) == pretty_json(again.record)
    weights = [WeightsFile(views=dict(found.weights)).model_dump(mode="json") for found in (one, again)]
    assert pretty_json(weights[0]) == pretty_json(weights[1])
    assert sorted(one.record["views"]) == sorted(VIEWS)
    for view in one.record["views"].values():
        assert sorted(task for fold in view["folds"] for task in fold["tasks"]) == sorted(t.prompt.id for t in tasks)
        assert "without" not in view
        assert view["picked"] == {"shared": WEAK.shared, "deviation": WEAK.deviation}
        assert set(view["out_of_fold"][str(size)]["opening"]) == {"all", *protocol.languages}
        assert view["out_of_fold"][str(size)]["opening"]["all"]["decision_points"] == len(tasks)
