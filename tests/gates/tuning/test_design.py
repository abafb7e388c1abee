"""The design: folds that depend on ids alone, features as the retriever computes them, weights from the named tasks alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.tuning.decision_points import all_decision_points
from gates.tuning.design import GROUPS, FittedWeights, folds_of, groups_of, no_weights
from schemarouter.catalog.views import VIEWS, CatalogView, viewed
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.typed import build_typed
from surface.loader import Surface
from tests.gates.tuning.worlds import STRONG, WEAK, altered, design, many
from tests.strategies import LAWS
from tests.toys import CATALOG, CATALOGS, LARGE, SMALL, SURFACE, TASKS

pytestmark = pytest.mark.slow


@LAWS
@given(
    groups=st.dictionaries(st.text("abc-1", max_size=5), st.text("xyz", max_size=2), max_size=20),
    count=st.integers(1, 6),
)
def test_each_task_is_in_exactly_one_fold_with_its_whole_group(groups: dict[str, str], count: int) -> None:
    folds = folds_of(groups, count)
    assert set(folds) == set(groups) and set(folds.values()) <= set(range(count))
    of_group = {group: {folds[task] for task in groups if groups[task] == group} for group in groups.values()}
    assert all(len(found) == 1 for found in of_group.values())
    sizes = Counter(fold for (fold,) in of_group.values())
    assert max(sizes.values(), default=0) - min((sizes[fold] for fold in range(count)), default=0) <= 1
    assert folds_of(dict(reversed(groups.items())), count) == folds


def test_folds_are_the_same_in_every_process() -> None:
    alone = {name: name for name in (f"dev-en-{n:02d}" for n in range(1, 6))}
    assert folds_of(alone, 3) == {
        "dev-en-01": 0, "dev-en-02": 0, "dev-en-03": 2, "dev-en-04": 1, "dev-en-05": 1
    }  # fmt: skip


def test_tasks_of_one_set_of_routes_or_of_one_family_are_of_one_group() -> None:
    tasks = [task.model_copy(update={"prompt": task.prompt.model_copy(update={"id": f"toy-en-{n}{k}"})})
             for n in (0, 1) for k, task in enumerate(TASKS)]  # fmt: skip
    strata = {task.prompt.id: "x" for task in tasks}
    alone = groups_of(Surface("toy", tuple(tasks), strata))
    assert alone == {f"toy-en-{n}{k}": f"toy-en-0{2 if k == 2 else k}" for n in (0, 1) for k in range(len(TASKS))}
    joined = groups_of(Surface("toy", tuple(tasks), strata, {"toy-en-10": "toy-en-01", "toy-en-01": "toy-en-01"}))
    assert {task for task, group in joined.items() if group == "toy-en-00"} == {
        f"toy-en-{n}{k}" for n in (0, 1) for k in (0, 1)
    }


def test_every_group_can_be_left_out_and_has_features_of_its_own() -> None:
    named = [name for features in GROUPS.values() for name in features]
    assert sorted(named) == sorted({*relevance.FEATURES, *flow.FEATURES} - {"relevance"})


def test_decision_points_are_those_of_every_plan_with_what_is_still_to_come() -> None:
    decision_points = all_decision_points(SURFACE, CATALOGS[SMALL], "full")
    chain = [point for point in decision_points if point.task == "toy-en-01"]
    assert [point.coming for point in chain] == [
        ("shop.find_order", "shop.ship_order", "crane.lift"), ("shop.ship_order", "crane.lift"), ("crane.lift",)
    ]  # fmt: skip
    assert chain[0].query == "Send the Blue lamp and lift it. 1"
    assert chain[1].query == chain[1].state.retrieval_query()
    assert [point.ready for point in chain] == [point.coming[:1] for point in chain]
    cured = [point.coming[0] for point in decision_points if point.task == "toy-en-02"]
    assert cured == ["shop.find_order", "shop.ship_order", "lease.renew", "shop.ship_order"]
    retried = [point.coming[0] for point in decision_points if point.task == "toy-en-03"]
    assert retried == ["shop.find_order", *["shop.ship_order"] * 3]


def test_a_decision_point_knows_nothing_of_what_comes_next_but_its_label() -> None:
    for point in all_decision_points(SURFACE, CATALOGS[SMALL], "full"):
        assert len(point.state.executed_registered_route_ids) <= point.turn
        later = {*point.coming} - {*point.state.executed_registered_route_ids}
        assert not any(route in point.query for route in later)


@pytest.mark.parametrize("view", VIEWS)
def test_ranks_of_the_design_are_those_of_the_retriever(view: CatalogView) -> None:
    made = design(view)
    weights = made.fitted(made.tasks, WEAK)
    for size, catalog in CATALOGS.items():
        retriever = build_typed(entries_of(viewed(catalog, view)), weights=weights.as_weights())
        hits = made.hits(size, made.tasks, weights)
        for number, point in enumerate(made.decision_points):
            ids = retriever.rank(point.query, k=99).ids
            index = min(ids.index(route) for route in point.ready)
            assert made.rank_of_next(size, number, weights) == index + 1
            assert hits[number] == (index < made.protocol.conditions.top_k)


def test_ties_are_ranked_by_id() -> None:
    made = design()
    nothing = FittedWeights(np.zeros((3, len(relevance.FEATURES))), np.zeros((3, len(flow.FEATURES))))
    for number, point in enumerate(made.decision_points):
        assert made.rank_of_next(LARGE, number, nothing) == CATALOG.route_ids.index(point.ready[0]) + 1


def test_weights_depend_on_the_tasks_that_were_named_and_on_no_other() -> None:
    held = set(design().tasks[:2])
    seen = [task for task in design().tasks if task not in held]
    one, other = design().fitted(seen, WEAK), altered(held).fitted(seen[::-1], WEAK)
    assert one.as_weights() == other.as_weights()
    assert altered(held).fitted([*held, *seen], WEAK).as_weights() != design().fitted([*held, *seen], WEAK).as_weights()


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_what_is_left_out_weighs_nothing(group: str) -> None:
    weights = design().fitted(design().tasks, WEAK, [group]).as_weights()
    by_name = [
        (name, value)
        for table in (weights.relevance, weights.score)
        for row in table.values()
        for name, value in row.items()
    ]
    assert {value for name, value in by_name if name in GROUPS[group]} == {0.0}
    assert any(value for name, value in by_name if name not in GROUPS[group])


def test_a_stronger_penalty_makes_smaller_weights_and_all_are_kept_to_three_decimals() -> None:
    weak, strong = (design().fitted(design().tasks, penalty) for penalty in (WEAK, STRONG))
    assert np.abs(strong.score).sum() < np.abs(weak.score).sum()
    np.testing.assert_array_equal(np.round(weak.score, 3), weak.score)
    np.testing.assert_array_equal(np.round(weak.relevance, 3), weak.relevance)


def test_features_of_the_design_do_not_depend_on_weights() -> None:
    assert set(no_weights().score["opening"].values()) == {0.0}
    assert design().sizes == [SMALL, LARGE]
    assert design().relevance_features(LARGE, 0).shape == (LARGE, len(relevance.FEATURES))
    assert {task.prompt.id for task in many().tasks} == set(design().tasks)
