"""What happened in an episode, as a replay finds it and `gates.measures` counts it."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemarouter.policy import Decision, Facts
from schemarouter.records import Exposed
from surface.task import Step


@dataclass(frozen=True, slots=True)
class ModelTurnView:
    """A model turn: what was exposed, which steps were ready, and the tokens of the prompt."""

    exposed: frozenset[str]
    ready: tuple[Step, ...]
    input_tokens: int
    schema_tokens: int


@dataclass(frozen=True, slots=True)
class AfterTurn:
    """The situation after a tool turn that left the task incomplete: the ready steps and the ranking then in force.

    `cures` are the routes of the ready cures where the turn was the first to show a fault that needs one, else None.
    """

    ready: tuple[Step, ...]
    ranking: tuple[str, ...]
    cures: frozenset[str] | None = None


@dataclass(slots=True)
class Execution:
    """A call that was made: its facts, whether it was allowed before it ran, whether it ran, and whether it failed.

    `decision` is what the policy decided, or None as long as no decision is on record.
    """

    facts: Facts
    decision: Decision | None = None
    allowed_before: bool = False
    ran: bool = False
    failed: bool = False


@dataclass
class Timeline:
    """What happened in an episode, as `gates.measures.measure` counts it.

    `candidates` are all routes ever exposed, `completed_exposed` those whose call completed a step while they were exposed.
    """

    model_turns: list[ModelTurnView] = field(default_factory=list)
    after_turns: list[AfterTurn] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    exposures: list[Exposed] = field(default_factory=list)
    candidates: frozenset[str] = frozenset()
    steps_completed: tuple[str, ...] = ()
    completed_exposed: set[str] = field(default_factory=set)
    ready_at_end: tuple[Step, ...] = ()
    order_violations: int = 0
    incomplete: bool = True
