"""Decision points: the situation before every call of every plan, with the routes that are still to come."""

from __future__ import annotations

from dataclasses import dataclass

from schemarouter.agents.reference import preferred
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.state import ExecutionState
from surface.environment import Environment, PlanGuide
from surface.loader import Surface
from surface.task import Task


@dataclass(frozen=True)
class DecisionPoint:
    """The state before a call, the ready routes, sorted, and those that are still to come, in the order of the calls."""

    task: str
    language: str
    stratum: str
    turn: int
    state: ExecutionState
    ready: tuple[str, ...]
    coming: tuple[str, ...]

    @property
    def query(self) -> str:
        """What the retriever is given: the request at first, later the rendered state."""
        return self.state.retrieval_query() if self.turn else self.state.original_query


def decision_points_of(task: Task, stratum: str, catalog: Catalog, view: CatalogView) -> list[DecisionPoint]:
    """The decision points of one task, its faults and corrective actions included, as the agent `reference` calls.

    States are observed as the catalog in `view` registers its routes.
    """
    environment = Environment(task.key, catalog, seed_text=task.prompt.id)
    guide = PlanGuide(environment.progress, catalog)
    registered = viewed(catalog, view)
    state = ExecutionState.start(task.prompt.query)
    states: list[ExecutionState] = []
    routes: list[str] = []
    ready: list[tuple[str, ...]] = []
    while calls := guide.next_calls():
        call = preferred(calls).call
        states.append(state)
        ready.append(tuple(sorted({item.call.route_id for item in calls})))
        routes.append(call.route_id)
        observation = environment.execute(call)
        incomplete = environment.progress.incomplete
        state = state.observe(call, observation, registered.get(call.route_id), incomplete=incomplete)
    return [
        DecisionPoint(
            task.prompt.id, task.prompt.language, stratum, turn, states[turn], ready[turn], tuple(routes[turn:])
        )
        for turn in range(len(states))
    ]


def all_decision_points(surface: Surface, catalog: Catalog, view: CatalogView) -> list[DecisionPoint]:
    """The decision points of every task of a surface, in the order of their ids."""
    return [
        point
        for task in surface.tasks
        for point in decision_points_of(task, surface.stratum(task.prompt.id), catalog, view)
    ]
