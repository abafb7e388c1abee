"""An agent that knows the plan and makes errors: shows how a verdict holds under wrong calls, and how repeats differ."""

from __future__ import annotations

import random

from schemarouter.agents.base import (
    Action,
    AgentDeclaration,
    AgentView,
    Guide,
    SeenValues,
    arguments_from,
    observed_values,
)
from schemarouter.agents.reference import Reference
from schemarouter.retrieval.spec import Option
from schemarouter.state import Call

DECLARATION = AgentDeclaration(
    name="fallible",
    summary="as reference, but calls another of the tools shown in a share of its turns",
    options={
        "slip": Option(float, "0.1", minimum=0.0, maximum=1.0),
        "seed": Option(int, "0", minimum=0),
    },
    knows_plan=True,
    deterministic=True,
    simulated=True,
)


class Fallible:
    """Acts as the reference agent, but replaces each call by a wrong one with probability `error_rate`."""

    def __init__(self, guide: Guide, *, error_rate: float, seed: int) -> None:
        self._guide = guide
        self._reference = Reference(guide)
        self._error_rate = error_rate
        self._seed = seed

    def act(self, view: AgentView) -> Action:
        """Choose the next action; whether it is wrong depends on seed, query and turn alone, not on what ran before."""
        action = self._reference.act(view)
        if action.call is None:
            return action
        chance = random.Random(f"{self._seed}/{len(view.history)}/{view.query}")
        if chance.random() >= self._error_rate:
            return action
        wrong = self._other_calls(view, action.call.route_id)
        return Action("call", chance.choice(wrong)) if wrong else action

    def _other_calls(self, view: AgentView, right: str) -> list[Call]:
        """Calls of other tools shown, by route id, not called before, whose parameters the values seen so far can fill."""
        called = {turn.call.route_id for turn in view.history}
        values = SeenValues([*observed_values(view.history, view.catalog), *self._guide.literals()])
        calls = []
        for route in sorted(view.tools):
            capability = view.catalog.get(route)
            if capability is None or route == right or route in called:
                continue
            arguments = arguments_from(capability.required_parameters, values)
            if arguments is not None:
                calls.append(Call(route, arguments))
        return calls


def build(guide: Guide, values: dict[str, int | float | str]) -> Fallible:
    """Build from a spec's values."""
    return Fallible(guide, error_rate=float(values["slip"]), seed=int(values["seed"]))
