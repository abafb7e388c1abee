"""Where a recall event is counted: at which decision points next-required Recall@k is judged, and whether each is a hit.

`gates.replay` says, for each tool turn that left the task incomplete, which steps were ready and which ranking was in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from gates.timeline import Timeline
from surface.task import Step

# Shares inside an episode are kept as integers of this denominator, so that sums over episodes are exact: every number of
# events or steps an episode can have divides it.
PART = 27720


@dataclass(frozen=True, slots=True)
class RecallEvent:
    """One event of next-required recall.

    Attributes:
        steps: Ids of the ready steps.
        routes: Their routes.
        found: Those of the routes that the Top-k holds.
        after_turn: Whether the event follows a tool turn.
        cure: Whether the Top-k holds a ready cure, where the turn was the first to show a fault that needs one; else None.
    """

    steps: frozenset[str]
    routes: frozenset[str]
    found: frozenset[str]
    after_turn: bool
    cure: bool | None = None

    @property
    def hit(self) -> bool:
        """Whether the Top-k held the route of a ready step."""
        return bool(self.found)


def _event(
    ready: Sequence[Step], top: Sequence[str], *, after_turn: bool, cures: frozenset[str] | None = None
) -> RecallEvent:
    routes = frozenset(step.route for step in ready)
    cure = None if cures is None else not cures.isdisjoint(top)
    return RecallEvent(frozenset(step.id for step in ready), routes, routes.intersection(top), after_turn, cure)


def recall_events(timeline: Timeline, top_k: int) -> list[RecallEvent]:
    """One event after each tool turn that left the task incomplete; without any tool turn, one on the last exposure."""
    if timeline.executions:
        return [
            _event(item.ready, item.ranking[:top_k], after_turn=True, cures=item.cures) for item in timeline.after_turns
        ]
    ranking = timeline.exposures[-1].ranking if timeline.exposures else ()
    return [_event(timeline.ready_at_end, ranking[:top_k], after_turn=False)]


def hits_per_ready_set(events: Sequence[RecallEvent]) -> Mapping[frozenset[str], int]:
    """Per set of ready steps the share of its events that hit, in `PART`ths: a miss that is met several times counts once."""
    grouped: dict[frozenset[str], list[bool]] = {}
    for item in events:
        grouped.setdefault(item.steps, []).append(item.hit)
    return {steps: sum(hits) * PART // len(hits) for steps, hits in grouped.items()}


def chance(event: RecallEvent, catalog: int, top_k: int) -> int:
    """The probability, in `PART`ths, that `top_k` routes drawn from a catalog of that size hold one of the ready ones."""
    drawn = comb(catalog, top_k)
    return (drawn - comb(catalog - len(event.routes), top_k)) * PART // drawn
