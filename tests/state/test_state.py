"""Laws of the execution state: what enters it, in which order, and the bytes it is written as."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter import canonical as identity
from schemarouter.catalog import Capability
from schemarouter.invisible import first_invisible
from schemarouter.state import (
    CONTRACT,
    FIELDS,
    MARKER,
    PATTERNS,
    Call,
    ExecutionState,
    Observation,
    error_class,
    fingerprint,
    omissions,
    parse_retrieval_query,
)
from schemarouter.state.leakage import FORBIDDEN, StateError
from tests.strategies import LAWS, Turn, error_texts, free_text, queries, states, turns

ROUTES = "executed_registered_route_ids"
SORTED = [name for name in PATTERNS if name != ROUTES]
MAY_CHANGE_ON_FAILURE = {
    ROUTES,
    "observation_field_names",
    "observation_value_types",
    "last_execution_status",
    "last_error_class",
    "task_incomplete_boolean",
}


def weigh() -> Capability:
    return Capability.model_validate(
        {
            "provider": "fleet",
            "operation": "weigh",
            "description": "Weighs a vehicle.",
            "effect": "read",
            "outputs": [
                {"name": "vehicle_id", "type": "string", "semantic_id": "vehicle.id"},
                {
                    "name": "mass",
                    "type": "number",
                    "semantic_id": "vehicle.mass",
                    "unit": "kg",
                    "dimension": "mass",
                    "qualifiers": {"basis": "gross", "axle": "all"},
                },
                {"name": "ticket", "type": "integer", "identifier": True},
                {"name": "remark", "type": "string"},
            ],
        }
    )


def after(payload: dict[str, Any], outcome: Any = "ran", *, query: str = "q") -> ExecutionState:
    call = Call("fleet.weigh", {})
    return ExecutionState.start(query).observe(call, Observation(outcome, payload), weigh(), incomplete=True)


def test_golden_bytes_of_a_full_state() -> None:
    state = after({"vehicle_id": "V-7", "mass": 1200.5, "ticket": 42, "remark": "ok", "extra": 1}, query='Wägen „V-7"')
    late = Capability(provider="lab", operation="renew", description="", effect="write")
    failure = Observation("error", {"status": "error", "error": "lease_expired: at noon"})
    state = state.observe(Call("lab.renew", {}), failure, late, incomplete=True)
    expected = (
        '{"executed_registered_route_ids":["fleet.weigh","lab.renew"],"last_error_class":"lease_expired",'
        '"last_execution_status":"error","observation_dimensions":["mass"],'
        '"observation_field_names":["error","mass","remark","status","ticket","vehicle_id"],'
        '"observation_qualifiers":["axle=all","basis=gross"],'
        '"observation_semantic_ids":["vehicle.id","vehicle.mass"],"observation_units":["kg"],'
        '"observation_value_types":["integer","number","string"],"original_query":"Wägen „V-7\\"",'
        '"stable_observed_identifiers":["42","V-7"],"task_incomplete_boolean":true}'
    )
    assert state.canonical_json() == expected.encode()
    rest = expected.replace('"original_query":"Wägen „V-7\\"",', "")
    assert state.retrieval_query() == f'Wägen „V-7"\n\n[EXECUTION_STATE]\n{rest}'


def test_golden_bytes_of_the_start() -> None:
    assert ExecutionState.start("").retrieval_query() == (
        '\n\n[EXECUTION_STATE]\n{"executed_registered_route_ids":[],"last_error_class":null,'
        '"last_execution_status":"not_run","observation_dimensions":[],"observation_field_names":[],'
        '"observation_qualifiers":[],"observation_semantic_ids":[],"observation_units":[],'
        '"observation_value_types":[],"stable_observed_identifiers":[],"task_incomplete_boolean":true}'
    )


def test_exactly_the_twelve_fields() -> None:
    assert tuple(ExecutionState.model_fields) == FIELDS
    assert len(FIELDS) == 12
    assert set(CONTRACT["fields"]) == set(FIELDS)


def test_fingerprint_covers_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    assert before == fingerprint()
    assert re.fullmatch("[0-9a-f]{64}", before)
    monkeypatch.setitem(CONTRACT, "forbidden", sorted(FORBIDDEN)[1:])
    assert fingerprint() != before


@LAWS
@given(queries, st.lists(turns(), max_size=5), st.randoms(use_true_random=False))
def test_order_of_turns_matters_to_routes_alone(query: str, done: list[Turn], rng: random.Random) -> None:
    shuffled = list(done)
    rng.shuffle(shuffled)
    one = two = ExecutionState.start(query)
    for turn in done:
        one = turn.apply(one)
    for turn in shuffled:
        two = turn.apply(two)
    for name in SORTED:
        value = getattr(one, name)
        assert value == getattr(two, name) == tuple(sorted(set(value)))
    for state, order in ((one, done), (two, shuffled)):
        routes = [turn.capability.route_id for turn in order if turn.capability is not None]
        assert list(state.executed_registered_route_ids) == list(dict.fromkeys(routes))


@LAWS
@given(states(), st.randoms(use_true_random=False))
def test_bytes_round_trip(state: ExecutionState, rng: random.Random) -> None:
    data = state.canonical_json()
    assert data == identity.canonical_json(state.model_dump())
    fields = list(json.loads(data).items())
    rng.shuffle(fields)
    spelled = json.dumps(dict(fields), indent=2, ensure_ascii=True).encode()
    for back in (ExecutionState.parse(data), ExecutionState.parse(spelled), ExecutionState(**state.model_dump())):
        assert back == state
        assert back.canonical_json() == data


@LAWS
@given(states())
def test_rendered_query_round_trip(state: ExecutionState) -> None:
    text = state.retrieval_query()
    query, rest = text.rsplit(f"\n\n{MARKER}\n", 1)
    assert query == state.original_query
    assert set(json.loads(rest)) == set(FIELDS) - {"original_query"}
    assert parse_retrieval_query(text) == state
    assert parse_retrieval_query(text).canonical_json() == state.canonical_json()


@LAWS
@given(states(), turns())
def test_cumulative_fields_only_grow(state: ExecutionState, turn: Turn) -> None:
    grown = turn.apply(state)
    assert grown.original_query == state.original_query
    for name in PATTERNS:
        assert set(getattr(state, name)) <= set(getattr(grown, name))
    known = len(state.executed_registered_route_ids)
    assert grown.executed_registered_route_ids[:known] == state.executed_registered_route_ids
    assert turn.apply(grown).canonical_json() == grown.canonical_json()


@LAWS
@given(states(), turns(failed=True))
def test_failed_turn_changes_only_what_it_may(state: ExecutionState, turn: Turn) -> None:
    changed = turn.apply(state)
    assert {name for name in FIELDS if getattr(changed, name) != getattr(state, name)} <= MAY_CHANGE_ON_FAILURE
    assert changed.last_execution_status == turn.observation.outcome
    assert changed.last_error_class == error_class(turn.observation.payload["error"])
    if turn.capability is None:
        assert changed.executed_registered_route_ids == state.executed_registered_route_ids
        new = set(changed.observation_field_names) - set(state.observation_field_names)
        assert new <= {"status", "error"}


@LAWS
@given(states(), turns(failed=False))
def test_completed_turn(state: ExecutionState, turn: Turn) -> None:
    changed = turn.apply(state)
    assert turn.capability is not None
    hit = set(turn.observation.payload) & set(turn.capability.outputs_by_name)
    assert changed.last_execution_status == ("ok" if hit else "executed")
    assert changed.last_error_class is None
    counted = hit | (set(turn.observation.payload) & {"status", "error"})
    assert set(changed.observation_field_names) == set(state.observation_field_names) | counted


@LAWS
@given(states())
def test_nothing_outside_the_patterns_reaches_the_rendering(state: ExecutionState) -> None:
    rest = json.loads(state.retrieval_query()[len(state.original_query) + len(f"\n\n{MARKER}\n") :])
    for name, pattern in PATTERNS.items():
        assert all(re.fullmatch(pattern, item) for item in rest[name])
    assert rest["last_error_class"] is None or re.fullmatch("[a-z][a-z0-9_]{0,63}", rest["last_error_class"])
    assert rest["last_execution_status"] in {"not_run", "ok", "executed", "error", "blocked"}
    assert type(rest["task_incomplete_boolean"]) is bool


@LAWS
@given(free_text.map("zu viel Text {}".format), st.sampled_from(["ran", "error", "blocked"]))
def test_free_text_never_enters(text: str, outcome: str) -> None:
    payload = {"vehicle_id": text, "mass": text, "ticket": [text], text: text, "remark": text}
    failure = {} if outcome == "ran" else {"status": text, "error": text}
    assert "zu viel" not in after(payload | failure, outcome).retrieval_query()


@LAWS
@given(error_texts)
def test_error_class_is_a_name(text: object) -> None:
    found = error_class(text)
    assert re.fullmatch("[a-z][a-z0-9_]{0,63}", found)
    assert found == "unclassified" or (isinstance(text, str) and text.strip().startswith(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lease_expired: since noon", "lease_expired"),
        ("  timeout\n", "timeout"),
        ("Timeout", "unclassified"),
        ("time out: x", "unclassified"),
        ("timeout : x", "unclassified"),
        (": timeout", "unclassified"),
        ("a" * 64, "a" * 64),
        ("a" * 65, "unclassified"),
        ("timeout\nx", "unclassified"),
        ("", "unclassified"),
        (None, "unclassified"),
        (7, "unclassified"),
        ({"error": "timeout"}, "unclassified"),
    ],
)
def test_error_class_examples(text: object, expected: str) -> None:
    assert error_class(text) == expected


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("V-7", ("V-7",)),
        (7, ("7",)),
        (-7, ()),
        (True, ()),
        (7.0, ()),
        (None, ()),
        ("two words", ()),
        ("V-7\n", ()),
        ("a" * 128, ("a" * 128,)),
        ("a" * 129, ()),
        (["V-7"], ()),
        ("\u0667", ()),
        (10**127, (str(10**127),)),
        (10**128, ()),
        pytest.param(10**5000, (), id="huge"),
    ],
)
def test_identifiers(value: Any, kept: tuple[str, ...]) -> None:
    state = after({"vehicle_id": value})
    assert state.stable_observed_identifiers == kept
    left = omissions(Call("fleet.weigh", {}), Observation("ran", {"vehicle_id": value}), weigh())
    assert left["identifiers"] == (not kept and value is not None)
    assert ExecutionState.parse(state.canonical_json()) == state


def test_status_and_error_are_never_identifiers() -> None:
    outputs = [{"name": name, "type": "string", "identifier": True} for name in ("status", "error")]
    odd = {"provider": "a", "operation": "b", "description": "", "effect": "read", "outputs": outputs}
    capability = Capability.model_validate(odd)
    observation = Observation("ran", {"status": "S1", "error": "E1"})
    state = ExecutionState.start("q").observe(Call("a.b", {}), observation, capability, incomplete=False)
    assert state.stable_observed_identifiers == ()
    assert state.last_execution_status == "ok"


def test_omissions_count_what_stayed_outside() -> None:
    observation = Observation("ran", {"vehicle_id": "two words", "secret": 1, "other": 2, "status": "fine"})
    left = omissions(Call("fleet.weigh", {}), observation, weigh())
    assert left == {"unregistered_fields": 2, "identifiers": 1, "contract_terms": 0}
    failed = omissions(Call("gone", {}), Observation("error", {"status": "error", "error": "x", "a": 1}), None)
    assert failed == {"unregistered_fields": 1, "identifiers": 0, "contract_terms": 0}


def test_unit_that_is_text_stays_outside() -> None:
    outputs = [{"name": "mass", "type": "number", "unit": "kilograms of load", "dimension": "mass"}]
    odd = {"provider": "a", "operation": "b", "description": "", "effect": "read", "outputs": outputs}
    capability, observation = Capability.model_validate(odd), Observation("ran", {"mass": 1})
    state = ExecutionState.start("q").observe(Call("a.b", {}), observation, capability, incomplete=False)
    assert state.observation_units == ()
    assert omissions(Call("a.b", {}), observation, capability)["contract_terms"] == 1


INVISIBLE = (
    *"\x00\x1f\x7f\x85\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200f\u2028\u202e\u2060\u206f",
    *"\u2800\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\ufff9\ufffb\U0001bca0\U0001d173\U000e0000\U000e0001\U000e007f\U000e0100\U000e0fff",
)  # fmt: skip


@pytest.mark.parametrize("sign", INVISIBLE, ids=ascii)
def test_a_unit_holds_no_character_that_nobody_sees(sign: str) -> None:
    assert first_invisible(f"kg{sign}") == f"U+{ord(sign):04X}"
    fields = json.loads(ExecutionState.start("q").canonical_json())
    ran = {"last_execution_status": "ok", "executed_registered_route_ids": ["a.b"]}
    for unit in (sign, f"k{sign}g", f"kg{sign}"):
        with pytest.raises(StateError, match="observation_units"):
            ExecutionState.parse(json.dumps({**fields, **ran, "observation_units": [unit]}).encode())


@pytest.mark.parametrize(
    "unit", ["kg", "°C", "kW·h", "Ω", "%", "m²", "€", "㎡", "円", "개", "´", "\ufffd", "\U0001f4a7"]
)
def test_a_unit_may_be_any_short_sign_that_is_seen(unit: str) -> None:
    assert first_invisible(unit) is None
    fields = json.loads(ExecutionState.start("q").canonical_json())
    ran = {"last_execution_status": "ok", "executed_registered_route_ids": ["a.b"], "observation_units": [unit]}
    assert ExecutionState.parse(json.dumps({**fields, **ran}).encode()).observation_units == (unit,)
