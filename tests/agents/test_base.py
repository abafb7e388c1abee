"""What may fill an argument, and the registry of agents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.agents.base import (
    REQUEST_MORE_TOOLS,
    SYSTEM_PROMPT,
    TASK_INCOMPLETE,
    AgentView,
    SeenValue,
    SeenValues,
    arguments_from,
    fits,
)
from schemarouter.agents.registry import prepared, resolve
from schemarouter.catalog import Contract, Parameter, matches_type
from schemarouter.retrieval.spec import SpecError
from surface.environment import Environment, PlanGuide
from tests.strategies import LAWS
from tests.toys import CATALOG, CHAIN

MASS = {"semantic_id": "load.mass", "dimension": "mass"}


def seen(value: Any, name: str = "mass", kind: str = "number", **contract: Any) -> SeenValue:
    return SeenValue(value, Contract.model_validate({"name": name, "type": kind, **contract}))


def takes(name: str = "mass", kind: str = "number", **contract: Any) -> Parameter:
    return Parameter.model_validate({"name": name, "type": kind, "required": True, **contract})


@pytest.mark.parametrize(
    ("value", "parameter", "fit"),
    [
        (seen(2.5, "a", unit="kg", **MASS), takes("b", unit="kg", **MASS), True),
        (seen(2.5, unit="kg", **MASS), takes(unit="t", **MASS), False),
        (seen(2.5, semantic_id="load.volume"), takes(**MASS), False),
        (seen(2.5), takes(**MASS), True),
        (seen(2.5, "a"), takes("b"), False),
        (seen(2.5), takes(kind="string"), False),
        (seen("kg", "u", "string"), takes("u", "string", enum=["kg", "t"]), True),
        (seen("lb", "u", "string"), takes("u", "string", enum=["kg", "t"]), False),
        (
            seen("lb", "u", "string", semantic_id="x.unit"),
            takes("v", "string", semantic_id="x.unit", enum=["kg"]),
            False,
        ),
    ],
)
def test_a_value_fits_by_meaning_and_unit_where_both_are_registered_else_by_name_and_type(
    value: SeenValue, parameter: Parameter, fit: bool
) -> None:
    assert fits(value, parameter) is fit


KINDS: dict[str, Any] = {
    "string": "x",
    "integer": 3,
    "number": 2.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


@LAWS
@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)), st.sampled_from([{}, {"semantic_id": "order.id"}])
)
def test_whatever_fits_is_schema_valid(given_kind: str, taken_kind: str, meaning: dict[str, Any]) -> None:
    value, parameter = seen(KINDS[given_kind], kind=given_kind, **meaning), takes(kind=taken_kind, **meaning)
    if fits(value, parameter):
        assert matches_type(value.value, parameter.type)


def test_arguments_are_filled_with_the_first_fitting_value_or_not_at_all() -> None:
    values = SeenValues([seen("a", "x", "string"), seen("b", "x", "string"), seen(1, "n", "integer")])
    assert arguments_from([takes("x", "string"), takes("n", "integer")], values) == {"x": "a", "n": 1}
    assert arguments_from([takes("x", "string"), takes("missing", "string")], values) is None
    assert arguments_from([], values) == {}


contracts: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    name=st.sampled_from("ab"),
    kind=st.sampled_from(["string", "integer"]),
    semantic_id=st.sampled_from([None, "order.id", "order.size"]),
)


@LAWS
@given(st.lists(contracts, max_size=6), contracts)
def test_the_value_that_is_found_is_the_first_of_all_that_fits(
    given_values: list[dict[str, Any]], taken: dict[str, Any]
) -> None:
    values = [seen(KINDS[value["kind"]], **value) for value in given_values]
    parameter = takes(**taken)
    expected = next((value for value in values if fits(value, parameter)), None)
    assert SeenValues(values).fitting(parameter) is expected


def test_the_system_prompt_says_how_to_ask_and_what_the_answer_means() -> None:
    assert REQUEST_MORE_TOOLS == "REQUEST_MORE_TOOLS" and TASK_INCOMPLETE == "TASK_INCOMPLETE"
    assert f"answer exactly {REQUEST_MORE_TOOLS}" in SYSTEM_PROMPT and TASK_INCOMPLETE in SYSTEM_PROMPT


@pytest.mark.parametrize(
    ("spec", "full", "does"), [("reference", "true", "call"), ("reference(probe=false)", "false", "stop")]
)
def test_the_spec_of_an_agent_resolves_to_its_identity_and_builds_it(spec: str, full: str, does: str) -> None:
    assert str(resolve(spec)) == f"reference(order=ready,probe={full})"
    environment = Environment(CHAIN.key, CATALOG, seed_text="x")
    agent = prepared(spec)(PlanGuide(environment.progress, CATALOG))
    assert agent.act(AgentView("q", ("misc.look_03",), False, True, (), CATALOG)).kind == does


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("referenz", "Did you mean 'reference'"),
        ("reference(probe=yes)", "unknown probe 'yes'"),
        ("reference(prob=true)", "Did you mean 'probe'"),
        ("reference(bm25)", "takes 0 nested specs"),
    ],
)
def test_an_agent_that_does_not_exist_or_takes_something_else_is_refused(spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        resolve(spec)
