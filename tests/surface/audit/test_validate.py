"""The validator: every way in which a task can be unsound is reported, and a sound task has no problem."""

from __future__ import annotations

from typing import Any

import pytest

from surface.audit.validate import check_surface, check_task, folded, skeleton
from surface.loader import Surface
from surface.task import Task
from tests.toys import CATALOG, CHAIN, CURED, DESTROYS, RETRIED, TASKS, make_task, toy_protocol

FIND, SHIP, LIFT = (step.model_dump() for step in CHAIN.key.steps)
LOOK = {"id": "look", "route": "misc.look_03", "role": "latent", "arguments": {}}

PROTOCOL = toy_protocol()
ONE_A_CELL = PROTOCOL.model_copy(update={"tasks_per_cell": 1})


def problems(task: Task) -> str:
    return "\n".join(check_task(task, CATALOG, max_load=PROTOCOL.episode.max_steps_and_failures))


def edited(step: dict[str, Any], **change: Any) -> dict[str, Any]:
    return {**step, **change}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.prompt.id)
def test_a_sound_task_has_no_problem(task: Task) -> None:
    assert problems(task) == ""


UNSOUND: dict[str, tuple[Task, str]] = {
    "a route outside the smallest catalog": (make_task(9, [edited(FIND, route="ghost.route")]), "not in the smallest catalog"),
    "a required argument without rule": (make_task(9, [edited(FIND, arguments={})]), "'order_name' has no rule"),
    "a rule for no parameter": (
        make_task(9, [edited(FIND, arguments={**FIND["arguments"], "colour": {"literal": "Blue"}})]), "no parameter",
    ),
    "an answer that is not registered": (make_task(9, [edited(FIND, outputs={"price": 3})]), "does not register"),
    "an answer of another type": (make_task(9, [edited(FIND, outputs={"match_count": "one"})]), "is not integer"),
    "a literal of another type": (
        make_task(9, [edited(FIND, arguments={"order_name": {"literal": 5}})], "5"), "no valid string|not a valid string",
    ),
    "a literal that the query does not state": (make_task(9, [FIND], "Red lamp"), "does not stand in the query"),
    "a value of a cure that may never run": (
        make_task(
            9,
            [
                *(step.model_dump() for step in CURED.key.steps),
                {**LOOK, "route": "misc.look_01", "arguments": {"order_id": {"observed": "renew.lease_id"}}},
            ],
            "Send the Blue lamp",
            faults=[CURED.key.faults[0].model_dump()],
        ),
        "need not have been done",
    ),
    "an order that the query does not state": (
        make_task(9, [FIND, LOOK, {**LOOK, "id": "look_again", "after": ["look"], "because": "only then"}], "Blue lamp"),
        "'because' quotes 'only then'",
    ),
    "an order that data implies": (
        make_task(9, [FIND, {**SHIP, "after": ["find"], "because": "then"}], "Blue lamp, then"), "data implies already",
    ),
    "a place for a cure in the order of words": (
        make_task(
            9,
            [FIND, {**CURED.key.steps[1].model_dump(), "after": ["look"], "because": "then"}, LOOK, SHIP],
            "Send the Blue lamp, then",
            faults=[CURED.key.faults[0].model_dump()],
        ),
        "no place in the order of words",
    ),
    "consent that the query does not give": (
        make_task(9, [s.model_dump() for s in CURED.key.steps], "Send the Blue lamp, please.",
                  faults=[{**CURED.key.faults[0].model_dump(), "consent": "you may renew"}]),
        "'consent' quotes",
    ),
    "a field that is not returned": (
        make_task(9, [FIND, edited(SHIP, arguments={"order_id": {"observed": "find.price"}})]), "does not return",
    ),
    "a value of another type": (
        make_task(9, [FIND, edited(SHIP, arguments={"order_id": {"observed": "find.match_count"}})]), "string is needed",
    ),
    "an identifier of something else": (
        make_task(9, [FIND, SHIP, edited(LIFT, arguments={**LIFT["arguments"], "shipment_id": {"observed": "find.order_id"}})]),
        "a shipment.id is needed",
    ),
    "the unit of something without unit": (
        make_task(9, [FIND, SHIP, edited(LIFT, arguments={**LIFT["arguments"], "load_unit": {"unit_of": "find.note"}})]),
        "none that is accepted",
    ),
    "a destructive step that nobody authorised": (
        make_task(9, [step.model_dump() for step in DESTROYS.key.steps]), "not authorised: shop.cancel_order",
    ),
    "an authorisation without need": (make_task(9, [FIND], authorised=["aux.purge"]), "without being required"),
    "a heavy task": (
        make_task(9, [{**FIND, "id": f"f{n}", "route": f"misc.look_{n:02d}", "outputs": {}} for n in range(0, 28, 4)]),
        "at most 6",
    ),
    "a prompt that names a route": (make_task(9, [FIND], "Blue lamp via shop.find_order"), "names the route"),
    "a prompt that holds a forbidden name": (
        make_task(9, [FIND], "Blue lamp with the Oracle task graph"), "forbidden name 'oracle_task_graph'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_task_is_reported(name: str) -> None:
    task, message = UNSOUND[name]
    found = problems(task)
    assert any(part in found for part in message.split("|")), found


def test_a_number_said_in_words_or_local_form_has_its_digits_in_the_query() -> None:
    load = {"literal": 1250.0, "said": "1.250 kg"}
    arguments = {**LIFT["arguments"], "load": load}
    steps = [FIND, SHIP, edited(LIFT, arguments=arguments)]
    assert problems(make_task(9, steps, "Blue lamp, 1.250 kg")) == ""
    wrong = {**arguments, "load": {"literal": 1300.0, "said": "1.250 kg"}}
    assert "1300" in problems(make_task(9, [FIND, SHIP, edited(LIFT, arguments=wrong)], "Blue lamp, 1.250 kg"))


def surface_of(tasks: tuple[Task, ...], stratum: str = "recoverable_execution_failure") -> Surface:
    return Surface("development", tasks, {task.prompt.id: stratum for task in tasks})


def test_a_recoverable_failure_without_a_fault_is_reported() -> None:
    found = check_surface(surface_of((CHAIN, CURED, RETRIED)), CATALOG, PROTOCOL)
    assert found["toy-en-01"] == ["a recoverable failure without a fault"]
    assert "toy-en-02" not in found and "toy-en-03" not in found


def test_cells_that_hold_another_number_of_tasks_are_reported() -> None:
    found = check_surface(surface_of((CURED,)), CATALOG, ONE_A_CELL)
    assert len(found["surface"]) == 29
    assert not any("recoverable_execution_failure/en" in line for line in found["surface"])

    found = check_surface(surface_of((CURED,), "made_up"), CATALOG, ONE_A_CELL)
    assert "cell made_up/en holds 1 tasks where 0 are promised" in found["surface"]


def test_two_tasks_that_are_one_sentence_with_other_identifiers_are_reported() -> None:
    one, other = make_task(8, [FIND], "Blue lamp from B-17"), make_task(9, [FIND], "Blue  Lamp from C-29")
    found = check_surface(surface_of((one, other), "two_step_state_dependency"), CATALOG, ONE_A_CELL)
    assert "toy-en-08 and toy-en-09 are one sentence with other names" in found["surface"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("P-3118 leaks", "Q-9 leaks"),
        ("hold 415,5 kPa", "hold 2 kPa"),
        ("BV71KZO now", "  bv72 Now"),
        ("a 1.250 kg", "a 3 kg"),
        ("Prüfstand-7 leaks", "A/7:2 leaks"),
        ("설비 P-3118을 확인", "설비 Q-9를 확인"),
        ("ポンプP-3118の圧力", "ポンプQ-9の圧力"),
    ],
)
def test_skeletons_mask_identifiers_and_numbers_and_fold_white_space_and_case(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other) != skeleton(f"not {other}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ポンプP-3118の圧力", "ポンプP-3118の温度"),
        ("P-3118, then stop", "P-3118. then stop"),
        ("and/or 5 kg", "and 5 kg"),
        ("well-known", "well-made"),
    ],
)
def test_skeletons_keep_the_words_around_an_identifier(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)


def test_a_misspelt_field_is_told_with_the_closest() -> None:
    for rule in ("observed", "unit_of"):
        arguments = {"order_id": {rule: "find.order_idd"}}
        found = problems(make_task(9, [FIND, edited(SHIP, arguments=arguments)]))
        assert "find.order_idd, which that route does not return. Did you mean 'order_id'?" in found


def test_words_are_compared_in_their_compatibility_form() -> None:
    assert folded("ＡＢ\u3000c") == "ab c"
