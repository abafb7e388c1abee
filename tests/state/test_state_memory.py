"""What is remembered between checks: it never lets through what a fresh check would refuse, and it stays bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.catalog import Capability
from schemarouter.state import PATTERNS, Call, ExecutionState, Observation, omissions
from schemarouter.state import execution_state as checks
from schemarouter.state.leakage import StateError
from tests.strategies import LAWS, states


class Sub(str):
    """Equal to a plain string, and hashed alike, but none."""


def capability(**field: Any) -> Capability:
    outputs = [{"name": "lease_id", "type": "string", **field}, {"name": "note", "type": "string"}]
    contract = {"provider": "lab", "operation": "renew", "description": "", "effect": "read", "outputs": outputs}
    return Capability.model_validate(contract)


def observed(payload: Mapping[str, Any], contract: Capability) -> ExecutionState:
    observation = Observation("ran", payload)
    return ExecutionState.start("q").observe(Call("lab.renew", {}), observation, contract, incomplete=True)


@LAWS
@given(states(), st.sampled_from(sorted(PATTERNS)))
def test_an_equal_list_of_other_strings_is_refused_though_the_plain_one_is_known(
    state: ExecutionState, name: str
) -> None:
    state.canonical_json()
    held = getattr(state, name)
    state.__dict__[name] = tuple(map(Sub, held))
    if held:
        with pytest.raises(StateError, match=f"{name}: holds .* of type Sub"):
            state.canonical_json()


@LAWS
@given(states(), st.sampled_from(sorted(PATTERNS)))
def test_known_entries_in_another_order_or_twice_are_refused(state: ExecutionState, name: str) -> None:
    state.canonical_json()
    held = getattr(state, name)
    if held:
        state.__dict__[name] = (*held, held[0])
        with pytest.raises(StateError, match=name):
            state.canonical_json()
    if len(held) > 1 and name != "executed_registered_route_ids":
        state.__dict__[name] = held[::-1]
        with pytest.raises(StateError, match=f"{name}: .* comes after"):
            state.canonical_json()


def test_an_entry_known_of_one_field_is_not_known_of_another() -> None:
    state = observed({"lease_id": "L-1"}, capability(unit="kg", dimension="mass"))
    state.canonical_json()
    state.__dict__["observation_dimensions"] = ("L-1",)
    with pytest.raises(StateError, match="observation_dimensions: holds 'L-1', which does not match"):
        state.canonical_json()


def test_sound_values_that_contradict_each_other_are_refused() -> None:
    state = observed({"lease_id": "L-1"}, capability())
    state.canonical_json()
    state.__dict__["last_execution_status"] = "not_run"
    with pytest.raises(StateError, match="is not_run, but something has been executed"):
        state.canonical_json()


def test_the_same_names_of_another_contract_are_read_anew() -> None:
    payload = {"lease_id": "L-1", "note": "n"}
    assert observed(payload, capability(unit="kg", dimension="mass")).observation_units == ("kg",)
    assert observed(payload, capability(unit="t", dimension="mass")).observation_units == ("t",)
    assert observed(payload, capability()).observation_units == ()


def test_the_same_names_with_other_values_give_other_types_and_identifiers() -> None:
    contract = capability()
    assert observed({"lease_id": "L-1", "note": "n"}, contract).stable_observed_identifiers == ("L-1",)
    again = observed({"lease_id": 7, "note": None}, contract)
    assert again.stable_observed_identifiers == ("7",) and again.observation_value_types == ("integer", "null")


def test_names_that_are_no_plain_strings_are_unregistered_though_their_equals_are_known() -> None:
    contract = capability()
    observed({"lease_id": "L-1"}, contract)
    strange = observed({Sub("lease_id"): "L-2"}, contract)
    assert strange.observation_field_names == () and strange.stable_observed_identifiers == ()


@pytest.mark.parametrize("payload", [{"lease_id": "L 1", "note": "n", "else": 1}, {"status": "error", "error": "x: y"}])
@pytest.mark.parametrize("outcome", ["ran", "error"])
def test_observing_and_counting_at_once_is_observing_and_counting(payload: dict[str, Any], outcome: Any) -> None:
    contract, call, observation = capability(), Call("lab.renew", {}), Observation(outcome, payload)
    start = ExecutionState.start("q")
    state, left_out = start.observe_all(call, observation, contract, incomplete=False)
    assert state == start.observe(call, observation, contract, incomplete=False)
    assert left_out == omissions(call, observation, contract)
    left_out["identifiers"] += 1
    assert left_out != omissions(call, observation, contract)


def test_what_is_remembered_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_MAX_ENTRIES", 50)
    contract = capability()
    for number in range(600):
        observed({"lease_id": f"L-{number}"}, contract).canonical_json()
    assert all(len(checks._VALID_VALUES[name]) <= 256 for name in checks._VALID_VALUES)
    assert len(checks._VALID_STATES) <= 256
    assert len(checks._VALID_ENTRIES["stable_observed_identifiers"]) <= 50
