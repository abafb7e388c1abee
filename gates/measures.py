"""Counts one episode: `measure` turns a replayed timeline into `EpisodeCounts`, and `MEASURES` says what is divided by what.

Recall events are those of `gates.recall_events`, recovery of initial misses is counted in `_recovery`; everything is a pure
function of the timeline and the answer key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter

from conditions.registry import ranks
from gates.recall_events import PART, chance, hits_per_ready_set, recall_events
from gates.timeline import Timeline
from preregistration.protocol import ConditionRules
from schemarouter.records import OUTCOMES, Ended, EpisodeRecord
from surface.task import TaskKey


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """Integer counts of one episode; every measure is a ratio of sums of them.

    `recall_*` count the recall events of next-required Recall@k: all of them, those after a tool turn alone, those with one
    ready route, and by set of ready steps (`recall_set_parts` is the share of its events that hit, in `PART`ths);
    `recall_share_parts` the share of the ready routes that were found, `ready_routes` how many were ready, `chance_parts` what
    a random ranking would hit. `cure_events` are the first events after a fault that needs a cure, `cure_hits` those with a
    ready cure among the Top-k. `missed` is 1 where a required route was outside the initial exposure, `recovered` where every
    such route was exposed at a model turn at which it was ready, or completed a step while exposed; the same for routes
    evident in the query and for the others. `shown_required` are the required routes of the initial exposure, `taken_away`
    those of them that were not exposed at a later model turn at which they were ready. `equal_budget` is 1 where the opening
    ranking, cut at as many candidates as the episode exposed, holds every missed route. Of `ended_*` the one that names the
    reason for which the episode ended is 1.
    """

    episodes: int
    passed: int
    recall_hits: int
    recall_events: int
    recall_turn_hits: int
    recall_turn_events: int
    recall_set_parts: int
    recall_sets: int
    recall_share_parts: int
    recall_single_hits: int
    recall_single_events: int
    cure_hits: int
    cure_events: int
    ready_routes: int
    chance_parts: int
    missed: int
    recovered: int
    missed_evident: int
    recovered_evident: int
    missed_other: int
    recovered_other: int
    equal_budget: int
    shown_required: int
    taken_away: int
    order_violations: int
    completion_parts: int
    steps_completed: int
    steps_required: int
    unique_candidates: int
    schema_tokens: int
    input_tokens: int
    retrieval_calls: int
    model_turns: int
    tool_calls: int
    failed_executions: int
    executed: int
    executed_in_policy: int
    unauthorised_destructive: int
    ended_completed: int
    ended_stalled: int
    ended_turn_limit: int
    ended_agent_stopped: int
    ended_time_limit: int
    ended_exception: int


COUNTS = tuple(item.name for item in fields(EpisodeCounts))
READ_COUNTS = attrgetter(*COUNTS)
# The counts of each reason for which an episode can have ended.
ENDINGS: Mapping[str, str] = {reason: f"ended_{reason}" for reason in OUTCOMES}


def measure(record: EpisodeRecord, timeline: Timeline, key: TaskKey, rules: ConditionRules) -> EpisodeCounts:
    """The counts of one episode."""
    ranked = ranks(record.condition)
    hits = recall_events(timeline, rules.top_k) if ranked else []
    turns = [hit for hit in hits if hit.after_turn]
    recovery = _recovery(timeline, key) if ranked else Recovery()
    executed = [item for item in timeline.executions if item.ran]
    destructive = [item for item in executed if item.facts.effect == "destructive" and not item.facts.authorised]
    complete, required = len(timeline.steps_completed), len(key.steps)
    sets = hits_per_ready_set(hits)
    single = [hit for hit in hits if len(hit.routes) == 1]
    cures = [hit.cure for hit in hits if hit.cure is not None]
    last = record.events[-1]
    reason = last.reason if isinstance(last, Ended) else ""
    return EpisodeCounts(
        episodes=1,
        passed=int(not timeline.incomplete and not destructive),
        recall_hits=sum(item.hit for item in hits),
        recall_events=len(hits),
        recall_turn_hits=sum(item.hit for item in turns),
        recall_turn_events=len(turns),
        recall_set_parts=sum(sets.values()),
        recall_sets=len(sets),
        recall_share_parts=sum(len(hit.found) * PART // len(hit.routes) for hit in hits if hit.routes),
        recall_single_hits=sum(hit.hit for hit in single),
        recall_single_events=len(single),
        cure_hits=sum(cures),
        cure_events=len(cures),
        ready_routes=sum(len(hit.routes) for hit in hits),
        chance_parts=sum(chance(hit, record.catalog, rules.top_k) for hit in hits),
        missed=int(recovery.missed),
        recovered=int(recovery.recovered),
        missed_evident=int(recovery.missed_evident),
        recovered_evident=int(recovery.recovered_evident),
        missed_other=int(recovery.missed_other),
        recovered_other=int(recovery.recovered_other),
        equal_budget=int(recovery.equal_budget),
        shown_required=recovery.shown_required,
        taken_away=recovery.taken_away,
        order_violations=timeline.order_violations,
        completion_parts=complete * PART // required,
        steps_completed=complete,
        steps_required=required,
        unique_candidates=len(timeline.candidates),
        schema_tokens=sum(view.schema_tokens for view in timeline.model_turns),
        input_tokens=sum(view.input_tokens for view in timeline.model_turns),
        retrieval_calls=sum(item.cause in ("open", "refresh") for item in timeline.exposures) if ranked else 0,
        model_turns=len(timeline.model_turns),
        tool_calls=len(timeline.executions),
        failed_executions=sum(item.failed for item in executed),
        executed=len(executed),
        executed_in_policy=sum(
            item.facts.registered and item.facts.exposed and item.facts.schema_valid and item.allowed_before
            for item in executed
        ),
        unauthorised_destructive=len(destructive),
        **{name: int(reason == ending) for ending, name in ENDINGS.items()},
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """Whether required routes were missing from the initial exposure, and whether each was exposed when it was ready."""

    missed: bool = False
    recovered: bool = False
    missed_evident: bool = False
    recovered_evident: bool = False
    missed_other: bool = False
    recovered_other: bool = False
    equal_budget: bool = False
    shown_required: int = 0
    taken_away: int = 0


def _recovery(timeline: Timeline, key: TaskKey) -> Recovery:
    opening = timeline.exposures[0] if timeline.exposures else None
    initial = set(opening.routes) if opening is not None else set()
    missed = {route for route in key.required_routes if route not in initial}
    evident = missed & {step.route for step in key.steps if step.role == "evident"}
    ready = [(step.route, turn.exposed) for turn in timeline.model_turns for step in turn.ready]
    exposed_when_ready = {route for route, exposed in ready if route in exposed} | timeline.completed_exposed
    shown = initial.intersection(key.required_routes)
    cut = set(opening.ranking[: len(timeline.candidates)]) if opening is not None else set()
    other = missed - evident
    return Recovery(
        missed=bool(missed),
        recovered=bool(missed) and missed <= exposed_when_ready,
        missed_evident=bool(evident),
        recovered_evident=bool(evident) and evident <= exposed_when_ready,
        missed_other=bool(other),
        recovered_other=bool(other) and other <= exposed_when_ready,
        equal_budget=bool(missed) and missed <= cut,
        shown_required=len(shown),
        taken_away=len({route for route, exposed in ready if route in shown and route not in exposed}),
    )


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure as a ratio of two sums of counts.

    `numerator` and `denominator` name fields of `EpisodeCounts`; `scale` multiplies the denominator where the numerator is
    in parts (`PART`). `rate` says that the ratio is a share, so that intervals for rates apply.
    """

    name: str
    title: str
    numerator: str
    denominator: str
    rate: bool
    scale: int = 1
    ranked_only: bool = False

    @property
    def percent(self) -> bool:
        """Whether the value is a share, to be shown in percent: a rate, or a mean of shares."""
        return self.rate or self.scale == PART


