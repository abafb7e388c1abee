"""The state contract: twelve fields with their patterns and orders, and the constants that other modules share."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from schemarouter import canonical
from schemarouter.catalog import IDENTIFIER_PATTERN, JsonType
from schemarouter.invisible import INVISIBLE
from schemarouter.state.leakage import FORBIDDEN

Status = Literal["not_run", "ok", "executed", "error", "blocked"]
Outcome = Literal["ran", "error", "blocked"]

MARKER: Final = "[EXECUTION_STATE]"
ROUTES: Final = "executed_registered_route_ids"
SEPARATOR: Final = f"\n\n{MARKER}\n"
STATUSES: Final[tuple[str, ...]] = get_args(Status)
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
FAILED: Final = frozenset({"error", "blocked"})
ALWAYS_COUNTED: Final = frozenset({"status", "error"})

NAME: Final = "[a-z][a-z0-9_]{0,63}"
# Units are short signs, some outside ASCII; white space, control and invisible characters would admit free text.
_UNIT: Final = rf"[^\s{INVISIBLE}]{{1,32}}"

PATTERNS: Final[dict[str, str]] = {
    ROUTES: IDENTIFIER_PATTERN.pattern,
    "observation_field_names": NAME,
    "observation_semantic_ids": r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*",
    "observation_value_types": "|".join(get_args(JsonType)),
    "observation_units": _UNIT,
    "observation_dimensions": NAME,
    "observation_qualifiers": "[a-z0-9][a-z0-9_]*=[a-z0-9][a-z0-9_]*",
    "stable_observed_identifiers": IDENTIFIER_PATTERN.pattern,
}
_ANY_TURN: Final = (ROUTES, "observation_field_names", "observation_value_types")


def _list_contract(name: str) -> dict[str, Any]:
    order = "execution" if name == ROUTES else "sorted by code point"
    turns = "any turn" if name in _ANY_TURN else "completed turn"
    shape = {"type": "list", "items": PATTERNS[name], "unique": True, "order": order}
    return {**shape, "cumulative": True, "changed_by": turns}


CONTRACT: Final[dict[str, Any]] = {
    "fields": {
        "original_query": {"type": "string", "cumulative": False, "changed_by": "nothing"},
        **{name: _list_contract(name) for name in PATTERNS},
        "last_execution_status": {"type": "enum", "values": list(STATUSES), "changed_by": "any turn"},
        "last_error_class": {"type": "null or string", "pattern": NAME, "changed_by": "any turn"},
        "task_incomplete_boolean": {"type": "boolean", "changed_by": "any turn"},
    },
    "counted_without_registration": sorted(ALWAYS_COUNTED),
    "identifier_types": ["integer", "string"],
    "error_class_otherwise": "unclassified",
    "failed": sorted(FAILED),
    "forbidden": sorted(FORBIDDEN),
    "marker": MARKER,
    "rendering": ["original_query", SEPARATOR, "canonical JSON of the other fields"],
}
FIELDS: Final[tuple[str, ...]] = tuple(CONTRACT["fields"])


def fingerprint() -> str:
    """SHA-256 of the state contract: fields, types, orders, patterns, forbidden names, rendering."""
    return canonical.fingerprint(CONTRACT)
