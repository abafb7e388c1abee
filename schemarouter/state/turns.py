"""A turn: the call, its observation, and what of that may enter the state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemarouter.caches import Bounded
from schemarouter.catalog import IDENTIFIER_PATTERN, Capability, CatalogError, OutputField, json_type
from schemarouter.errors import unknown
from schemarouter.state import leakage
from schemarouter.state.contract import ALWAYS_COUNTED, NAME, OUTCOMES, PATTERNS, Outcome
from schemarouter.state.leakage import StateError, shorten

MATCH: Final = {name: re.compile(pattern).fullmatch for name, pattern in PATTERNS.items()}
MATCH_NAME: Final = re.compile(NAME).fullmatch
_IDENTIFIER_INTEGERS: Final = 10**128


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a tool, as the agent made it.

    Attributes:
        route_id: The route that is called, as ``provider.operation``.
        arguments: The arguments by name, as plain JSON values.
    """

    route_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a call returned.

    Attributes:
        outcome: ``ran``, ``error``, or ``blocked`` where the policy refused the call.
        payload: The observed fields by name; a failed turn has ``status`` and ``error``, as ``error_class: detail``.

    Example:
        >>> Observation("error", {"status": "error", "error": "record_locked: order SO-4471"}).failed
        True
    """

    outcome: Outcome
    payload: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error or was blocked."""
        return self.outcome != "ran"

    @property
    def error_text(self) -> object:
        """The payload's ``error`` if the call failed, else None."""
        return self.payload.get("error") if self.failed else None


def error_class(text: object) -> str:
    """The trimmed error text before its first colon if it is a plain name, else ``unclassified``."""
    if isinstance(text, str):
        head = str.__str__(text).strip().partition(":")[0]
        if MATCH_NAME(head):
            return head
    return "unclassified"


class _ObservedFields:
    """What a contract says about observed fields, given their names alone; indices are those of the names."""

    __slots__ = ("contract_terms", "counted", "identifiers", "registered", "terms", "unregistered_fields")

    def __init__(self, capability: Capability | None, names: Sequence[object], failed: bool) -> None:
        outputs: Mapping[str, OutputField] = {} if capability is None else capability.outputs_by_name
        self.terms: dict[str, set[str]] = {name: set() for name in PATTERNS}
        self.counted: list[int] = []
        self.identifiers: list[int] = []
        self.registered = self.unregistered_fields = self.contract_terms = 0
        for index, name in enumerate(names):
            output = outputs.get(name) if type(name) is str and MATCH_NAME(name) else None
            if type(name) is not str or (output is None and name not in ALWAYS_COUNTED):
                self.unregistered_fields += 1
                continue
            self.counted.append(index)
            self.terms["observation_field_names"].add(name)
            if output is not None:
                self.registered += 1
                if not failed:
                    self._contract(output, index)

    def _contract(self, output: OutputField, index: int) -> None:
        self._term("observation_semantic_ids", output.semantic_id)
        self._term("observation_units", output.unit)
        self._term("observation_dimensions", output.dimension)
        for atom in output.qualifier_atoms:
            self._term("observation_qualifiers", atom)
        if output.is_identifier and output.name not in ALWAYS_COUNTED:
            self.identifiers.append(index)

    def _term(self, name: str, text: str | None) -> None:
        if text is None:
            return
        if type(text) is str and MATCH[name](text):
            leakage.refuse_atom(text)
            self.terms[name].add(text)
        else:
            self.contract_terms += 1


# By the `id` of the capability, which the cache keeps alive: contracts never change, and hashing one would read all of it.
_DESCRIBED: Final = Bounded[tuple[int, bool, tuple[object, ...]], tuple[Capability | None, _ObservedFields]](4096)


def _describe(capability: Capability | None, names: tuple[object, ...], failed: bool) -> _ObservedFields:
    if not {*map(type, names)} <= {str}:
        return _ObservedFields(capability, names, failed)
    key = id(capability), failed, names
    known = _DESCRIBED.get(key)
    if known is None:
        known = _DESCRIBED[key] = capability, _ObservedFields(capability, names, failed)
    return known[1]


def _identifier(value: object) -> str | None:
    # Python refuses to convert very long integers to text, and none of that length could match.
    text = str(value) if type(value) is int and abs(value) < _IDENTIFIER_INTEGERS else value
    return text if type(text) is str and IDENTIFIER_PATTERN.fullmatch(text) else None


def gather(
    observation: Observation, capability: Capability | None
) -> tuple[_ObservedFields, set[str], set[str], dict[str, int]]:
    """What of an observation may enter the state: fields, value types and identifiers; and counts of what may not."""
    pairs = list(observation.payload.items())
    described = _describe(capability, tuple(name for name, _ in pairs), observation.failed)
    types: set[str] = set()
    for index in described.counted:
        try:
            types.add(json_type(pairs[index][1]))
        except CatalogError as error:
            raise StateError(f"observed field {pairs[index][0]!r}: {error}") from None
    offered = [pairs[index][1] for index in described.identifiers]
    identifiers = [_identifier(value) for value in offered]
    omitted = {
        "unregistered_fields": described.unregistered_fields,
        "identifiers": sum(
            text is None and value is not None for text, value in zip(identifiers, offered, strict=True)
        ),
        "contract_terms": described.contract_terms,
    }
    return described, types, {text for text in identifiers if text is not None}, omitted


def require_turn(call: Call, observation: Observation, capability: Capability | None) -> None:
    """Raise StateError for a turn that cannot have happened, such as an unregistered route that ran."""
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
    """Count what of a turn stays outside the state.

    Args:
        call: What was called.
        observation: What came back.
        capability: The contract of the route that was called; None for an unregistered route.

    Returns:
        Numbers of unregistered fields, identifiers and contract terms left out, by these names.

    Raises:
        StateError: As `ExecutionState.observe`.
    """
    require_turn(call, observation, capability)
    return gather(observation, capability)[3]
