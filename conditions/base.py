"""What a condition is: it decides what is shown, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from preregistration.protocol import ConditionRules
from schemarouter.catalog import Catalog, route_of
from schemarouter.errors import SchemaRouterError, closest
from schemarouter.records import Cause
from schemarouter.retrieval.base import Ranking, Retriever
from schemarouter.state import Call, ExecutionState, Observation


class ConditionError(SchemaRouterError):
    """A condition used out of order."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The tools shown, sorted by route id, and the ranking they came from (None for FULL and ORACLE).

    `can_ask` and `can_turn` say whether asking for more, and whether another tool turn, can still change it.
    """

    routes: tuple[str, ...]
    ranking: Ranking | None
    cause: Cause
    can_ask: bool = False
    can_turn: bool = False


def display_order(routes: Iterable[str]) -> tuple[str, ...]:
    """Routes in the order in which tools are shown, each once: by id, so that the order gives away no rank."""
    return tuple(sorted(set(routes)))


def _unregistered(route: str, catalog: Catalog) -> str:
    """Say that a route cannot have run, and which one is meant: most often the name of its tool was given."""
    named = [item.route_id for item in catalog.capabilities if item.operation == route]
    likely = [meant for meant in (route_of(route), *named) if meant in catalog]
    near = f" Did you mean {likely[0]!r}?" if likely else closest(route, catalog.route_ids)
    return (
        f"route {route!r} is not registered, so it cannot have run.{near} Name a route as exposure.routes does; "
        "schemarouter.catalog.route_of(name) gives the route of a tool's name."
    )


class Condition(ABC):
    """One arm, for one episode at a time: `open`, then `observe` after every tool turn and `ask` when the agent asks.

    It is handed a retriever, a catalog and the query; it follows what happens in an `ExecutionState` of its own.
    """

    name: str

    def __init__(self, retriever: Retriever, catalog: Catalog, rules: ConditionRules) -> None:
        self.retriever = retriever
        self.catalog = catalog
        self.rules = rules
        self._state: ExecutionState | None = None
        self._exposure: Exposure | None = None

    @property
    def state(self) -> ExecutionState:
        """The state as observed so far. Raises ConditionError before `open`."""
        if self._state is None:
            raise ConditionError("the condition has no episode yet; call open(query) first.")
        return self._state

    @property
    def exposure(self) -> Exposure:
        """What is shown now. Raises ConditionError before `open`."""
        if self._exposure is None:
            raise ConditionError("the condition has no episode yet; call open(query) first.")
        return self._exposure

    def open(self, query: str) -> Exposure:
        """Begin an episode."""
        self._state = ExecutionState.start(query)
        self._exposure = self._first(query)
        return self._exposure

    def observe(self, call: Call, observation: Observation, *, incomplete: bool = True) -> Exposure:
        """Take in a finished tool turn; returns what is shown from now on.

        Raises ConditionError for a route that ran and is not registered; a failed call of one is lawful.
        """
        before = self.state
        capability = self.catalog.get(call.route_id)
        if capability is None and not observation.failed:
            raise ConditionError(_unregistered(str(call.route_id), self.catalog))
        self._state = before.observe(call, observation, capability, incomplete=incomplete)
        self._exposure = self._after_turn(before, observation.failed)
        return self._exposure

    def ask(self) -> Exposure:
        """The agent asks for more tools; returns what is shown from now on."""
        self._exposure = self._after_ask()
        return self._exposure

    @abstractmethod
    def _first(self, query: str) -> Exposure:
        """What is shown at the start."""

    def _after_turn(self, before: ExecutionState, failed: bool) -> Exposure:
        """What is shown after a tool turn: by default what was shown before."""
        return self.exposure

    def _after_ask(self) -> Exposure:
        """What is shown after an ask: by default what was shown before."""
        return self.exposure

    def opening_ranking(self, query: str) -> Ranking:
        """The ranking for the query alone, the same in every arm that retrieves."""
        return self.retriever.rank(query, k=self.rules.ranking_depth)
