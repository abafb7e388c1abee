"""The plan: a fixed order, whatever was asked for in which; what contradicts itself is refused."""

from __future__ import annotations

from typing import Any

import pytest

from conditions.running.plan import Plan, make_plan
from conditions.running.plan import plan_of as stored_plan
from schemarouter.errors import InvalidRunError, UsageError
from surface.loader import Surface
from tests.conditions.running.test_execute import PROTOCOL, plan_of
from tests.toys import (
    SURFACE,
    changed,
)


def test_the_grid_is_every_task_under_every_catalog_and_condition_in_a_fixed_order() -> None:
    units = plan_of().units
    assert len(units) == len({unit.episode_id for unit in units}) == 4 * 2 * 5
    assert [unit.episode_id for unit in units[:3]] == [
        "toy-en-01/12/SR-5-STATIC", "toy-en-01/12/SR-PROGRESSIVE-STATIC", "toy-en-01/12/SR-5-STATE-AWARE",
    ]  # fmt: skip
    assert [unit.catalog for unit in units] == [12] * 20 + [36] * 20


def test_the_order_in_which_parts_are_named_changes_nothing() -> None:
    one = plan_of(tasks=["toy-en-02", "toy-en-01"], conditions=["ORACLE", "FULL"], catalogs=[36, 12])
    other = plan_of(tasks=["toy-en-01", "toy-en-02"], conditions=["FULL", "ORACLE"])
    assert one == other and one.fingerprint == other.fingerprint != plan_of().fingerprint


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"tasks": ["toy-en-1"]}, "unknown task 'toy-en-1'. Did you mean 'toy-en-01'"),
        ({"catalogs": [100]}, "unknown catalog '100'"),
        ({"conditions": ["full"]}, "unknown condition 'full'"),
        ({"limit": 0}, "whole number from 1"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(part: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(**part)
    assert message in str(caught.value)


def test_of_many_tasks_the_nearest_ten_are_listed_and_how_many_there_are() -> None:
    task = SURFACE.tasks[0]
    prompts = [task.prompt.model_copy(update={"id": f"toy-en-{number:02}"}) for number in range(60)]
    many = Surface("development", tuple(task.model_copy(update={"prompt": prompt}) for prompt in prompts), {})
    with pytest.raises(UsageError) as caught:
        make_plan(PROTOCOL, many, tasks=["toy-en-07x"])
    message = str(caught.value)
    assert "Did you mean 'toy-en-07'" in message and "Known: 60," in message
    assert message.count("toy-en-") == 2 + 10


@pytest.mark.parametrize(
    "change",
    [
        {"limit": 3},
        {"episodes": 39},
        {"tasks": ("toy-en-01",)},
        {"fingerprint": "0" * 64},
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    assert stored_plan(plan_of().document(), "run.json") == plan_of()
    with pytest.raises(InvalidRunError, match=r"run\.json: the plan contradicts itself"):
        stored_plan(changed(plan_of().document(), **change), "run.json")


def test_a_plan_of_a_condition_that_is_not_registered_is_refused_by_name() -> None:
    changed_plan = changed(plan_of().document(), conditions=("SECRET",))
    with pytest.raises(InvalidRunError, match=r"run\.json: unknown condition 'SECRET'.*registered here"):
        stored_plan(changed_plan, "run.json")


@pytest.mark.parametrize("limit", [40, 41, 10**9])
def test_a_limit_no_smaller_than_the_grid_is_left_out(limit: int) -> None:
    assert plan_of(limit=limit) == plan_of() and plan_of(limit=39).limit == 39
    assert plan_of(conditions=["FULL"], limit=8).limit is None


@pytest.mark.parametrize("limit", [40, 41, 0, -1, -39])
def test_a_stored_limit_that_no_plan_has_is_refused(limit: int) -> None:
    plan = Plan(plan_of().tasks, plan_of().catalogs, plan_of().conditions, limit)
    with pytest.raises(InvalidRunError, match=rf"run\.json: the plan has the limit {limit} where the grid has 40"):
        stored_plan(plan.document(), "run.json")


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"tasks": []}, "tasks is empty"),
        ({"catalogs": ()}, "catalogs is empty"),
        ({"tasks": "toy-en-01"}, r"write tasks=\['toy-en-01'\]"),
        ({"catalogs": 12}, r"write catalogs=\[12\]"),
        ({"catalogs": ["12"]}, "unknown catalog '12'"),
    ],
)
def test_a_part_that_is_empty_or_of_another_type_is_refused(part: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(**part)
