"""Execution state: the twelve observable fields, their canonical bytes, and how a turn changes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, final

import orjson
from pydantic import ConfigDict, model_validator

from schemarouter import forbidden
from schemarouter.catalog import IDENTIFIER_PATTERN, Capability, CatalogError, OutputField, json_type
from schemarouter.errors import unknown
from schemarouter.forbidden import SealedModel, shorten
from schemarouter.forbidden import StateError as StateError
from schemarouter.state_contract import ALWAYS_COUNTED, FAILED, NAME, OUTCOMES, ROUTES, SEPARATOR, STATUSES
from schemarouter.state_contract import CONTRACT as CONTRACT
from schemarouter.state_contract import FIELDS as FIELDS
from schemarouter.state_contract import MARKER as MARKER
from schemarouter.state_contract import PATTERNS as PATTERNS
from schemarouter.state_contract import Outcome as Outcome
from schemarouter.state_contract import Status as Status
from schemarouter.state_contract import fingerprint as fingerprint

_MATCH: Final = {name: re.compile(pattern).fullmatch for name, pattern in PATTERNS.items()}
_MATCH_NAME: Final = re.compile(NAME).fullmatch
_IDENTIFIER_INTEGERS: Final = 10**128


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a tool, as the agent made it."""

    route_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What came back: top-level observed fields; a failed turn carries `status` and `error` there."""

    outcome: Outcome
    payload: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Whether the turn ended in an error or was blocked."""
        return self.outcome != "ran"

    @property
    def error_text(self) -> object:
        """The payload's error when the turn failed, else None."""
        return self.payload.get("error") if self.failed else None


def error_class(text: object) -> str:
    """The trimmed error text before its first colon if it is a plain name, else ``unclassified``."""
    if isinstance(text, str):
        head = str.__str__(text).strip().partition(":")[0]
        if _MATCH_NAME(head):
            return head
    return "unclassified"


def _query_problem(value: object) -> str | None:
    if type(value) is not str:
        return f"must be a plain string, got {type(value).__name__}"
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"holds a lone surrogate at position {error.start}; give it as valid Unicode text"
    if MARKER in value and any(line.strip() == MARKER for line in value.splitlines()):
        return f"holds the marker line {MARKER}, which separates query and state; reword that line"
    return None


def _list_problem(name: str, value: object) -> str | None:
    if type(value) is not tuple:
        return f"must be a list of strings, got {type(value).__name__}"
    match, ordered, previous = _MATCH[name], name != ROUTES, ""
    for item in value:
        if type(item) is not str:
            return f"holds {shorten(item)} of type {type(item).__name__}; only plain strings are allowed"
        if match(item) is None:
            return f"holds {shorten(item)}, which does not match {PATTERNS[name]}"
        if ordered and item <= previous:
            return f"{shorten(item)} stands after {shorten(previous)}; entries must be unique and sorted"
        previous = item
        if ("=" in item or not item.isascii()) and forbidden.atom_is_forbidden(item):
            return f"holds the forbidden atom {shorten(item)}"
    if not ordered and len(set(value)) != len(value):
        return "holds a route twice; entries must be unique, at their first occurrence"
    return None


def _status_problem(value: object) -> str | None:
    fits = type(value) is str and value in STATUSES
    return None if fits else f"must be one of {', '.join(STATUSES)}, got {shorten(value)}"


def _error_class_problem(value: object) -> str | None:
    fits = value is None or (type(value) is str and _MATCH_NAME(value))
    return None if fits else f"must be null or a plain string that matches {NAME}, got {shorten(value)}"


def _boolean_problem(value: object) -> str | None:
    return None if type(value) is bool else f"must be true or false, got {shorten(value)}"


_CHECKS: Final[dict[str, Callable[[object], str | None]]] = {
    "original_query": _query_problem,
    **{name: partial(_list_problem, name) for name in PATTERNS},
    "last_execution_status": _status_problem,
    "last_error_class": _error_class_problem,
    "task_incomplete_boolean": _boolean_problem,
}


def _problems(fields: Mapping[str, Any]) -> list[str]:
    """Everything wrong with the values of those fields that are there."""
    found = [f"{name}: {text}" for name, value in fields.items() if (text := _CHECKS[name](value)) is not None]
    if found or len(fields) != len(FIELDS):
        return found
    status = fields["last_execution_status"]
    if (status in FAILED) != (fields["last_error_class"] is not None):
        found.append(f"last_error_class: is null exactly when the last turn did not fail, but the status is {status}")
    if status == "not_run" and any(fields[name] for name in PATTERNS):
        found.append("last_execution_status: is not_run, but something has been executed or observed")
    return found


