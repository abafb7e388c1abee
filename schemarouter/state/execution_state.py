"""Execution state: twelve observable fields, how a turn changes them, and their canonical bytes."""

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

# Valid entries met before, by field. Only plain strings are looked up, so equal entries have the same characters.
_VALID_ENTRIES: Final[dict[str, set[str]]] = {name: set() for name in PATTERNS}
_MAX_ENTRIES: Final = 8192
# Valid values met before, by field and `id`: a plain string or a tuple of them never changes. The cache keeps the value alive,
# so that no other object can have its `id`.
_VALID_VALUES: Final = {name: Bounded[int, object](256) for name in ("original_query", *PATTERNS)}
# The same for all twelve values of a state together.
_VALID_STATES: Final = Bounded[tuple[int, ...], tuple[object, ...]](256)
_MISSING: Final = object()


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
    known, ordered, previous = _VALID_ENTRIES[name], name != ROUTES, ""
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
            return f"{shorten(item)} comes after {shorten(previous)}; entries must be unique and sorted"
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
    """A valid list with new entries added, and registered as valid where these are."""
    whole = (*held, *new) if name == ROUTES else tuple(sorted((*held, *new)))
    if _list_problem(name, tuple(sorted(new))) is None:
        _VALID_VALUES[name][id(whole)] = whole
    return whole


def _problems(fields: Mapping[str, Any]) -> list[str]:
    """Everything wrong with the values of the fields given; of all twelve, with their combination too."""
    problems = []
    for name, value in fields.items():
        known = _VALID_VALUES.get(name)
        if known is not None and known.get(id(value), _MISSING) is value:
            continue
        if (text := _CHECKS[name](value)) is not None:
            problems.append(f"{name}: {text}")
        elif known is not None:
            known[id(value)] = value
    if problems or len(fields) != len(FIELDS):
        return problems
    status = fields["last_execution_status"]
    if (status in FAILED) != (fields["last_error_class"] is not None):
        problems.append(
            f"last_error_class: is null exactly when the last turn did not fail, but the status is {status}"
        )
    if status == "not_run" and any(fields[name] for name in PATTERNS):
        problems.append("last_execution_status: is not_run, but something has been executed or observed")
    return problems


