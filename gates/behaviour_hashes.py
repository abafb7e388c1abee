"""One hash each of what a retriever and an agent do: code may change, behaviour that was locked may not."""

from __future__ import annotations

from collections.abc import Mapping

from conditions.running.plan import Unit
from conditions.running.runner import Runner
from gates.tuning.decision_points import all_decision_points
from preregistration.names import FULL
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.canonical import fingerprint
from schemarouter.catalog import Catalog
from schemarouter.records import Asked, Called, Ended
from schemarouter.retrieval import registry as retrievers
from surface.loader import Surface


def retriever_behaviour(spec: str, protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog]) -> str:
    """SHA-256 of a retriever's rankings, to the depth of the protocol, at every decision point on every catalog."""
    decision_points = all_decision_points(surface, catalogs[min(catalogs)], "full")
    depth = protocol.conditions.ranking_depth
    rankings = []
    for size in sorted(catalogs):
        retriever = retrievers.build_retriever(spec, catalogs[size])
        rankings.append([list(retriever.rank(point.query, k=depth).ids) for point in decision_points])
    return fingerprint(rankings)


def agent_behaviour(spec: str, protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog]) -> str:
    """SHA-256 of an agent's asks, calls and ends on every task, with every tool of the smallest catalog shown."""
    smallest = min(catalogs)
    runner = Runner(protocol, surface, catalogs, retriever=retrievers.resolve("random"), agent=agents.resolve(spec))
    actions = []
    for task in surface.tasks:
        events = runner.run(Unit(task.prompt.id, smallest, FULL)).events
        actions.append(
            [
                [type(event).__name__, getattr(event, "route", ""), dict(getattr(event, "arguments", {}))]
                for event in events
                if isinstance(event, Asked | Called | Ended)
            ]
        )
    return fingerprint(actions)
