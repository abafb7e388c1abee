"""A turn as the state sees it: a call, what was observed of it, and what of that may enter the state."""

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
        if MATCH_NAME(head):
            return head
    return "unclassified"


class _Told:
    """What a contract says of observed fields of certain names, whatever their values; positions are those of the names."""

    __slots__ = ("contract_terms", "counted", "identifiers", "registered", "terms", "unregistered_fields")

    def __init__(self, capability: Capability | None, names: Sequence[object], failed: bool) -> None:
        outputs: Mapping[str, OutputField] = {} if capability is None else capability.outputs_by_name
        self.terms: dict[str, set[str]] = {name: set() for name in PATTERNS}
        self.counted: list[int] = []
        self.identifiers: list[int] = []
        self.registered = self.unregistered_fields = self.contract_terms = 0
        for at, name in enumerate(names):
            output = outputs.get(name) if type(name) is str and MATCH_NAME(name) else None
            if type(name) is not str or (output is None and name not in ALWAYS_COUNTED):
                self.unregistered_fields += 1
                continue
            self.counted.append(at)
            self.terms["observation_field_names"].add(name)
            if output is not None:
                self.registered += 1
                if not failed:
                    self._contract(output, at)

    def _contract(self, output: OutputField, at: int) -> None:
        self._term("observation_semantic_ids", output.semantic_id)
        self._term("observation_units", output.unit)
        self._term("observation_dimensions", output.dimension)
        for atom in output.qualifier_atoms:
            self._term("observation_qualifiers", atom)
        if output.is_identifier and output.name not in ALWAYS_COUNTED:
            self.identifiers.append(at)

    def _term(self, name: str, text: str | None) -> None:
        if text is None:
            return
        if type(text) is str and MATCH[name](text):
            leakage.refuse_atom(text)
            self.terms[name].add(text)
        else:
            self.contract_terms += 1


# By the capability's identity, which an entry keeps alive: contracts are frozen, and their hash would read them whole.
_TOLD: Final = Bounded[tuple[int, bool, tuple[object, ...]], tuple[Capability | None, _Told]](4096)


def _told(capability: Capability | None, names: tuple[object, ...], failed: bool) -> _Told:
    if not {*map(type, names)} <= {str}:
        return _Told(capability, names, failed)
    key = id(capability), failed, names
    known = _TOLD.get(key)
    if known is None:
        known = _TOLD[key] = capability, _Told(capability, names, failed)
    return known[1]


def _identifier(value: object) -> str | None:
    # Python refuses to write very long integers out, and no integer of that length could match.
    text = str(value) if type(value) is int and abs(value) < _IDENTIFIER_INTEGERS else value
    return text if type(text) is str and IDENTIFIER_PATTERN.fullmatch(text) else None


def gather(observation: Observation, capability: Capability | None) -> tuple[_Told, set[str], set[str], dict[str, int]]:
    """What an observation offers: by its names, its value types, its identifiers; and counts of what has to stay outside."""
    pairs = list(observation.payload.items())
    told = _told(capability, tuple(name for name, _ in pairs), observation.failed)
    types: set[str] = set()
    for at in told.counted:
        try:
            types.add(json_type(pairs[at][1]))
        except CatalogError as error:
            raise StateError(f"observed field {pairs[at][0]!r}: {error}") from None
    offered = [pairs[at][1] for at in told.identifiers]
    found = [_identifier(value) for value in offered]
    left_out = {
        "unregistered_fields": told.unregistered_fields,
        "identifiers": sum(text is None and value is not None for text, value in zip(found, offered, strict=True)),
        "contract_terms": told.contract_terms,
    }
    return told, types, {text for text in found if text is not None}, left_out


def require_turn(call: Call, observation: Observation, capability: Capability | None) -> None:
    """Raise StateError for a turn that cannot have happened."""
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
    require_turn(call, observation, capability)
    return gather(observation, capability)[3]
