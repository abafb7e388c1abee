"""The environment of a task: what is next, faults and corrective actions, refusals, plausible answers to all else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.agents.reference import preferred
from schemarouter.catalog import Capability, matches_type
from schemarouter.state import Call, Observation
from surface.environment import Environment, PlanGuide, plausible_outputs, same_value
from surface.task import Task
from tests.strategies import LAWS
from tests.toys import BUSY, CATALOG, CHAIN, CURED, DESTROYS, RETRIED, TASKS, make_task

FIND = Call("shop.find_order", {"order_name": "Blue lamp"})
SHIP = Call("shop.ship_order", {"order_id": "ord-552"})
RENEW = Call("lease.renew", {"order_id": "ord-552"})
LIFT = Call("crane.lift", {"shipment_id": "shp-31", "load": 2.5, "load_unit": "kg"})
CANCEL = Call("shop.cancel_order", {"order_id": "ord-552"})


def world(task: Task) -> Environment:
    return Environment(task.key, CATALOG, seed_text=task.prompt.id)


def next_id(environment: Environment) -> str | None:
    """The one ready step, or None."""
    ready = [step.id for step in environment.progress.ready_steps()]
    assert len(ready) < 2 and ready == [step.id for step in environment.progress.ready_steps("written")]
    return ready[0] if ready else None


def error_of(observation: Observation) -> str:
    assert observation.outcome == "error" and observation.payload["status"] == "error"
    return str(observation.payload["error"])


# --- the next required route ------------------------------------------------------------------------------------------


def test_the_next_step_is_the_first_incomplete_one_and_none_once_all_are_done() -> None:
    environment = world(CHAIN)
    seen = []
    for call in (FIND, SHIP, LIFT):
        seen.append((next_id(environment), environment.progress.incomplete))
        assert environment.execute(call).outcome == "ran"
    assert seen == [("find", True), ("ship", True), ("lift", True)]
    assert next_id(environment) is None and not environment.progress.incomplete


def test_a_step_called_before_its_values_were_observed_is_refused_and_changes_nothing() -> None:
    environment = world(CHAIN)
    assert environment.execute(SHIP).failed, "the right identifier, but nobody can know it yet"
    assert next_id(environment) == "find" and environment.progress.complete == []


def test_a_later_step_validly_called_early_completes_too() -> None:
    steps = [{**step.model_dump()} for step in CHAIN.key.steps]
    aside = {
        "id": "aside",
        "route": "misc.look_00",
        "role": "latent",
        "arguments": {"order_name": {"literal": "Blue lamp"}},
    }
    environment = world(make_task(9, [*steps, aside]))
    assert environment.execute(Call("misc.look_00", {"order_name": "Blue lamp"})).outcome == "ran"
    assert environment.progress.complete == ["aside"] and next_id(environment) == "find"
    for call in (FIND, SHIP, LIFT):
        environment.execute(call)
    assert environment.progress.complete == ["aside", "find", "ship", "lift"] and next_id(environment) is None


@pytest.mark.parametrize("written", [("one", "two"), ("two", "one")])
def test_a_route_that_two_steps_need_completes_them_by_id_and_the_ready_one_first(written: tuple[str, str]) -> None:
    look = {"route": "misc.look_03", "role": "latent", "arguments": {}}
    first, second = ({**look, "id": step} for step in written)
    environment = world(make_task(9, [first, {**CHAIN.key.steps[0].model_dump()}, second]))
    look_again = Call("misc.look_03", {})
    for call in (look_again, FIND, look_again):
        environment.execute(call)
    assert environment.progress.complete == ["one", "find", "two"]
    waits = [
        {**step, "after": ["find"], "because": "after"} if step["id"] == "one" else step for step in (first, second)
    ]
    environment = world(make_task(9, [*waits, CHAIN.key.steps[0].model_dump()]))
    for call in (look_again, look_again, FIND):
        environment.execute(call)
    assert environment.progress.complete == ["two", "one", "find"] and environment.progress.order_violations == 1


def test_repeating_a_completed_step_answers_the_same_and_completes_nothing_again() -> None:
    environment = world(CHAIN)
    first = environment.execute(FIND)
    assert environment.execute(FIND) == first
    assert environment.progress.complete == ["find"]


def test_arguments_without_a_rule_are_free() -> None:
    environment = world(CHAIN)
    environment.execute(FIND)
    call = Call(SHIP.route_id, {**SHIP.arguments, "carrier": "rail"})
    assert environment.execute(call).outcome == "ran" and "ship" in environment.progress.complete


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_corrective_step_becomes_next_when_its_fault_has_shown_and_then_the_step_passes() -> None:
    environment = world(CURED)
    environment.execute(FIND)
    assert next_id(environment) == "ship", "a corrective step whose fault has not shown is never next"
    assert error_of(environment.execute(SHIP)) == "lease_expired: renew it first"
    assert next_id(environment) == "renew"
    assert environment.execute(SHIP).failed, "retrying alone does not help"
    environment.execute(RENEW)
    assert next_id(environment) == "ship"
    assert environment.execute(SHIP).outcome == "ran"
    assert environment.progress.complete == ["find", "renew", "ship"] and not environment.progress.incomplete


def test_a_corrective_step_done_before_its_fault_shows_prevents_it() -> None:
    environment = world(CURED)
    observations = [environment.execute(call) for call in (FIND, RENEW, SHIP)]
    assert [item.outcome for item in observations] == ["ran"] * 3
    assert environment.progress.shown == set() and not environment.progress.incomplete


def test_a_corrective_step_with_wrong_arguments_takes_no_fault_away() -> None:
    environment = world(CURED)
    environment.execute(FIND)
    assert environment.execute(Call("lease.renew", {"order_id": "ord-1"})).failed
    assert environment.execute(SHIP).failed


def test_of_a_corrective_action_of_several_steps_every_one_is_ready_at_once() -> None:
    steps = [step.model_dump() for step in CURED.key.steps]
    look = {"id": "look", "route": "misc.look_03", "role": "corrective", "arguments": {}}
    fault = {"step": "ship", "error": "stale_revision: fetch it", "cured_by": ["look", "renew"]}
    environment = world(make_task(9, [steps[0], look, *steps[1:]], faults=[fault]))
    seen = []
    for call in (FIND, SHIP, RENEW, Call("misc.look_03", {}), SHIP):
        environment.execute(call)
        seen.append([[step.id for step in environment.progress.ready_steps(order)] for order in ("ready", "written")])
    assert seen == [[["ship"]] * 2, [["look", "renew"], ["look"]], [["look"]] * 2, [["ship"]] * 2, [[]] * 2]


def test_a_fault_of_a_corrective_step_is_corrected_first() -> None:
    steps = [step.model_dump() for step in CURED.key.steps]
    look = {"id": "look", "route": "misc.look_03", "role": "corrective", "arguments": {}}
    faults = [CURED.key.faults[0].model_dump(), {"step": "renew", "error": "locked: look first", "cured_by": ["look"]}]
    environment = world(make_task(9, [*steps, look], faults=faults))
    seen = []
    for call in (FIND, SHIP, RENEW, Call("misc.look_03", {}), RENEW, SHIP):
        environment.execute(call)
        seen.append(next_id(environment))
    assert seen == ["ship", "renew", "look", "renew", "ship", None]


@pytest.mark.parametrize("times", [1, 2])
def test_a_fault_that_passes_on_retry_shows_as_often_as_scheduled(times: int) -> None:
    task = make_task(9, [step.model_dump() for step in RETRIED.key.steps], faults=[{**BUSY, "times": times}])
    environment = world(task)
    environment.execute(FIND)
    outcomes = []
    while environment.progress.incomplete:
        assert next_id(environment) == "ship"
        outcomes.append(environment.execute(SHIP).outcome)
    assert outcomes == ["error"] * times + ["ran"]


def test_a_malformed_try_does_not_use_up_a_scheduled_failure() -> None:
    environment = world(RETRIED)
    environment.execute(FIND)
    environment.execute(Call(SHIP.route_id, {"order_id": "ord-1"}))
    assert [environment.execute(SHIP).outcome for _ in range(3)] == ["error", "error", "ran"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"shipment_id": "shp-32"}, "identifier_mismatch: shipment_id"),
        ({"load": 2500.0}, "quantity_mismatch: load"),
        ({"load_unit": "t"}, "argument_rejected: load_unit"),
    ],
)
def test_a_required_step_refuses_a_wrong_identifier_quantity_or_value(change: dict[str, Any], error: str) -> None:
    environment = world(CHAIN)
    environment.execute(FIND)
    environment.execute(SHIP)
    assert error_of(environment.execute(Call(LIFT.route_id, {**LIFT.arguments, **change}))).startswith(error)
    assert next_id(environment) == "lift"
    assert environment.execute(LIFT).outcome == "ran"


@pytest.mark.parametrize("name", ["blue lamp", "Blue lamp ", "Blue"])
def test_a_literal_is_matched_exactly(name: str) -> None:
    environment = world(CHAIN)
    assert environment.execute(Call("shop.find_order", {"order_name": name})).failed
    assert next_id(environment) == "find"


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        (2, 2.0, True),
        (2.5, 2, False),
        (True, 1, False),
        (1, True, False),
        ("2", 2, False),
        (False, False, True),
        (None, None, True),
    ],
)
def test_values_are_the_same_by_json_type_and_value_an_integer_being_a_number(
    given: object, expected: object, same: bool
) -> None:
    assert same_value(given, expected) is same


# --- what is answered -------------------------------------------------------------------------------------------------


def test_a_required_step_answers_its_outputs_and_fills_the_rest_plausibly() -> None:
    environment = world(CHAIN)
    environment.execute(FIND)
    payload = environment.execute(SHIP).payload
    assert payload["shipment_id"] == "shp-31" and payload["mass"] == 2.5
    assert type(payload["fast"]) is bool and set(payload) == {"shipment_id", "mass", "fast"}


def test_a_registered_route_outside_the_plan_answers_plausibly_and_advances_nothing() -> None:
    environment = world(CHAIN)
    observation = environment.execute(Call("misc.look_00", {"order_name": "Blue lamp"}))
    assert observation.outcome == "ran" and set(observation.payload) == {"tag_00_id", "match_count"}
    assert environment.progress.complete == []


@LAWS
@given(
    st.sampled_from(CATALOG.route_ids),
    st.text("abc", max_size=3),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 5)),
)
def test_plausible_values_are_typed_registered_and_the_same_every_time(route: str, seed: str, arguments: Any) -> None:
    capability = CATALOG[route]
    values = plausible_outputs(capability, seed, arguments)
    assert values == plausible_outputs(capability, seed, dict(reversed(arguments.items())))
    assert set(values) == set(capability.outputs_by_name)
    for name, value in values.items():
        contract = capability.outputs_by_name[name]
        assert matches_type(value, contract.type), (name, value)
        assert not contract.enum or value in contract.enum
        if contract.is_identifier:
            assert value != contract.example
        elif contract.type in ("integer", "number") and contract.example:
            assert abs(value - contract.example) <= 0.2 * contract.example + 0.5


def test_plausible_values_differ_by_task_and_by_arguments() -> None:
    ids = {
        plausible_outputs(CATALOG["shop.find_order"], seed, {"n": n})["order_id"] for seed in "ab" for n in range(20)
    }
    assert len(ids) > 30


def test_the_same_calls_give_the_same_world_twice() -> None:
    for task in TASKS:
        one, other = world(task), world(task)
        for call in (SHIP, FIND, RENEW, SHIP, SHIP, SHIP, LIFT, CANCEL):
            assert one.execute(call) == other.execute(call)
        assert one.progress.complete == other.progress.complete


# --- the guide --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.prompt.id)
def test_following_the_guide_completes_every_plan_with_the_scheduled_failures_alone(task: Task) -> None:
    environment = world(task)
    guide = PlanGuide(environment.progress, CATALOG)
    failures = 0
    while calls := guide.next_calls():
        call = preferred(calls).call
        assert not CATALOG[call.route_id].argument_errors(call.arguments)
        failures += environment.execute(call).failed
    scheduled = sum(1 if fault.cured_by else fault.times for fault in task.key.faults)
    assert not environment.progress.incomplete and failures == scheduled


def test_the_guide_states_literals_with_the_contract_of_their_parameter_and_no_observed_value() -> None:
    literals = PlanGuide(world(DESTROYS).progress, CATALOG).literals()
    assert [(item.value, item.contract.semantic_id) for item in literals] == [("Blue lamp", "order.name")]


def contract(unit: str, kind: str = "string") -> Capability:
    field = {
        "name": "mass",
        "type": kind,
        "identifier": kind == "string",
        "example": f"{unit}-1" if kind == "string" else None,
    }
    values = {"provider": "lab", "operation": "weigh", "description": "", "effect": "read", "outputs": [field]}
    return Capability.model_validate(values)


def test_an_answer_that_was_changed_is_given_whole_again() -> None:
    for capability in (contract("kg"), contract("kg", "array"), contract("kg", "object")):
        first = plausible_outputs(capability, "t", {})
        kept = repr(first)
        held = first["mass"]
        if isinstance(held, list):
            held.append(1)
        elif isinstance(held, dict):
            held["a"] = 1
        first["more"] = first.pop("mass")
        assert repr(plausible_outputs(capability, "t", {})) == kept


def test_an_answer_is_that_of_the_contract_asked_and_not_of_one_with_the_same_route() -> None:
    one, other = (plausible_outputs(contract(unit), "t", {})["mass"] for unit in ("kg", "lb"))
    assert one.startswith("kg-") and other.startswith("lb-")


def test_types_count_inside_an_array_too_and_numbers_within_the_tolerance() -> None:
    assert not same_value([1], [True]) and not same_value(True, 1) and same_value([1, "a"], [1, "a"])
    assert (
        same_value(12.35, 12.346) and not same_value(12.4, 12.346) and not same_value(12, 13) and same_value(12, 12.001)
    )
