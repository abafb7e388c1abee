"""Figures of plan shapes turn when the plans do."""

from __future__ import annotations

from typing import Any

import pytest

from surface.audit import shapes
from surface.audit.figure import Figure
from surface.task import Task
from tests.toys import CATALOG, CHAIN, CURED, DESTROYS, RETRIED, make_task

FIND, SHIP, LIFT = (step.model_dump() for step in CHAIN.key.steps)
LOOK = {"id": "look", "route": "misc.look_03", "role": "evident", "arguments": {}}
PURGE = {"id": "purge", "route": "aux.purge", "role": "evident", "arguments": {}}
LATENT_FIND = {**FIND, "role": "latent"}
ORDERED = {**PURGE, "after": ["look"], "because": "then"}
CURE = [step.model_dump() for step in CURED.key.steps]
EXPIRED = CURED.key.faults[0].model_dump()


def values(tasks: list[Task]) -> dict[str, Figure]:
    return {figure.name: figure for figure in shapes.shape_figures(tasks, CATALOG)}


@pytest.mark.parametrize(
    ("has", "yes", "no"),
    [
        (shapes.starts_evident, [LATENT_FIND, SHIP, LOOK], [LATENT_FIND, SHIP, LIFT]),
        (shapes.starts_otherwise, [LATENT_FIND, PURGE], [LATENT_FIND, LOOK]),
        (shapes.calls_a_route_twice, [LOOK, {**LOOK, "id": "again"}], [LOOK, PURGE]),
        (shapes.needs_no_identifier, [FIND, LOOK], [FIND, SHIP]),
        (shapes.ends_by_outcome, [FIND, SHIP], [FIND, SHIP, LIFT]),
        (shapes.states_an_order, [LOOK, ORDERED], [LOOK, PURGE]),
    ],
)
def test_each_shape_is_told_from_its_absence(has: Any, yes: list[Any], no: list[Any]) -> None:
    with_it, without = (make_task(9, steps, "Blue lamp, then", authorised=[]) for steps in (yes, no))
    assert has(with_it, CATALOG) and not has(without, CATALOG)


def test_shares_are_held_against_their_bounds() -> None:
    plain = make_task(9, [LATENT_FIND, SHIP, LIFT])
    found = values([plain, make_task(8, [LOOK, {**LOOK, "id": "again"}]), plain, plain])
    twice = found["tasks that call one route twice"]
    assert (twice.value, twice.holds, twice.bound) == ("1 of 4 (25.0%)", True, "≥ 15%")
    assert not found["tasks with an evident step ready at first"].holds
    order = values([make_task(8, [LOOK, ORDERED], "Blue lamp, then")])["tasks with an order that words state"]
    assert (order.holds, order.bound) == (False, "≤ 15%")


def test_a_cure_that_another_step_hides_and_one_that_stands_alone() -> None:
    alone = values([CURED, CHAIN, RETRIED, DESTROYS])["cures that are the only ready step"]
    assert (alone.value, alone.holds) == ("1 of 1 (100.0%)", True)
    # The other step waits for the find too, and its route comes after that of the faulted one.
    other = {
        **SHIP,
        "id": "other",
        "route": "shop.ship_order",
        "arguments": {**SHIP["arguments"], "carrier": {"literal": "rail"}},
    }
    hidden = make_task(9, [*CURE, other], "Blue lamp by rail", faults=[EXPIRED, {**EXPIRED, "step": "other"}])
    found = values([hidden])["cures that are the only ready step"]
    assert (found.value, found.holds) == (f"0 of 1 (0.0%) {hidden.prompt.id}", False)


def test_a_cure_is_related_by_a_field_or_by_a_word_of_the_error() -> None:
    assert not list(shapes.unrelated_cures(CURED.key, CATALOG))
    far = make_task(
        9,
        [*CURE[:1], {**LOOK, "id": "renew", "route": "aux.purge", "role": "corrective"}, CURE[-1]],
        faults=[{**EXPIRED, "error": "lease_expired: too old", "cured_by": ["renew"]}],
    )
    assert [fault.step for fault in shapes.unrelated_cures(far.key, CATALOG)] == ["ship"]
    named = far.key.model_copy(
        update={"faults": (far.key.faults[0].model_copy(update={"error": "full: purge aux first"}),)}
    )
    assert not list(shapes.unrelated_cures(named, CATALOG))


def test_a_cure_that_overrides_a_control_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "OVERRIDES", frozenset({"lease.renew"}))
    assert values([CURED])["cures that override a control unasked"].value == f"1 of 1 {CURED.prompt.id}"
    fault = CURED.key.faults[0].model_copy(update={"consent": "please"})
    allowed = CURED.model_copy(update={"key": CURED.key.model_copy(update={"faults": (fault,)})})
    assert values([allowed])["cures that override a control unasked"].holds


def test_sizes_of_ready_sets_are_counted_at_every_call() -> None:
    assert shapes.ready_set_sizes([CHAIN], CATALOG).value == "1: 3"
    assert shapes.ready_set_sizes([make_task(9, [FIND, LOOK, PURGE])], CATALOG).value == "1: 1, 2: 1, 3: 1"