def _checked(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the twelve fields of `data`, lists as tuples. Raises ForbiddenFieldError first, then StateError."""
    forbidden.refuse_forbidden(data)
    names = [key for key in data if type(key) is str]
    found = [unknown("state field", key[:80], FIELDS) for key in names if key not in _CHECKS]
    found += [f"{shorten(key)}: only plain strings are field names" for key in data if type(key) is not str]
    found += [f"{name}: is missing" for name in FIELDS if name not in names]
    ready = {name: tuple(data[name]) if type(data[name]) is list else data[name] for name in FIELDS if name in names}
    # Again, on the copies: what a hostile container showed the first time need not be what it gave now.
    forbidden.refuse_forbidden(ready)
    found += _problems(ready)
    if found:
        raise StateError("not an execution state: " + "; ".join(found))
    return ready


class _Gathered:
    """What one observation offers to the state, and how much of it has to stay outside."""

    __slots__ = ("left_out", "registered", "terms")

    def __init__(self) -> None:
        self.terms: dict[str, set[str]] = {name: set() for name in PATTERNS}
        self.registered = 0
        self.left_out = {"unregistered_fields": 0, "identifiers": 0, "contract_terms": 0}

    def term(self, name: str, text: str | None) -> None:
        if text is None:
            return
        if type(text) is str and _MATCH[name](text):
            forbidden.refuse_atom(text)
            self.terms[name].add(text)
        else:
            self.left_out["contract_terms"] += 1

    def identifier(self, value: object) -> None:
        # Python refuses to write very long integers out, and no integer of that length could match.
        text = str(value) if type(value) is int and abs(value) < _IDENTIFIER_INTEGERS else value
        if type(text) is str and IDENTIFIER_PATTERN.fullmatch(text):
            self.terms["stable_observed_identifiers"].add(text)
        elif value is not None:
            self.left_out["identifiers"] += 1

    def contract(self, output: OutputField, value: object) -> None:
        self.term("observation_semantic_ids", output.semantic_id)
        self.term("observation_units", output.unit)
        self.term("observation_dimensions", output.dimension)
        for atom in output.qualifier_atoms:
            self.term("observation_qualifiers", atom)
        if output.is_identifier and output.name not in ALWAYS_COUNTED:
            self.identifier(value)


def _gather(observation: Observation, capability: Capability | None) -> _Gathered:
    outputs: Mapping[str, OutputField] = {} if capability is None else capability.outputs_by_name
    gathered = _Gathered()
    names, types = gathered.terms["observation_field_names"], gathered.terms["observation_value_types"]
    for name, value in observation.payload.items():
        output = outputs.get(name) if type(name) is str and _MATCH_NAME(name) else None
        if output is None and not (type(name) is str and name in ALWAYS_COUNTED):
            gathered.left_out["unregistered_fields"] += 1
            continue
        try:
            types.add(json_type(value))
        except CatalogError as error:
            raise StateError(f"observed field {name!r}: {error}") from None
        names.add(name)
        if output is not None:
            gathered.registered += 1
            if not observation.failed:
                gathered.contract(output, value)
    return gathered


def _require_turn(call: Call, observation: Observation, capability: Capability | None) -> None:
    if type(observation.outcome) is not str or observation.outcome not in OUTCOMES:
        raise StateError(unknown("outcome", shorten(observation.outcome), OUTCOMES))
    if not isinstance(observation.payload, Mapping):
        raise StateError(f"observation payload must be a mapping, got {type(observation.payload).__name__}.")
    if capability is None:
        if not observation.failed:
            raise StateError(f"route {call.route_id!r} is not registered, so it cannot have run: pass its capability.")
    elif capability.route_id != call.route_id:
        raise StateError(f"route {call.route_id!r} was called, but the capability is {capability.route_id!r}.")
    elif IDENTIFIER_PATTERN.fullmatch(capability.route_id) is None:
        raise StateError(f"route {shorten(capability.route_id)} does not match {IDENTIFIER_PATTERN.pattern}.")


def omissions(call: Call, observation: Observation, capability: Capability | None) -> dict[str, int]:
    """Count what of a turn stays outside the state: fields, identifiers, contract terms. Raises as observe does."""
    _require_turn(call, observation, capability)
    return _gather(observation, capability).left_out


@final
class ExecutionState(SealedModel):
    """What has been observed so far. Every way in validates, and so does every way out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    original_query: str
    executed_registered_route_ids: tuple[str, ...]
    observation_field_names: tuple[str, ...]
    observation_semantic_ids: tuple[str, ...]
    observation_value_types: tuple[str, ...]
    observation_units: tuple[str, ...]
    observation_dimensions: tuple[str, ...]
    observation_qualifiers: tuple[str, ...]
    stable_observed_identifiers: tuple[str, ...]
    last_execution_status: Status
    last_error_class: str | None
    task_incomplete_boolean: bool

    def _checked_copy(self) -> Self:
        return self._trusted(self._held())

    @classmethod
    def _trusted(cls, fields: dict[str, Any]) -> Self:
        # Only for fields that have been checked: pydantic would check them again at ten times the price.
        state = cls.__new__(cls)
        object.__setattr__(state, "__dict__", fields)
        object.__setattr__(state, "__pydantic_fields_set__", set(FIELDS))
        object.__setattr__(state, "__pydantic_extra__", None)
        object.__setattr__(state, "__pydantic_private__", None)
        return state

    def _raw(self) -> dict[Any, Any]:
        extra = getattr(self, "__pydantic_extra__", None)
        return {**self.__dict__, "__pydantic_extra__": extra} if extra else {**self.__dict__}

    def _held(self) -> dict[str, Any]:
        """A checked copy of the fields; what is written out is this copy. Raises StateError if they were tampered."""
        raw = self._raw()
        if raw.keys() == _CHECKS.keys():
            fields = {name: raw[name] for name in FIELDS}
            if not _problems(fields):
                return fields
        return _checked(raw)

    @classmethod
    def start(cls, query: str) -> Self:
        """The state before the first turn. Raises StateError for a query that cannot be written or holds the marker."""
        empty: dict[str, Any] = dict.fromkeys(PATTERNS, ())
        last = {"last_execution_status": "not_run", "last_error_class": None, "task_incomplete_boolean": True}
        return cls._trusted(_checked({"original_query": query, **empty, **last}))

    def observe(
        self, call: Call, observation: Observation, capability: Capability | None, *, incomplete: bool
    ) -> ExecutionState:
        """The state after a turn; no capability: an unregistered route. Raises StateError for an impossible turn."""
        fields = self._held()
        _require_turn(call, observation, capability)
        if type(incomplete) is not bool:
            raise StateError(f"incomplete must be true or false, got {shorten(incomplete)}.")
        gathered = _gather(observation, capability)
        for name, terms in gathered.terms.items():
            new = terms.difference(fields[name])
            if new:
                fields[name] = tuple(sorted((*fields[name], *new)))
        if capability is not None and capability.route_id not in fields[ROUTES]:
            fields[ROUTES] = (*fields[ROUTES], capability.route_id)
        if observation.failed:
            fields["last_execution_status"] = observation.outcome
            fields["last_error_class"] = error_class(observation.error_text)
        else:
            fields["last_execution_status"] = "ok" if gathered.registered else "executed"
            fields["last_error_class"] = None
        fields["task_incomplete_boolean"] = incomplete
        return self._trusted(fields)

    def canonical_json(self) -> bytes:
        """All twelve fields as canonical JSON. Raises StateError if the state was tampered with."""
        return orjson.dumps(self._held(), option=orjson.OPT_SORT_KEYS)

    def retrieval_query(self) -> str:
        """The query, the marker line and the canonical JSON of the other eleven fields. Raises as canonical_json."""
        fields = self._held()
        query: str = fields.pop("original_query")
        return f"{query}{SEPARATOR}{orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a state from any JSON spelling of it. Raises ForbiddenFieldError, else StateError with all mistakes."""
        return cls._trusted(_checked(forbidden.read_object(data)))

    @model_validator(mode="wrap")
    @classmethod
    def _check_entry(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        fields = data._raw() if isinstance(data, ExecutionState) else data
        if not isinstance(fields, Mapping):
            raise StateError(f"an execution state is made of a mapping of its fields, got {type(data).__name__}.")
        return handler(_checked(dict(fields)))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A validated copy with some fields replaced. Raises ForbiddenFieldError or StateError."""
        return self._trusted(_checked({**self._raw(), **dict(update or {})}))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExecutionState.parse, (self.canonical_json(),))

    def __init_subclass__(cls, **_options: Any) -> None:
        raise StateError("ExecutionState has exactly twelve fields and is not subclassed.")


def _read_canonical(query: str, rest: str) -> ExecutionState | None:
    """The state that canonical JSON holds, or None for anything that is not sound: the slow way then says what is wrong.

    Retrievers read a state at every refresh. JSON that is written again to the same bytes has no key twice and no odd number.
    """
    try:
        told = orjson.loads(rest)
        same = isinstance(told, dict) and orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode() == rest
    except (orjson.JSONDecodeError, TypeError, UnicodeError):
        return None
    if not same or "original_query" in told or len(told) != len(FIELDS) - 1:
        return None
    fields = {name: tuple(value) if type(value) is list else value for name, value in told.items() if name in _CHECKS}
    fields["original_query"] = query
    if len(fields) != len(FIELDS) or _problems(fields):
        return None
    forbidden.refuse_forbidden(fields)
    return ExecutionState._trusted({name: fields[name] for name in FIELDS})


def parse_retrieval_query(text: str) -> ExecutionState:
    """Read a rendered query back. Raises StateError when `text` is not, to the byte, what a state renders."""
    if type(text) is not str or SEPARATOR not in text:
        raise StateError(f"not a rendered query: the line {MARKER} between query and state is missing.")
    query, _, rest = text.rpartition(SEPARATOR)
    state = _read_canonical(query, rest)
    if state is not None:
        return state
    fields = forbidden.read_object(rest)
    if "original_query" in fields:
        raise StateError("not a rendered query: the query stands before the marker line, and only there.")
    state = ExecutionState._trusted(_checked({**fields, "original_query": query}))
    if state.retrieval_query() != text:
        raise StateError("not a rendered query: the state in it is no canonical JSON (sorted keys, no white space).")
    return state
