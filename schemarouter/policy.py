"""May this call run? Asked before every execution; never asks retrieval."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from schemarouter.catalog import Catalog
from schemarouter.state import Call


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a call before it runs."""

    registered: bool
    exposed: bool
    schema_valid: bool
    effect: str
    authorised: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a call may run, and the error text that the agent observes if not."""

    allowed: bool
    error: str = ""


class Policy(Protocol):
    """Decides from the facts of a call alone."""

    def decide(self, call: Call, facts: Facts) -> Decision:
        """Allow or refuse."""


class StandardPolicy:
    """Read and write run when schema-valid and exposed; a destructive route only when that very route is authorised."""

    def decide(self, call: Call, facts: Facts) -> Decision:
        """Refuse with the first reason that holds."""
        if not facts.registered:
            return Decision(False, f"unregistered_route: {call.route_id} is not in the catalog")
        if not facts.exposed:
            return Decision(False, f"not_exposed: {call.route_id} is not among the tools offered now")
        if not facts.schema_valid:
            return Decision(False, "invalid_arguments: the arguments do not match the schema of the tool")
        if facts.effect == "destructive" and not facts.authorised:
            return Decision(False, f"not_authorised: {call.route_id} was not authorised by the user")
        return Decision(True)


def facts_of(call: Call, catalog: Catalog, exposed: Collection[str], authorised: Collection[str]) -> Facts:
    """Establish the facts of a call: a pure function of catalog, exposure and authorisations."""
    capability = catalog.get(call.route_id)
    return Facts(
        registered=capability is not None,
        exposed=call.route_id in exposed,
        schema_valid=capability is not None and not capability.argument_errors(call.arguments),
        effect=capability.effect if capability is not None else "",
        authorised=call.route_id in authorised,
    )
