"""The protocol of a condition: it decides which tools are shown, and nothing else."""

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
    """A condition used out of order, or given a ranking that is none."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The tools shown to the agent.

    Attributes:
        routes: Route ids of the tools, sorted.
        ranking: The ranking they came from; None for FULL and ORACLE.
        cause: Why they are shown: ``open``, ``widen`` or ``refresh``.
        can_ask: Whether asking for more tools can still change them.
        can_turn: Whether another tool turn can still change them.

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
    """The message for a route that cannot have run, with the one probably meant: often a tool's name is given instead."""
    named = [item.route_id for item in catalog.capabilities if item.operation == route]
    likely = [meant for meant in (route_of(route), *named) if meant in catalog]
    near = f" Did you mean {likely[0]!r}?" if likely else closest(route, catalog.route_ids)
    return (
        f"route {route!r} is not registered, so it cannot have run.{near} Name a route as exposure.routes does; "
        "schemarouter.catalog.route_of(name) gives the route of a tool's name."
    )


class Condition(ABC):
    """Decides which tools an agent is shown, one episode at a time.

    Call `open` with the query, then `observe` after every tool turn and `ask` whenever the agent asks for more tools. A
    condition keeps an `ExecutionState` of its own and sees nothing but the query, the calls and their observations.

    Args:
        retriever: Ranks the entries of `catalog`.
        catalog: Contracts of the tools that can be shown.
        rules: Numbers of the protocol: how many tools are shown, how often they are refreshed.

    """

    name: str
    # Whether its exposures come from rankings, so that recall and recovery are measured on it.
    ranks: bool = True

    def __init__(self, retriever: Retriever, catalog: Catalog, rules: ConditionRules) -> None:
        self.retriever = retriever
        self.catalog = catalog
        self.rules = rules
        self._state: ExecutionState | None = None
        self._exposure: Exposure | None = None

    @property
    def state(self) -> ExecutionState:
        """The state as observed so far.

        Raises:
            ConditionError: Before `open`.

        """
        if self._state is None:
            raise ConditionError("the condition has no episode yet; call open(query) first.")
        return self._state

    @property
    def exposure(self) -> Exposure:
        """The tools shown now.

        Raises:
            ConditionError: Before `open`.

        """
        if self._exposure is None:
            raise ConditionError("the condition has no episode yet; call open(query) first.")
        return self._exposure

    def open(self, query: str) -> Exposure:
        """Begin an episode; one that was open before is forgotten.

        Args:
            query: What the user asks for.

        Returns:
            The tools to show first.

        """
        self._state = ExecutionState.start(query)
        self._exposure = self._first(query)
        return self._exposure

    def observe(self, call: Call, observation: Observation, *, incomplete: bool = True) -> Exposure:
        """Take in a finished tool turn.

        Args:
            call: The call that the agent made; its route is the tool's id in the catalog.
            observation: What came back of it.
            incomplete: Whether anything of the task is still to be done.

        Returns:
            The tools to show from now on; the same object as before where nothing changes.

        Raises:
            ConditionError: Before `open`, and for a call that ran though its route is not registered; one that failed may
                name any route.

        """
        before = self.state
        capability = self.catalog.get(call.route_id)
        if capability is None and not observation.failed:
            raise ConditionError(_unregistered(str(call.route_id), self.catalog))
        self._state = before.observe(call, observation, capability, incomplete=incomplete)
        self._exposure = self._after_turn(before, observation.failed)
        return self._exposure

    def ask(self) -> Exposure:
        """Take in that the agent asks for more tools.

        Returns:
            The tools to show from now on; the same object as before where nothing changes.

        Raises:
            ConditionError: Before `open`.

        """
        self._exposure = self._after_ask()
        return self._exposure

    @abstractmethod
    def _first(self, query: str) -> Exposure:
        """The tools shown at the start."""

    def _after_turn(self, before: ExecutionState, failed: bool) -> Exposure:
        """The tools shown after a tool turn: by default those shown before."""
        return self.exposure

    def _after_ask(self) -> Exposure:
        """The tools shown after an ask: by default those shown before."""
        return self.exposure

    def opening_ranking(self, query: str) -> Ranking:
        """Rank the catalog for the query alone, the same in every condition that retrieves.

        Args:
            query: What the user asks for.

        Returns:
            The first `rules.ranking_depth` entries, best first.

        """
        return self.rank(query, self.rules.ranking_depth)

    def rank(self, query: str, k: int) -> Ranking:
        """Rank the catalog, and see that the retriever gave a ranking of it.

        Args:
            query: The request, or a rendered state.
            k: How many entries at most.

        Returns:
            The first `k` entries, best first.

        Raises:
            ConditionError: For anything but a `Ranking` of at most `k` registered routes, each once.

        """
        ranking = self.retriever.rank(query, k=k)
        if not isinstance(ranking, Ranking):
            raise ConditionError(f"the retriever returned {type(ranking).__name__}, not a Ranking.")
        ids = ranking.ids
        strangers = [name for name in ids if name not in self.catalog]
        if strangers:
            raise ConditionError(
                f"the retriever ranked {strangers[0]!r}, which is not in the catalog."
                f"{closest(str(strangers[0]), self.catalog.route_ids)} It is to return ids of the entries that it was built over."
            )
        if len(set(ids)) < len(ids) or len(ids) > k:
            raise ConditionError(
                f"the retriever returned {len(ids)} ids, {len(set(ids))} different ones, where k is {k}."
            )
        return ranking
