"""What no state is made of: refused by name, with everything that is wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from schemarouter.catalog import Capability
from schemarouter.errors import SchemaRouterError
from schemarouter.state import (
    MARKER,
    PATTERNS,
    Call,
    ExecutionState,
    Observation,
    omissions,
    parse_retrieval_query,
)
from schemarouter.state.leakage import ForbiddenFieldError, StateError
from tests.state.test_state import after, weigh


def test_registered_qualifier_with_a_forbidden_key_is_refused() -> None:
    outputs = [{"name": "mass", "type": "number", "qualifiers": {"condition_names": "x"}}]
    odd = {"provider": "a", "operation": "b", "description": "", "effect": "read", "outputs": outputs}
    with pytest.raises(ForbiddenFieldError, match="condition_names"):
        ExecutionState.start("q").observe(
            Call("a.b", {}), Observation("ran", {"mass": 1}), Capability.model_validate(odd), incomplete=False
        )


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("padding", ["", "  ", "\t", "\u3000"])
def test_query_with_the_marker_line_is_refused(separator: str, padding: str) -> None:
    for query in (MARKER, f"a{separator}{padding}{MARKER}{padding}", f"{MARKER}{separator}b"):
        with pytest.raises(StateError, match="marker line"):
            ExecutionState.start(query)


@pytest.mark.parametrize("query", ["", "\x00", f"say {MARKER} aloud", "[EXECUTION_STATE", "a\n\n", "\n\n[", "x\u2028y"])
def test_odd_queries_are_kept_to_the_letter(query: str) -> None:
    state = ExecutionState.start(query)
    assert ExecutionState.parse(state.canonical_json()).original_query == query
    assert parse_retrieval_query(state.retrieval_query()).original_query == query


@pytest.mark.parametrize("query", ["\ud800", "a\udfff", 7, None, b"q", ["q"]])
def test_query_that_is_no_text_is_refused(query: Any) -> None:
    with pytest.raises(StateError, match="original_query"):
        ExecutionState.start(query)


@pytest.mark.parametrize("name", sorted(PATTERNS))
@pytest.mark.parametrize(
    "items", [["zz.z=z", "aa.a=a"], ["a", "a"], ["a b"], [""], ["a\n"], [1], [True], [None], "a", {}]
)
def test_parse_refuses_bad_lists_by_name(name: str, items: Any) -> None:
    fields = json.loads(after({"mass": 1}).canonical_json())
    with pytest.raises(StateError, match=name):
        ExecutionState.parse(json.dumps({**fields, name: items}).encode())


def test_parse_refuses_unsorted_entries_by_name() -> None:
    fields = json.loads(after({"mass": 1, "remark": "x"}).canonical_json())
    fields["observation_field_names"].reverse()
    with pytest.raises(StateError, match="observation_field_names: 'mass' comes after 'remark'"):
        ExecutionState.parse(json.dumps(fields).encode())


def test_parse_tells_every_mistake_at_once() -> None:
    fields = json.loads(after({"mass": 1}).canonical_json())
    del fields["last_error_class"]
    fields |= {"observation_unit": [], "task_incomplete_boolean": 1}
    with pytest.raises(StateError) as caught:
        ExecutionState.parse(json.dumps(fields).encode())
    text = str(caught.value)
    for part in (
        "last_error_class: is missing",
        "Did you mean 'observation_units'?",
        "task_incomplete_boolean: must be",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not JSON"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b"\xff", "UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"original_query":NaN}', "NaN is not JSON"),
        (b'{"original_query":"a","original_query":"a"}', "given twice: 'original_query'"),
        (b'{"original_query":"a","\\u006friginal_query":"b"}', "given twice: 'original_query'"),
        (b'{"a":{"b":1,"b":2}}', "given twice: 'b'"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"original_query":' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"original_query":"\\ud800"}', "lone surrogate"),
        ("{}\ud800", "not JSON"),
        (None, "NoneType"),
    ],
)
def test_parse_refuses_what_is_no_plain_json(data: Any, what: str) -> None:
    with pytest.raises(StateError, match=re.escape(what)):
        ExecutionState.parse(data)


def test_rendering_must_match_to_the_byte() -> None:
    text = after({"mass": 1}).retrieval_query()
    with pytest.raises(StateError, match="only there"):
        parse_retrieval_query(text.replace("{", '{"original_query":"q",', 1))
    for altered in (
        text + "\n",
        text.replace('":[', '": [', 1),
        text.replace(f"\n{MARKER}", MARKER),
        f"{MARKER}\n\n\n{text}",
        text.replace("mass", "\\u006dass", 1),
        "",
    ):
        with pytest.raises(StateError):
            parse_retrieval_query(altered)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"last_execution_status": "error"}, "last_error_class"),
        ({"last_error_class": "timeout"}, "last_error_class"),
        ({"last_execution_status": "not_run"}, "not_run"),
        ({"last_execution_status": "done"}, "must be one of"),
        ({"last_execution_status": "error", "last_error_class": "Two Words"}, "last_error_class"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(StateError, match=what):
        after({"mass": 1}).model_copy(update=changes)


@pytest.mark.parametrize(
    ("call", "observation", "capability", "what"),
    [
        (Call("a.b", {}), Observation("ran", {}), None, "not registered"),
        (Call("a.b", {}), Observation("ran", {}), weigh(), "was called"),
        (Call("fleet.weigh", {}), Observation("done", {}), weigh(), "outcome"),  # type: ignore[arg-type]
        (Call("fleet.weigh", {}), Observation("ran", []), weigh(), "mapping"),  # type: ignore[arg-type]
        (Call("fleet.weigh", {}), Observation("ran", {"mass": object()}), weigh(), "'mass'.*not a JSON type"),
    ],
)
def test_impossible_turns_are_refused(call: Call, observation: Observation, capability: Any, what: str) -> None:
    with pytest.raises(StateError, match=what):
        ExecutionState.start("q").observe(call, observation, capability, incomplete=True)
    with pytest.raises(StateError, match=what):
        omissions(call, observation, capability)


@pytest.mark.parametrize("incomplete", [1, 0, None, "true"])
def test_incomplete_is_a_boolean(incomplete: Any) -> None:
    with pytest.raises(SchemaRouterError, match="incomplete"):
        ExecutionState.start("q").observe(
            Call("fleet.weigh", {}), Observation("ran", {}), weigh(), incomplete=incomplete
        )


def test_blocked_call_of_a_registered_route_is_executed_once() -> None:
    state = ExecutionState.start("q")
    blocked = Observation("blocked", {"status": "blocked", "error": "not_exposed: fleet.weigh", "vehicle_id": "V-7"})
    for _ in range(2):
        state = state.observe(Call("fleet.weigh", {}), blocked, weigh(), incomplete=True)
    assert state.executed_registered_route_ids == ("fleet.weigh",)
    assert state.observation_field_names == ("error", "status", "vehicle_id")
    assert state.stable_observed_identifiers == state.observation_semantic_ids == ()
    assert (state.last_execution_status, state.last_error_class) == ("blocked", "not_exposed")
