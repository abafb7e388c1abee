"""The confirmatory agent: it knows the plan and makes no wrong choice, so that retrieval alone is measured."""

from __future__ import annotations

from schemarouter.agents.base import (
    Action,
    AgentDeclaration,
    AgentView,
    Guide,
    SeenValues,
    arguments_from,
    observed_values,
)
from schemarouter.retrieval.spec import Option
from schemarouter.state import Call

DECLARATION = AgentDeclaration(
    name="reference",
    summary="calls what the plan needs next when it is shown, else asks, else probes, else stalls",
    options={"probe": Option(str, "true", choices=("true", "false"))},
    knows_plan=True,
    deterministic=True,
    simulated=True,
)


class Reference:
    """Calls the next required route when it is exposed; otherwise asks, probes, or stops."""

    def __init__(self, guide: Guide, *, probe: bool) -> None:
        self._guide = guide
        self._probe = probe

    def act(self, view: AgentView) -> Action:
        """Choose the next action; it asks or probes only where that can still change what is exposed."""
        call = self._guide.next_call()
        if call is None:
            return Action("stop", reason="completed")
        if call.route_id in view.tools:
            return Action("call", call)
        if view.can_ask:
            return Action("ask")
        probe = self._probe_call(view) if self._probe and view.can_turn else None
        return Action("call", probe) if probe is not None else Action("stop", reason="stalled")

    def _probe_call(self, view: AgentView) -> Call | None:
        """A call of the first exposed read-only route, by route id, not called before, that values seen so far can fill."""
        called = {turn.call.route_id for turn in view.history}
        values = SeenValues([*observed_values(view.history, view.catalog), *self._guide.literals()])
        for route_id in sorted(view.tools):
            capability = view.catalog.get(route_id)
            if capability is None or capability.effect != "read" or route_id in called:
                continue
            arguments = arguments_from(capability.required_parameters, values)
            if arguments is not None:
                return Call(route_id, arguments)
        return None


def build(guide: Guide, values: dict[str, int | float | str]) -> Reference:
    """Build from a spec's values."""
    return Reference(guide, probe=values["probe"] == "true")
