"""Whether a call may run: asked before every execution, and independent of retrieval."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from schemarouter.catalog import Catalog
from schemarouter.state import Call


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a call before it runs.

    Attributes:
        registered: Whether the catalog holds the route.
        exposed: Whether the route is among the tools shown to the agent.
        schema_valid: Whether the arguments fit the registered parameters.
        effect: ``read``, ``write`` or ``destructive``; empty for an unregistered route.
        authorised: Whether the user authorised this very route.
    """

    registered: bool
    exposed: bool
    schema_valid: bool
    effect: str
    authorised: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a call may run.

    Attributes:
        allowed: Whether it may.
        error: The error text that the agent observes if not, as ``error_class: detail``.
    """

    allowed: bool
    error: str = ""


class Policy(Protocol):
    """Decides whether a call may run, from the call and its facts alone."""

    def decide(self, call: Call, facts: Facts) -> Decision:
        """Allow or refuse a call.

        Args:
            call: The call that the agent made.
            facts: What is known of it, from `facts_of`.

        Returns:
            The decision, with the error that the agent observes where it is refused.
        """


class StandardPolicy:
    """Allows registered, exposed, schema-valid calls; a destructive route only where that very route is authorised.

    Example:
        >>> from schemarouter.state import Call
        >>> facts = Facts(registered=True, exposed=True, schema_valid=True, effect="destructive", authorised=False)
        >>> StandardPolicy().decide(Call("orders.delete", {}), facts)
        Decision(allowed=False, error='not_authorised: orders.delete was not authorised by the user')
    """

    def decide(self, call: Call, facts: Facts) -> Decision:
        """Allow the call, or refuse it for the first reason that holds: see `Policy.decide`."""
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
    """Establish the facts of a call.

    Args:
        call: The call that the agent made.
        catalog: The registered routes.
        exposed: Ids of the routes shown to the agent.
        authorised: Ids of the destructive routes that the user authorised.

    Returns:
        The facts, a pure function of the arguments.
    """
    capability = catalog.get(call.route_id)
    return Facts(
        registered=capability is not None,
        exposed=call.route_id in exposed,
        schema_valid=capability is not None and not capability.argument_errors(call.arguments),
        effect=capability.effect if capability is not None else "",
        authorised=call.route_id in authorised,
    )