def _checked(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the twelve fields of `data`, lists as tuples. Raises ForbiddenFieldError first, then StateError."""
    leakage.refuse_forbidden(data)
    names = [key for key in data if type(key) is str]
    problems = [unknown("state field", key[:80], FIELDS) for key in names if key not in _CHECKS]
    problems += [f"{shorten(key)}: only plain strings are field names" for key in data if type(key) is not str]
    problems += [f"{name}: is missing" for name in FIELDS if name not in names]
    ready = {name: tuple(data[name]) if type(data[name]) is list else data[name] for name in FIELDS if name in names}
    # Again, on the copies: a hostile container need not return the same values twice.
    leakage.refuse_forbidden(ready)
    problems += _problems(ready)
    if problems:
        raise StateError("not an execution state: " + "; ".join(problems))
    return ready


@final
class ExecutionState(SealedModel):
    """What has been observed so far, as twelve fields; nothing enters or leaves a state without being validated.

    A state never changes: `observe` returns the next one.

    Attributes:
        original_query: The user's request.
        executed_registered_route_ids: Registered routes that were called, in the order of their first calls.
        observation_field_names: Names of the registered fields observed, and ``status`` and ``error``; this and the next lists
            are sorted.
        observation_semantic_ids: Their semantic ids.
        observation_value_types: JSON types of their values.
        observation_units: Their units.
        observation_dimensions: Their dimensions.
        observation_qualifiers: Their qualifiers, as ``key=value``.
        stable_observed_identifiers: Values of the fields that are identifiers.
        last_execution_status: ``not_run``; ``ok`` or ``executed`` (with or without registered fields) after a turn that ran;
            ``error`` or ``blocked`` after one that failed.
        last_error_class: Class of the last turn's error; None unless it failed.
        task_incomplete_boolean: Whether the task is not completed yet.

    Example:
        >>> from schemarouter.catalog import Capability, OutputField
        >>> number = OutputField(name="order_id", type="string", semantic_id="order.id")
        >>> find = Capability(provider="orders", operation="find", description="", effect="read", outputs=(number,))
        >>> state = ExecutionState.start("Where is my order?")
        >>> call, observation = Call("orders.find", {}), Observation("ran", {"order_id": "SO-4471"})
        >>> state = state.observe(call, observation, find, incomplete=True)
        >>> state.stable_observed_identifiers, state.last_execution_status
        (('SO-4471',), 'ok')
    """

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
        # Only for fields that have been checked: pydantic would check them again, which takes ten times as long.
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
        """A validated copy of the fields, as everything that leaves the state uses. Raises StateError after tampering."""
        raw = self._raw()
        if raw.keys() == _CHECKS.keys():
            fields = raw if tuple(raw) == FIELDS else {name: raw[name] for name in FIELDS}
            identity = tuple(map(id, fields.values()))
            if identity in _VALID_STATES:
                return fields
            if not _problems(fields):
                _VALID_STATES[identity] = tuple(fields.values())
                return fields
        return _checked(raw)

    @classmethod
    def start(cls, query: str) -> Self:
        """Return the state before the first turn.

        Args:
            query: The user's request.

        Raises:
            StateError: For a query that is no valid Unicode text, or that holds the marker line.
        """
        last = {"last_execution_status": "not_run", "last_error_class": None, "task_incomplete_boolean": True}
        fields: dict[str, Any] = {"original_query": query, **dict.fromkeys(PATTERNS, ()), **last}
        return cls._trusted(_checked(fields) if _problems(fields) else fields)

    def observe(
        self, call: Call, observation: Observation, capability: Capability | None, *, incomplete: bool
    ) -> ExecutionState:
        """Return the state after a turn.

        Args:
            call: What was called.
            observation: What came back.
            capability: The contract of the route that was called; None for an unregistered route.
            incomplete: Whether the task is incomplete after the turn.

        Returns:
            The next state; this one stays as it is.

        Raises:
            ForbiddenFieldError: For a contract that registers a forbidden name.
            StateError: For a turn that cannot have happened, and where this state was tampered with.
        """
        return self.observe_all(call, observation, capability, incomplete=incomplete)[0]

    def observe_all(
        self, call: Call, observation: Observation, capability: Capability | None, *, incomplete: bool
    ) -> tuple[ExecutionState, dict[str, int]]:
        """Return what `observe` and `omissions` return, from one pass over the observation; arguments and errors as `observe`."""
        fields = self._held()
        require_turn(call, observation, capability)
        if type(incomplete) is not bool:
            raise StateError(f"incomplete must be true or false, got {shorten(incomplete)}.")
        described, types, identifiers, omitted = gather(observation, capability)
        offered = {**described.terms, "observation_value_types": types, "stable_observed_identifiers": identifiers}
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
            fields["last_execution_status"] = "ok" if described.registered else "executed"
            fields["last_error_class"] = None
        fields["task_incomplete_boolean"] = incomplete
        return self._trusted(fields), omitted

    def canonical_json(self) -> bytes:
        """Return all twelve fields as canonical JSON. Raises StateError if the state was tampered with."""
        return orjson.dumps(self._held(), option=orjson.OPT_SORT_KEYS)

    def retrieval_query(self) -> str:
        """Return the text that a retriever ranks for this state; `parse_retrieval_query` reads it back.

        Returns:
            The query, the marker line, and the canonical JSON of the other eleven fields.

        Raises:
            StateError: If the state was tampered with.
        """
        fields = self._held()
        query: str = fields.pop("original_query")
        return f"{query}{SEPARATOR}{orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a state from JSON, canonical or not.

        Args:
            data: The twelve fields as a JSON object.

        Raises:
            ForbiddenFieldError: For a forbidden name anywhere in it.
            StateError: With everything else that is wrong.
        """
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
        """Return a validated copy.

        Args:
            update: Values by field that replace those of this state.
            deep: Without effect: no field can change.

        Raises:
            ForbiddenFieldError: For a forbidden name in `update`.
            StateError: For values that make no state.
        """
        return self._trusted(_checked({**self._raw(), **dict(update or {})}))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExecutionState.parse, (self.canonical_json(),))

    def __init_subclass__(cls, **_options: Any) -> None:
        raise StateError("ExecutionState has exactly twelve fields and is not subclassed.")


def _read_canonical(query: str, rest: str) -> ExecutionState | None:
    """The state in canonical JSON, or None for anything else, of which the slower path says what is wrong.

    Retrievers read a state at every refresh. JSON that is encoded again to the same bytes holds no key twice.
    """
    try:
        parsed = orjson.loads(rest)
        same = isinstance(parsed, dict) and orjson.dumps(parsed, option=orjson.OPT_SORT_KEYS).decode() == rest
    except (orjson.JSONDecodeError, TypeError, UnicodeError):
        return None
    if not same or "original_query" in parsed or len(parsed) != len(FIELDS) - 1:
        return None
    fields = {name: tuple(value) if type(value) is list else value for name, value in parsed.items() if name in _CHECKS}
    fields["original_query"] = query
    # Valid lists hold no forbidden atom, and no names but the twelve are left: nothing else has to be refused.
    if len(fields) != len(FIELDS) or _problems(fields):
        return None
    return ExecutionState._trusted({name: fields[name] for name in FIELDS})


def parse_retrieval_query(text: str) -> ExecutionState:
    """Read back what `ExecutionState.retrieval_query` rendered.

    Args:
        text: The rendered text.

    Returns:
        The state.

    Raises:
        ForbiddenFieldError: For a forbidden name in its JSON.
        StateError: When `text` is not exactly what a state renders.

    Example:
        >>> parse_retrieval_query(ExecutionState.start("Where is my order?").retrieval_query()).original_query
        'Where is my order?'
    """
    if type(text) is not str or SEPARATOR not in text:
        raise StateError(f"not a rendered query: the line {MARKER} between query and state is missing.")
    query, _, rest = text.rpartition(SEPARATOR)
    state = _read_canonical(query, rest)
    if state is not None:
        return state
    fields = leakage.read_object(rest)
    if "original_query" in fields:
        raise StateError("not a rendered query: the query is before the marker line, and only there.")
    state = ExecutionState._trusted(_checked({**fields, "original_query": query}))
    if state.retrieval_query() != text:
        raise StateError("not a rendered query: the state in it is no canonical JSON (sorted keys, no white space).")
    return state