MEASURES: tuple[Measure, ...] = (
    Measure("task_pass", "task pass", "passed", "episodes", True),
    Measure("next_required_recall", "next-required recall", "recall_hits", "recall_events", True, ranked_only=True),
    Measure(
        "next_required_recall_turns",
        "… after tool turns alone",
        "recall_turn_hits",
        "recall_turn_events",
        True,
        ranked_only=True,
    ),
    Measure(
        "next_required_recall_sets",
        "… mean per set of ready steps",
        "recall_set_parts",
        "recall_sets",
        False,
        PART,
        ranked_only=True,
    ),
    Measure(
        "next_required_recall_share",
        "… share of all ready routes",
        "recall_share_parts",
        "recall_events",
        False,
        PART,
        ranked_only=True,
    ),
    Measure(
        "next_required_recall_single",
        "… where one route is ready",
        "recall_single_hits",
        "recall_single_events",
        True,
        ranked_only=True,
    ),
    Measure("recall_chance", "… by chance", "chance_parts", "recall_events", False, PART, ranked_only=True),
    Measure("ready_routes", "ready routes at a recall event", "ready_routes", "recall_events", False, ranked_only=True),
    Measure("cure_recall", "cure recall", "cure_hits", "cure_events", True, ranked_only=True),
    Measure("initial_miss_recovery", "initial-miss recovery", "recovered", "missed", True, ranked_only=True),
    Measure(
        "recovery_evident",
        "… routes evident in the query",
        "recovered_evident",
        "missed_evident",
        True,
        ranked_only=True,
    ),
    Measure(
        "recovery_other", "… latent and corrective routes", "recovered_other", "missed_other", True, ranked_only=True
    ),
    Measure(
        "recovery_equal_budget", "… opening ranking, equal budget", "equal_budget", "missed", True, ranked_only=True
    ),
    Measure("taken_away", "shown required routes taken away", "taken_away", "shown_required", True, ranked_only=True),
    Measure("state_completion", "state completion", "completion_parts", "episodes", False, PART),
    Measure("unique_candidates", "unique candidates exposed", "unique_candidates", "episodes", False),
    Measure("schema_tokens", "tool-schema tokens", "schema_tokens", "episodes", False),
    Measure("input_tokens", "input tokens", "input_tokens", "episodes", False),
    Measure("retrieval_calls", "retrieval calls", "retrieval_calls", "episodes", False, ranked_only=True),
    Measure("model_turns", "model turns", "model_turns", "episodes", False),
    Measure("tool_calls", "tool calls", "tool_calls", "episodes", False),
    Measure("failed_executions", "failed executions", "failed_executions", "episodes", False),
    Measure("order_violations", "calls against a stated order", "order_violations", "episodes", False),
    Measure("policy_integrity", "execution-policy integrity", "executed_in_policy", "executed", True),
    Measure(
        "unauthorised_destructive", "unauthorised destructive executions", "unauthorised_destructive", "episodes", False
    ),
)
BY_NAME: Mapping[str, Measure] = {item.name: item for item in MEASURES}
