"""Every way around the constructor: it gives a valid state, or a clear error; never wrong bytes."""

from __future__ import annotations

import copy
import enum
import pickle
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from pydantic import BaseModel, TypeAdapter, create_model
from pydantic_core import PydanticSerializationError

from schemarouter.catalog import Capability
from schemarouter.state import FIELDS, Call, ExecutionState, Observation, error_class
from schemarouter.state.leakage import ForbiddenFieldError, StateError
from tests.strategies import LAWS, states

LISTS = [name for name in FIELDS if name.startswith("observation_") or name == "executed_registered_route_ids"]
ADAPTER = TypeAdapter(ExecutionState)


class Envelope(BaseModel):
    state: ExecutionState


def seen() -> ExecutionState:
    outputs = [{"name": "lease_id", "type": "string", "unit": "kg", "dimension": "mass", "qualifiers": {"a": "b"}}]
    contract = {"provider": "lab", "operation": "renew", "description": "", "effect": "write", "outputs": outputs}
    capability, observation = Capability.model_validate(contract), Observation("ran", {"lease_id": "L-1"})
    return ExecutionState.start("q").observe(Call("lab.renew", {}), observation, capability, incomplete=True)


class Sub(str):
    """A string that is not a plain one, and lies about what it says."""

    def __str__(self) -> str:
        return "something else"


class Word(str, enum.Enum):  # noqa: UP042  (StrEnum formats differently; this is the common spelling)
    KG = "kg"
    OK = "ok"


COPIES: list[Callable[[ExecutionState], ExecutionState]] = [
    copy.copy,
    copy.deepcopy,
    lambda state: state.model_copy(),
    lambda state: state.model_copy(deep=True),
    lambda state: state.model_copy(update={}),
    lambda state: pickle.loads(pickle.dumps(state)),
    lambda state: ExecutionState.model_construct(**state.model_dump()),
    lambda state: ExecutionState.model_validate(state),
    lambda state: ExecutionState.model_validate(state.model_dump()),
    lambda state: ExecutionState.model_validate(state.model_dump(mode="json")),
    lambda state: ExecutionState.model_validate_json(state.model_dump_json()),
    lambda state: ADAPTER.validate_python(state.model_dump()),
    lambda state: Envelope.model_validate(orjson.loads(Envelope(state=state).model_dump_json())).state,
]
EXITS: list[Callable[[ExecutionState], Any]] = [
    lambda state: state.canonical_json(),
    lambda state: state.retrieval_query(),
    lambda state: state.model_dump(),
    lambda state: state.model_dump_json(),
    lambda state: state.model_dump(include={"last_error_class"}),
    pickle.dumps,
    copy.copy,
    copy.deepcopy,
    lambda state: state.model_copy(),
    lambda state: state.observe(Call("x", {}), Observation("error", {}), None, incomplete=True),
    lambda state: ExecutionState.model_validate(state),
    lambda state: Envelope(state=state),
]
NESTED_EXITS: list[Callable[[ExecutionState], Any]] = [
    ADAPTER.dump_json,
    ADAPTER.dump_python,
    lambda state: Envelope.model_construct(state=state).model_dump(),
    lambda state: Envelope.model_construct(state=state).model_dump_json(),
]


@LAWS
@given(states())
def test_copies_are_equal_to_the_byte(state: ExecutionState) -> None:
    for make in COPIES:
        other = make(state)
        assert other == state
        assert hash(other) == hash(state)
        assert other.canonical_json() == state.canonical_json()


def tampered(name: str, value: Any) -> ExecutionState:
    state = seen()
    state.__dict__[name] = value
    return state


