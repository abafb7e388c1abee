"""Execution state: the twelve observable fields, their canonical bytes, and how a turn changes them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, Self, final

import orjson
from pydantic import ConfigDict, ValidationInfo, model_validator

from schemarouter.caches import Bounded
from schemarouter.catalog import Capability
from schemarouter.errors import unknown
from schemarouter.state import leakage
from schemarouter.state.contract import FAILED, FIELDS, MARKER, NAME, PATTERNS, ROUTES, SEPARATOR, STATUSES, Status
from schemarouter.state.leakage import SealedModel, StateError, shorten
from schemarouter.state.turns import MATCH, MATCH_NAME, Call, Observation, error_class, gather, require_turn

# Entries found sound before, by field. Whatever is looked up is known to be a plain string, so equal means the same letters.
_SOUND_ENTRIES: Final[dict[str, set[str]]] = {name: set() for name in PATTERNS}
_MAX_ENTRIES: Final = 8192
# Whole values found sound before, by field and identity: a plain string, and a tuple of them, never changes. An entry keeps
# its value alive, so that no other object can have its identity.
_SOUND_VALUES: Final = {name: Bounded[int, object](256) for name in ("original_query", *PATTERNS)}
# The same of all twelve values together.
_SOUND_STATES: Final = Bounded[tuple[int, ...], tuple[object, ...]](256)
_UNSEEN: Final = object()


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
    known, ordered, previous = _SOUND_ENTRIES[name], name != ROUTES, ""
    plain = {*map(type, value)} <= {str} and known.issuperset(value)
    if plain and (all(map(operator.lt, value, value[1:])) if ordered else len({*value}) == len(value)):
        return None
    match = MATCH[name]
    for item in value:
        if type(item) is not str:
            return f"holds {shorten(item)} of type {type(item).__name__}; only plain strings are allowed"
        if match(item) is None:
            return f"holds {shorten(item)}, which does not match {PATTERNS[name]}"
        if ordered and item <= previous:
            return f"{shorten(item)} stands after {shorten(previous)}; entries must be unique and sorted"
        previous = item
        if ("=" in item or not item.isascii()) and leakage.atom_is_forbidden(item):
            return f"holds the forbidden atom {shorten(item)}"
    if not ordered and len(set(value)) != len(value):
        return "holds a route twice; entries must be unique, at their first occurrence"
    if len(known) + len(value) > _MAX_ENTRIES:
        known.clear()
    known.update(value)
    return None


def _status_problem(value: object) -> str | None:
    fits = type(value) is str and value in STATUSES
    return None if fits else f"must be one of {', '.join(STATUSES)}, got {shorten(value)}"


def _error_class_problem(value: object) -> str | None:
    fits = value is None or (type(value) is str and MATCH_NAME(value))
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


def _grown(name: str, held: tuple[str, ...], new: Collection[str]) -> tuple[str, ...]:
    """A sound list with entries that it does not hold; the whole is as sound as they are."""
    whole = (*held, *new) if name == ROUTES else tuple(sorted((*held, *new)))
    if _list_problem(name, tuple(sorted(new))) is None:
        _SOUND_VALUES[name][id(whole)] = whole
    return whole


def _problems(fields: Mapping[str, Any]) -> list[str]:
    """Everything wrong with the values of those fields that are there."""
    found = []
    for name, value in fields.items():
        known = _SOUND_VALUES.get(name)
        if known is not None and known.get(id(value), _UNSEEN) is value:
            continue
        if (text := _CHECKS[name](value)) is not None:
            found.append(f"{name}: {text}")
        elif known is not None:
            known[id(value)] = value
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
    leakage.refuse_forbidden(data)
    names = [key for key in data if type(key) is str]
    found = [unknown("state field", key[:80], FIELDS) for key in names if key not in _CHECKS]
    found += [f"{shorten(key)}: only plain strings are field names" for key in data if type(key) is not str]
    found += [f"{name}: is missing" for name in FIELDS if name not in names]
    ready = {name: tuple(data[name]) if type(data[name]) is list else data[name] for name in FIELDS if name in names}
    # Again, on the copies: what a hostile container showed the first time need not be what it gave now.
    leakage.refuse_forbidden(ready)
    found += _problems(ready)
    if found:
        raise StateError("not an execution state: " + "; ".join(found))
    return ready


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
            fields = raw if tuple(raw) == FIELDS else {name: raw[name] for name in FIELDS}
            identity = tuple(map(id, fields.values()))
            if identity in _SOUND_STATES:
                return fields
            if not _problems(fields):
                _SOUND_STATES[identity] = tuple(fields.values())
                return fields
        return _checked(raw)

    @classmethod
    def start(cls, query: str) -> Self:
        """The state before the first turn. Raises StateError for a query that cannot be written or holds the marker."""
        last = {"last_execution_status": "not_run", "last_error_class": None, "task_incomplete_boolean": True}
        fields: dict[str, Any] = {"original_query": query, **dict.fromkeys(PATTERNS, ()), **last}
        return cls._trusted(_checked(fields) if _problems(fields) else fields)

    def observe(
        self, call: Call, observation: Observation, capability: Capability | None, *, incomplete: bool
    ) -> ExecutionState:
        """The state after a turn; no capability: an unregistered route. Raises StateError for an impossible turn."""
        return self.observe_all(call, observation, capability, incomplete=incomplete)[0]

    def observe_all(
        self, call: Call, observation: Observation, capability: Capability | None, *, incomplete: bool
    ) -> tuple[ExecutionState, dict[str, int]]:
        """The state after a turn, and the counts of `omissions`, read once for both. Raises as observe does."""
        fields = self._held()
        require_turn(call, observation, capability)
        if type(incomplete) is not bool:
            raise StateError(f"incomplete must be true or false, got {shorten(incomplete)}.")
        told, types, identifiers, left_out = gather(observation, capability)
        offered = {**told.terms, "observation_value_types": types, "stable_observed_identifiers": identifiers}
        for name, terms in offered.items():
            new = terms.difference(fields[name]) if terms else terms
            if new:
                fields[name] = _grown(name, fields[name], new)
        if capability is not None and capability.route_id not in fields[ROUTES]:
            fields[ROUTES] = _grown(ROUTES, fields[ROUTES], (capability.route_id,))
        if observation.failed:
            fields["last_execution_status"] = observation.outcome
            fields["last_error_class"] = error_class(observation.error_text)
        else:
            fields["last_execution_status"] = "ok" if told.registered else "executed"
            fields["last_error_class"] = None
        fields["task_incomplete_boolean"] = incomplete
        return self._trusted(fields), left_out

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
        return cls._trusted(_checked(leakage.read_object(data)))

    @model_validator(mode="wrap")
    @classmethod
    def _check_entry(cls, data: Any, handler: Callable[[Any], Self], info: ValidationInfo) -> Self:
        if info.mode == "json":
            raise StateError(
                "a state inside another model's JSON could hold a key twice unseen; read that JSON into plain values first, "
                "and the state with ExecutionState.parse."
            )
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
    # Sound lists hold no forbidden atom, and there is no name but the twelve: nothing else has to be refused.
    if len(fields) != len(FIELDS) or _problems(fields):
        return None
    return ExecutionState._trusted({name: fields[name] for name in FIELDS})


def parse_retrieval_query(text: str) -> ExecutionState:
    """Read a rendered query back. Raises StateError when `text` is not, to the byte, what a state renders."""
    if type(text) is not str or SEPARATOR not in text:
        raise StateError(f"not a rendered query: the line {MARKER} between query and state is missing.")
    query, _, rest = text.rpartition(SEPARATOR)
    state = _read_canonical(query, rest)
    if state is not None:
        return state
    fields = leakage.read_object(rest)
    if "original_query" in fields:
        raise StateError("not a rendered query: the query stands before the marker line, and only there.")
    state = ExecutionState._trusted(_checked({**fields, "original_query": query}))
    if state.retrieval_query() != text:
        raise StateError("not a rendered query: the state in it is no canonical JSON (sorted keys, no white space).")
    return state
