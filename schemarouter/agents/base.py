"""What an agent is, what it sees, and what a guide may tell the one agent that is given it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, Protocol

from schemarouter.catalog import Catalog, Contract, matches_type
from schemarouter.state import Call, Observation

REQUEST_MORE_TOOLS = "REQUEST_MORE_TOOLS"
TASK_INCOMPLETE = "TASK_INCOMPLETE"
SYSTEM_PROMPT = (
    "You complete the user's request with the tools you are given, one call at a time. "
    f"When none of them helps, answer exactly {REQUEST_MORE_TOOLS}. "
    f"{TASK_INCOMPLETE} means that the request is not completed yet; look at the tools again."
)


@dataclass(frozen=True, slots=True)
class SeenValue:
    """A value an agent has seen, with the contract that says what it means."""

    value: Any
    contract: Contract


@dataclass(frozen=True, slots=True)
class Turn:
    """One finished tool turn: what was called and what came back."""

    call: Call
    observation: Observation


@dataclass(frozen=True, slots=True)
class AgentView:
    """What an agent sees at a model turn.

    `can_ask` and `can_turn` say whether asking for more, and whether another tool turn, can still change `tools`.
    """

    query: str
    tools: Sequence[str]
    can_ask: bool
    can_turn: bool
    history: Sequence[Turn]
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent does at a model turn: call a tool, ask for more tools, or stop."""

    kind: Literal["call", "ask", "stop"]
    call: Call | None = None
    reason: str = ""


class Guide(Protocol):
    """Knowledge of the plan, for the one agent that measures retrieval and not itself."""

    def next_call(self) -> Call | None:
        """The call that completes the next required step, or None when the task is complete."""

    def literals(self) -> Sequence[SeenValue]:
        """The values the query states, with the contracts of the parameters they are for."""


class Agent(Protocol):
    """Chooses one action a model turn. ProcessLocal anew for every episode."""

    def act(self, view: AgentView) -> Action:
        """Choose the next action from what is seen."""


def fits(value: SeenValue, parameter: Contract) -> bool:
    """Whether a seen value may fill a parameter: same meaning and unit where both are registered, else same name and type."""
    seen = value.contract
    if seen.semantic_id is not None and parameter.semantic_id is not None:
        return (
            seen.semantic_id == parameter.semantic_id
            and seen.unit == parameter.unit
            and _admits(parameter, value.value)
        )
    return seen.name == parameter.name and seen.type == parameter.type and _admits(parameter, value.value)


def _admits(parameter: Contract, value: Any) -> bool:
    return matches_type(value, parameter.type) and (not parameter.enum or value in parameter.enum)


def observed_values(history: Sequence[Turn], catalog: Catalog) -> list[SeenValue]:
    """Every registered field of every completed turn, latest first."""
    values: list[SeenValue] = []
    for turn in reversed(history):
        capability = catalog.get(turn.call.route_id)
        if capability is None or turn.observation.failed:
            continue
        outputs = capability.outputs_by_name
        values += [SeenValue(v, outputs[name]) for name, v in turn.observation.payload.items() if name in outputs]
    return values


class SeenValues:
    """Values an agent has seen, the ones to be preferred first, found by what they mean and by what they are called."""

    def __init__(self, values: Iterable[SeenValue]) -> None:
        self._found: dict[tuple[str, str], list[tuple[int, SeenValue]]] = {}
        for place, value in enumerate(values):
            for key in _keys(value.contract):
                self._found.setdefault(key, []).append((place, value))

    def fitting(self, parameter: Contract) -> SeenValue | None:
        """The first value that fits a parameter, or None."""
        found = [item for key in _keys(parameter) for item in self._found.get(key, ())]
        found.sort(key=itemgetter(0))
        return next((value for _, value in found if fits(value, parameter)), None)


def _keys(contract: Contract) -> tuple[tuple[str, str], ...]:
    """What two contracts have in common, at least one of them, where a value of one fits the other."""
    named = ("name", contract.name)
    return (named,) if contract.semantic_id is None else (("meaning", contract.semantic_id), named)


def arguments_from(parameters: Sequence[Contract], values: SeenValues) -> Mapping[str, Any] | None:
    """Fill each parameter with the first value that fits it; None when one cannot be filled."""
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        chosen = values.fitting(parameter)
        if chosen is None:
            return None
        arguments[parameter.name] = chosen.value
    return arguments
