"""Forbidden names: any spelling, any depth, their own error, and nothing else by mistake."""

from __future__ import annotations

import json
import pickle
from collections import UserDict, deque
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from schemarouter.errors import SchemaRouterError
from schemarouter.state import ExecutionState
from schemarouter.state.leakage import FORBIDDEN, ForbiddenFieldError, StateError, forbidden_name, refuse_forbidden
from tests.strategies import LAWS, buried, forbidden_spellings, states


@LAWS
@given(st.data())
def test_every_spelling_is_recognised(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FORBIDDEN)))
    assert forbidden_name(data.draw(forbidden_spellings(name))) == name


@LAWS
@given(states(), st.data())
def test_refused_at_any_depth_through_every_door(state: ExecutionState, data: st.DataObject) -> None:
    spelling = data.draw(forbidden_spellings())
    where = data.draw(st.sampled_from([*ExecutionState.model_fields, "something_else"]))
    hostile = {**state.model_dump(), where: data.draw(buried(spelling))}
    flat = {**state.model_dump(), spelling: 1}
    for fields in (hostile, flat):
        doors: list[Any] = [
            lambda fields=fields: ExecutionState(**fields),
            lambda fields=fields: ExecutionState.model_validate(fields),
            lambda fields=fields: ExecutionState.model_validate(UserDict(fields)),
            lambda fields=fields: ExecutionState.model_construct(**fields),
            lambda fields=fields: state.model_copy(update=fields),
            lambda fields=fields: ExecutionState.parse(json.dumps(fields).encode()),
            lambda fields=fields: ExecutionState.model_validate_json(json.dumps(fields)),
            lambda fields=fields: ExecutionState.model_validate_strings(fields),
        ]
        for door in doors:
            with pytest.raises(ForbiddenFieldError) as caught:
                door()
            assert forbidden_name(caught.value.field) == forbidden_name(spelling)


def test_each_name_has_its_own_reason() -> None:
    assert len(set(FORBIDDEN.values())) == len(FORBIDDEN) == 8
    for name, why in FORBIDDEN.items():
        with pytest.raises(ForbiddenFieldError, match=f"'{name}' is forbidden.*{why}"):
            refuse_forbidden({name: None})


@pytest.mark.parametrize(
    "spelling",
    [
        "Condition Name",
        "conditionName",
        "CONDITION-NAMES",
        "conditions_names",
        "condition\u200bname",
        "".join(chr(ord(sign) + 0xFEE0) for sign in "condition_name"),
        "condition_name ",
        "cond\u0131t\u0131on_name",
        "co\u0301ndition_name",
        "SchemaRouterRankScore",
        "schema_router_rank_scores",
        "schemas.routers.ranks.positions",
        "goldNextRouteIDs",
        "gold next-route id",
        "\u24d5uture required route id",
    ],
)
def test_spellings(spelling: str) -> None:
    assert forbidden_name(spelling) is not None


@pytest.mark.parametrize(
    "innocent",
    [
        "condition",
        "name",
        "condition_name_of_part",
        "my_condition_name",
        "rank_score",
        "route_id",
        "",
        "日condition_name",
    ],
)
def test_equality_not_containment(innocent: str) -> None:
    assert forbidden_name(innocent) is None
    refuse_forbidden({innocent: [f"{innocent}=condition_name"]})


def test_values_are_not_searched() -> None:
    state = ExecutionState.start("condition_name=full; gold_next_route_id: a.b")
    assert "gold_next_route_id" in state.retrieval_query()
    refuse_forbidden({"a": "condition_name", "b": ["condition_name"], "c": "condition_name=x"})


def test_reported_before_unknown_fields_and_duplicates() -> None:
    for data in (
        b'{"what":1,"condition_name":1}',
        b'{"a":{"condition_name":1},"a":1}',
        b'{"a":1,"a":["condition_name=x"]}',
    ):
        with pytest.raises(ForbiddenFieldError):
            ExecutionState.parse(data)


@dataclass
class Holder:
    condition_name: int = 1


class Model(BaseModel):
    oracle_task_graph: int = 1


class Loud(str):
    """A string that lies about what it says."""

    def __str__(self) -> str:
        return "harmless"


@pytest.mark.parametrize(
    "value",
    [
        Holder(),
        Model(),
        {Loud("condition_name"): 1},
        [Loud("condition_name=1")],
        deque(["condition_name=1"]),
        {"condition_name=1"},
        frozenset({("condition_name=1",)}),
        {("condition_name=1",): 1},
        {"a": 1}.keys() | {"condition_name=2"},
        ["condition_name\u207cx"],
        ["condition_name\u2a74x"],
    ],
)
def test_unusual_containers(value: Any) -> None:
    with pytest.raises(ForbiddenFieldError):
        refuse_forbidden({"a": [value]})


def test_deep_and_circular_values() -> None:
    deep: Any = {"condition_name": 1}
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ForbiddenFieldError):
        ExecutionState.model_validate({"original_query": deep})
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(StateError):
        ExecutionState.model_validate({"observation_units": circular, "original_query": circular})


def test_error_survives_a_process_boundary() -> None:
    error = ForbiddenFieldError("Condition Name", "because")
    back = pickle.loads(pickle.dumps(error))
    assert (back.field, back.reason, str(back)) == ("Condition Name", "because", str(error))
    assert isinstance(error, SchemaRouterError)
    assert not isinstance(error, ValueError)