BAD: list[tuple[str, Any]] = [
    *((name, ["free text in here"]) for name in LISTS),
    *((name, (Sub("kg"),)) for name in LISTS),
    ("observation_units", (Word.KG,)),
    ("observation_units", "kg"),
    ("observation_units", {"kg"}),
    ("observation_units", None),
    ("observation_units", ("\ud800",)),
    ("observation_units", (float("nan"),)),
    ("observation_units", (2**70,)),
    ("observation_units", (10**5000,)),
    ("stable_observed_identifiers", ("b", "a")),
    ("stable_observed_identifiers", ("a", "a")),
    ("stable_observed_identifiers", (1,)),
    ("stable_observed_identifiers", (True,)),
    ("original_query", Sub("q")),
    ("original_query", "\udfff"),
    ("original_query", "a\n[EXECUTION_STATE]\nb"),
    ("original_query", 7),
    ("last_execution_status", Word.OK),
    ("last_execution_status", Sub("ok")),
    ("last_execution_status", 10**5000),
    ("last_error_class", "timeout"),
    ("last_error_class", float("nan")),
    ("task_incomplete_boolean", 1),
    ("task_incomplete_boolean", "true"),
    ("task_incomplete_boolean", None),
    ("surprise", 1),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{at}-{name}" for at, (name, _) in enumerate(BAD)])
def test_bad_values_neither_enter_nor_leave(name: str, value: Any) -> None:
    fields = {**seen().model_dump(), name: value}
    for enter in (
        lambda: ExecutionState(**fields),
        lambda: ExecutionState.model_validate(fields),
        lambda: ExecutionState.model_validate(fields, strict=False, extra="ignore"),
        lambda: ExecutionState.model_construct(**fields),
        lambda: seen().model_copy(update={name: value}),
        lambda: ADAPTER.validate_python(fields, strict=False),
        lambda: Envelope.model_validate({"state": fields}),
    ):
        with pytest.raises(StateError, match=name):
            enter()
    for leave in EXITS:
        with pytest.raises(StateError, match=name):
            leave(tampered(name, value))
    for leave in NESTED_EXITS:
        with pytest.raises(PydanticSerializationError, match=name):
            leave(tampered(name, value))


@pytest.mark.parametrize("leave", EXITS)
def test_smuggled_forbidden_field_is_distinguished(leave: Callable[[ExecutionState], Any]) -> None:
    with pytest.raises(ForbiddenFieldError, match="Gold-Next"):
        leave(tampered("Gold-Next Route Id", "a.b"))
    with pytest.raises(ForbiddenFieldError, match="condition_name"):
        leave(tampered("observation_qualifiers", ("condition_name=x",)))
    with pytest.raises(ForbiddenFieldError, match="condition_name"):
        leave(tampered("observation_units", ("condition_name\uff1dx",)))
    extra = seen()
    object.__setattr__(extra, "__pydantic_extra__", {"condition_name": 1})
    with pytest.raises(ForbiddenFieldError, match="condition_name"):
        leave(extra)


@pytest.mark.parametrize("leave", EXITS)
def test_missing_fields_are_caught(leave: Callable[[ExecutionState], Any]) -> None:
    with pytest.raises(StateError, match="is missing"):
        leave(ExecutionState.__new__(ExecutionState))
    emptied = seen()
    del emptied.__dict__["observation_units"]
    with pytest.raises(StateError, match="observation_units: is missing"):
        leave(emptied)


def test_list_mutated_in_place_is_judged_when_written() -> None:
    held = ["kg"]
    state = tampered("observation_units", held)
    assert state.canonical_json() == seen().canonical_json()
    held.append("a long story")
    with pytest.raises(StateError, match="observation_units"):
        state.canonical_json()


def test_what_was_handed_in_is_not_shared() -> None:
    held = ["kg"]
    state = ExecutionState.model_validate({**seen().model_dump(), "observation_units": held})
    held.append("a long story")
    assert state.canonical_json() == seen().canonical_json()


def test_attributes_cannot_be_set_or_deleted() -> None:
    state = seen()
    with pytest.raises(StateError, match="never changes"):
        state.original_query = "other"
    with pytest.raises(StateError, match="never changes"):
        state.novel = 1
    with pytest.raises(StateError, match="never changes"):
        del state.original_query
    object.__setattr__(state, "original_query", "a b\n[EXECUTION_STATE]")
    with pytest.raises(StateError, match="marker"):
        state.retrieval_query()


def test_no_subclasses() -> None:
    with pytest.raises(StateError, match="not subclassed"):
        type("Wider", (ExecutionState,), {"__annotations__": {"condition_name": str}})
    with pytest.raises(StateError, match="not subclassed"):
        create_model("Wider", __base__=ExecutionState, more=(int, 1))


def test_raw_pickle_state_and_old_copy_are_refused() -> None:
    blank = ExecutionState.__new__(ExecutionState)
    with pytest.raises(StateError, match="canonical JSON"):
        blank.__setstate__({"__dict__": seen().model_dump()})
    with pytest.raises(StateError, match="model_copy"):
        seen().copy(update={"original_query": "x"})


def test_altered_pickle_is_refused() -> None:
    data = pickle.dumps(seen())
    with pytest.raises(StateError, match="stable_observed_identifiers"):
        pickle.loads(data.replace(b'"L-1"', b'"L 1"'))


@pytest.mark.parametrize("thing", [None, "x", b"{}", 1, [], [("original_query", "q")], object()])
def test_what_is_no_mapping_is_refused(thing: Any) -> None:
    for enter in (ExecutionState.model_validate, ADAPTER.validate_python, ExecutionState.model_validate_strings):
        with pytest.raises(StateError, match="mapping"):
            enter(thing)


@pytest.mark.parametrize("key", [1, None, b"original_query", Sub("original_query"), ("a",)])
def test_keys_are_plain_strings(key: Any) -> None:
    fields = {name: value for name, value in seen().model_dump().items() if name != key}
    with pytest.raises(StateError, match="plain strings"):
        ExecutionState.model_validate({**fields, key: "q"})


def test_aliases_and_attributes_are_no_way_in() -> None:
    fields = seen().model_dump()
    aliased = {name.title().replace("_", ""): value for name, value in fields.items()}
    with pytest.raises(StateError, match="unknown state field"):
        ExecutionState.model_validate(aliased, by_alias=True)

    class Lookalike:
        def __init__(self) -> None:
            vars(self).update(fields)

    with pytest.raises(StateError, match="mapping"):
        ADAPTER.validate_python(Lookalike(), from_attributes=True)


def test_outcome_and_error_of_odd_string_types() -> None:
    call, state = Call("x", {}), ExecutionState.start("q")
    with pytest.raises(StateError, match="outcome"):
        state.observe(call, Observation(Sub("error"), {}), None, incomplete=True)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="'error'"):
        state.observe(call, Observation("error", {"error": Sub("timeout")}), None, incomplete=True)
    after = state.observe(call, Observation("error", {Sub("error"): "x", "note": Sub("y")}), None, incomplete=True)
    assert after.observation_field_names == ()
    assert error_class(Sub("timeout: x")) == "timeout"
    assert type(error_class(Sub("timeout"))) is str


def test_a_state_inside_other_json_is_refused_since_it_could_hold_a_key_twice() -> None:
    state = ExecutionState.start("x")
    for read in (
        lambda: ADAPTER.validate_json(state.canonical_json()),
        lambda: Envelope.model_validate_json(Envelope(state=state).model_dump_json()),
    ):
        with pytest.raises(StateError, match=r"could hold a key twice.*ExecutionState\.parse"):
            read()
