"""Execution state: the twelve fields of the state contract, and how a turn changes them."""

from __future__ import annotations

from schemarouter.state.contract import CONTRACT, FIELDS, MARKER, PATTERNS, Outcome, Status, fingerprint
from schemarouter.state.execution_state import ExecutionState, parse_retrieval_query
from schemarouter.state.leakage import ForbiddenFieldError, StateError
from schemarouter.state.turns import Call, Observation, error_class, omissions

__all__ = [
    "CONTRACT",
    "FIELDS",
    "MARKER",
    "PATTERNS",
    "Call",
    "ExecutionState",
    "ForbiddenFieldError",
    "Observation",
    "Outcome",
    "StateError",
    "Status",
    "error_class",
    "fingerprint",
    "omissions",
    "parse_retrieval_query",
]
