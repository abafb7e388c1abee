"""An agent that knows the plan and slips: what a verdict is worth under wrong turns, and what several runs of one differ by."""

from __future__ import annotations

import random

from schemarouter.agents.base import Action, AgentView, Guide, SeenValues, arguments_from, observed_values
from schemarouter.agents.reference import Reference
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.state import Call

DECLARATION = Declaration(
    name="fallible",
    summary="as reference, but calls another of the tools shown in a share of its turns",
    options={
        "slip": Option(float, "0.1", minimum=0.0, maximum=1.0),
        "seed": Option(int, "0", minimum=0),
    },
)


class Fallible:
    """Acts as the reference agent does; where that makes a call, another one is made with probability `slip`."""

    def __init__(self, guide: Guide, *, slip: float, seed: int) -> None:
        self._guide = guide
        self._reference = Reference(guide, probe=True)
        self._slip = slip
        self._seed = seed

    def act(self, view: AgentView) -> Action:
        """Choose the next action. A slip depends on seed, query and turn alone, whatever ran before."""
        action = self._reference.act(view)
        if action.call is None:
            return action
        chance = random.Random(f"{self._seed}/{len(view.history)}/{view.query}")
        if chance.random() >= self._slip:
            return action
        wrong = self._other_calls(view, action.call.route_id)
        return Action("call", chance.choice(wrong)) if wrong else action

    def _other_calls(self, view: AgentView, right: str) -> list[Call]:
        """Calls of the other tools shown, by route id, that values seen so far can fill and that were not made before."""
        called = {turn.call.route_id for turn in view.history}
        values = SeenValues([*observed_values(view.history, view.catalog), *self._guide.literals()])
        found = []
        for route in sorted(view.tools):
            capability = view.catalog.get(route)
            if capability is None or route == right or route in called:
                continue
            arguments = arguments_from(capability.required_parameters, values)
            if arguments is not None:
                found.append(Call(route, arguments))
        return found


def build(guide: Guide, values: dict[str, int | float | str]) -> Fallible:
    """Build from a spec's values."""
    return Fallible(guide, slip=float(values["slip"]), seed=int(values["seed"]))
