"""Tasks: what a key may say, and that prompt and key are two things."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from pydantic import ValidationError

from surface.audit.describe import describe_task
from surface.task import ArgumentRule, CellFile, TaskKey, TaskPrompt, chain
from tests.toys import CHAIN, CURED, DESTROYS, RETRIED, TASKS

STEPS = [step.model_dump() for step in CURED.key.steps]
FAULT = CURED.key.faults[0].model_dump()


def test_a_prompt_holds_what_the_world_may_see_and_nothing_else() -> None:
    assert set(TaskPrompt.model_fields) == {"id", "language", "query"}
    with pytest.raises(ValidationError, match="Extra inputs"):
        TaskPrompt.model_validate({"id": "dev-en-01", "language": "en", "query": "q", "plan": []})


@pytest.mark.parametrize("change", [{"id": "dev_en_01"}, {"id": "dev-en-1"}, {"language": ""}, {"query": ""}], ids=str)
def test_a_prompt_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TaskPrompt.model_validate({"id": "dev-en-01", "language": "en", "query": "q", **change})


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"literal": 1, "observed": "a.b"},
        {"observed": "a.b", "unit_of": "a.b"},
        {"observed": "a.b", "said": "x"},
        {"observed": "a"},
    ],
)
def test_an_argument_has_exactly_one_source(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ArgumentRule.model_validate(rule)


def test_a_rule_knows_the_step_and_field_it_refers_to() -> None:
    assert ArgumentRule(observed="find.order_id").reference == ("find", "order_id")
    assert ArgumentRule(unit_of="ship.mass").reference == ("ship", "mass")
    assert ArgumentRule(literal=False).reference is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"steps": []}, "at least 1"),
        ({"steps": [STEPS[0], STEPS[0]]}, "not unique"),
        ({"steps": [STEPS[2]]}, "unknown step 'find'"),
        ({"steps": STEPS}, "role corrective"),
        ({"steps": STEPS[:1], "faults": [{**FAULT, "step": "find"}]}, "unknown steps"),
        ({"steps": STEPS, "faults": [{**FAULT, "cured_by": ["find"]}]}, "role corrective"),
        ({"steps": STEPS[:1], "faults": [{"step": "find", "error": "no colon"}]}, "pattern"),
        ({"steps": STEPS[:1], "faults": [{"step": "find", "error": "busy: x", "times": 3}]}, "less than or equal to 2"),
    ],
)
def test_a_key_that_contradicts_itself_is_refused(key: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TaskKey.model_validate(key)


def test_corrective_actions_that_need_each_other_are_refused_with_their_circle() -> None:
    find, renew, ship = STEPS
    again = {**renew, "id": "again"}
    steps, busy = [find, renew, again, ship], "busy: x"
    actions = [("ship", ["renew"]), ("renew", ["again"])]
    faults = [{"step": step, "error": busy, "cured_by": cured_by} for step, cured_by in actions]
    assert len(TaskKey.model_validate({"steps": steps, "faults": faults}).faults) == 2
    with pytest.raises(ValidationError, match=r"steps that wait for each other: .*again needs|needs again"):
        TaskKey.model_validate({"steps": steps, "faults": [*faults, {**faults[0], "step": "again"}]})
    with pytest.raises(ValidationError, match="steps that wait for each other: renew needs renew"):
        TaskKey.model_validate({"steps": STEPS, "faults": [{**faults[0], "step": "renew"}]})


def test_required_routes_are_sorted_each_once() -> None:
    assert CURED.key.required_routes == ("lease.renew", "shop.find_order", "shop.ship_order")
    twice = TaskKey.model_validate({"steps": [STEPS[0], {**STEPS[0], "id": "again"}]})
    assert twice.required_routes == ("shop.find_order",) and chain(twice) == ["shop.find_order"] * 2


def test_the_load_is_required_steps_plus_scheduled_failures() -> None:
    assert [task.key.load for task in (CHAIN, CURED, RETRIED, DESTROYS)] == [3, 4, 4, 2]


def test_the_error_class_is_the_text_before_the_colon() -> None:
    assert CURED.key.faults[0].error_class == "lease_expired"


def test_a_cell_holds_tasks_of_its_own_language_alone() -> None:
    cell = {"stratum": "two_step_state_dependency", "language": "de", "tasks": [CHAIN.model_dump()]}
    with pytest.raises(ValidationError, match="another language"):
        CellFile.model_validate(cell)
    assert CellFile.model_validate({**cell, "language": "en"}).tasks == (CHAIN,)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.prompt.id)
def test_a_task_in_words_names_every_step_fault_and_authorisation(task: Any) -> None:
    text = "\n".join(describe_task(task))
    assert task.prompt.query in text
    assert all(step.route in text and step.role in text for step in task.key.steps)
    assert all(repr(fault.error) in text for fault in task.key.faults)
    assert all(route in text for route in task.key.authorised)
    assert ("nothing destructive" in text) == (not task.key.authorised)


def test_two_faults_of_one_step_with_one_error_are_refused() -> None:
    fault = {"step": "ship", "error": "busy: x"}
    with pytest.raises(ValidationError, match="nobody could tell which"):
        TaskKey.model_validate({"steps": [STEPS[0], STEPS[2]], "faults": [fault, {**fault, "times": 2}]})


def test_the_chain_of_a_plan_does_not_depend_on_how_it_is_written() -> None:
    steps = [step.model_dump() for step in CHAIN.key.steps]
    chains = {tuple(chain(TaskKey.model_validate({"steps": list(order)}))) for order in permutations(steps)}
    assert chains == {("shop.find_order", "shop.ship_order", "crane.lift")}
