"""Where a recall event is counted: at which decision points next-required Recall@k is judged, and whether each is a hit.

`gates.replay` says, for each tool turn that left the task incomplete, which step was next and which ranking was in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gates.replay import Timeline

# Shares inside an episode are kept as integers of this denominator, so that sums over episodes are exact: every number of
# events or steps an episode can have divides it.
PART = 27720


@dataclass(frozen=True, slots=True)
class RecallEvent:
    """One event of next-required recall: whether the Top-k held the route of the step that was next."""

    step: str
    hit: bool
    after_turn: bool


def recall_events(timeline: Timeline, top_k: int) -> list[RecallEvent]:
    """One event after each tool turn that left the task incomplete; without any tool turn, one on the last exposure."""
    if timeline.executions:
        return [
            RecallEvent(item.next_step, item.next_route in item.ranking[:top_k], True) for item in timeline.after_turns
        ]
    ranking = timeline.exposures[-1].ranking if timeline.exposures else ()
    step = timeline.model_turns[-1].next_step if timeline.model_turns else None
    return [RecallEvent(step or "", timeline.next_at_end in ranking[:top_k], False)]


def hits_per_step(events: Sequence[RecallEvent]) -> Mapping[str, int]:
    """Per required step the share of its events that hit, in `PART`ths."""
    grouped: dict[str, list[bool]] = {}
    for item in events:
        grouped.setdefault(item.step, []).append(item.hit)
    return {step: sum(hits) * PART // len(hits) for step, hits in grouped.items()}
