"""The confirmatory agent: it knows the plan and makes no wrong choice, so that retrieval alone is measured."""

from __future__ import annotations

from collections.abc import Sequence

from schemarouter.agents.base import (
    Action,
    AgentDeclaration,
    AgentView,
    Guide,
    NextCall,
    Order,
    SeenValues,
    arguments_from,
    observed_values,
)
from schemarouter.canonical import canonical_json
from schemarouter.retrieval.spec import Option
from schemarouter.state import Call

DECLARATION = AgentDeclaration(
    name="reference",
    summary="calls what the plan needs next when it is shown, else asks, else probes, else stalls",
    options={
        "order": Option(str, "ready", choices=("ready", "written")),
        "probe": Option(str, "true", choices=("true", "false")),
    },
    knows_plan=True,
    deterministic=True,
    simulated=True,
)


class Reference:
    """Calls a next required route when one is exposed; otherwise asks, probes, or stops."""

    def __init__(self, guide: Guide, *, order: Order = "ready", probe: bool = True) -> None:
        self._guide = guide
        self._order = order
        self._probe = probe

    def act(self, view: AgentView) -> Action:
        """Choose the next action; it asks or probes only where that can still change what is exposed."""
        calls = self._guide.next_calls(self._order)
        if not calls:
            return Action("stop", reason="no step is ready")
        shown = [item for item in calls if item.call.route_id in view.tools]
        if shown:
            return Action("call", preferred(shown).call)
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


def preferred(calls: Sequence[NextCall]) -> NextCall:
    """The one of several next calls that is made: a corrective one first, then by route id, arguments and step."""
    return min(
        calls,
        key=lambda item: (
            not item.corrective,
            item.call.route_id,
            canonical_json(dict(item.call.arguments)),
            item.step,
        ),
    )


def build(guide: Guide, values: dict[str, int | float | str]) -> Reference:
    """Build from a spec's values."""
    order: Order = "written" if values["order"] == "written" else "ready"
    return Reference(guide, order=order, probe=values["probe"] == "true")
