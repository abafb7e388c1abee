"""The interface of an agent: what it sees, what it does, what it declares, and the guide to the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, Protocol

from schemarouter.catalog import Catalog, Contract, matches_type
from schemarouter.retrieval.spec import Declaration
from schemarouter.state import Call, Observation

REQUEST_MORE_TOOLS = "REQUEST_MORE_TOOLS"
TASK_INCOMPLETE = "TASK_INCOMPLETE"
SYSTEM_PROMPT = (
    "You complete the user's request with the tools you are given, one call at a time. "
    f"When none of them helps, answer exactly {REQUEST_MORE_TOOLS}. "
    f"{TASK_INCOMPLETE} means that the request is not completed yet; look at the tools again."
)


# Which steps of a plan are next: all that are ready, or the first alone as the key is written.
Order = Literal["ready", "written"]


@dataclass(frozen=True, slots=True)
class SeenValue:
    """A value that an agent has seen, with the contract that says what it means."""

    value: Any
    contract: Contract


@dataclass(frozen=True, slots=True)
class Turn:
    """One finished tool turn: the call, and the observation that it returned."""

    call: Call
    observation: Observation


@dataclass(frozen=True, slots=True)
class AgentView:
    """What an agent sees at a model turn.

    Attributes:
        query: The user's request.
        tools: Ids of the routes that are shown.
        can_ask: Whether asking for more tools can still change `tools`.
        can_turn: Whether another tool turn can still change `tools`.
        history: The tool turns so far, in order.
        catalog: The contracts of all registered routes.
    """

    query: str
    tools: Sequence[str]
    can_ask: bool
    can_turn: bool
    history: Sequence[Turn]
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent does at a model turn.

    Attributes:
        kind: ``call`` a tool, ``ask`` for more tools, or ``stop``.
        call: The call, exactly where `kind` is ``call``.
        reason: Why it stops.

    Example:
        >>> Action("call", Call("orders.find", {"name": "Lee"})).kind
        'call'
    """

    kind: Literal["call", "ask", "stop"]
    call: Call | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NextCall:
    """A call that completes a ready step of the plan.

    Attributes:
        step: Id of the step.
        call: The call.
        corrective: Whether the step is part of what takes a fault away.
    """

    step: str
    call: Call
    corrective: bool = False


class Guide(Protocol):
    """Knowledge of the task's plan, for agents that declare `knows_plan`: their own choices are not what is measured."""

    def next_calls(self, order: Order = "ready") -> Sequence[NextCall]:
        """Return the calls that complete the ready steps; none when the task is complete.

        With order ``written`` it is the one step that is first as the answer key is written, for strict figures.
        """

    def literals(self) -> Sequence[SeenValue]:
        """Return the values that the query states, with the contracts of the parameters they are for."""


@dataclass(frozen=True, slots=True)
class AgentDeclaration(Declaration):
    """What a registered agent takes, and what a verdict says of it; of one that declares nothing, nothing is claimed.

    Attributes:
        knows_plan: Whether it is handed the `Guide` of each episode; all others get None.
        deterministic: Whether one spec, its seed included, always does the same in the same episode.
        simulated: Whether a program chooses its actions, and no language model.
    """

    knows_plan: bool = False
    deterministic: bool = False
    simulated: bool = False


class Agent(Protocol):
    """Chooses one action at each model turn; built anew for every episode."""

    def act(self, view: AgentView) -> Action:
        """Choose the next action.

        Args:
            view: What the agent sees at this turn.

        Returns:
            The action.
        """


def fits(value: SeenValue, parameter: Contract) -> bool:
    """Whether a seen value may fill a parameter: same semantic id and unit where both have one, else same name and type."""
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
    """Every registered field of every completed turn, the latest turn first."""
    values: list[SeenValue] = []
    for turn in reversed(history):
        capability = catalog.get(turn.call.route_id)
        if capability is None or turn.observation.failed:
            continue
        outputs = capability.outputs_by_name
        values += [SeenValue(v, outputs[name]) for name, v in turn.observation.payload.items() if name in outputs]
    return values


class SeenValues:
    """Values that an agent has seen, in order of preference, indexed by semantic id and by name."""

    def __init__(self, values: Iterable[SeenValue]) -> None:
        self._by_key: dict[tuple[str, str], list[tuple[int, SeenValue]]] = {}
        for rank, value in enumerate(values):
            for key in _keys(value.contract):
                self._by_key.setdefault(key, []).append((rank, value))

    def fitting(self, parameter: Contract) -> SeenValue | None:
        """Return the first value that fits a parameter, or None."""
        candidates = [item for key in _keys(parameter) for item in self._by_key.get(key, ())]
        candidates.sort(key=itemgetter(0))
        return next((value for _, value in candidates if fits(value, parameter)), None)


def _keys(contract: Contract) -> tuple[tuple[str, str], ...]:
    """Keys of a contract; where a value of one contract fits another, the two share a key."""
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
