"""Replays a record: every call runs in the environment again, and every event is compared with what must have happened.

The result is the `gates.timeline.Timeline` that `gates.measures` counts. A record of what cannot have happened is refused with
the location, the event and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from conditions.running.episode import own_copy, turn_messages, unregistered
from gates.exposure_checks import ExposureChecker
from gates.timeline import AfterTurn, Execution, ModelTurnView, Timeline
from preregistration.protocol import Protocol
from schemarouter.agents.base import REQUEST_MORE_TOOLS, SYSTEM_PROMPT, TASK_INCOMPLETE, Order
from schemarouter.caches import Bounded
from schemarouter.canonical import CanonicalError, canonical_json, sha256_hex
from schemarouter.catalog import Capability, Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.policy import Decision, Facts, StandardPolicy, facts_of
from schemarouter.records import (
    Asked,
    Called,
    Decided,
    Ended,
    EpisodeRecord,
    Exposed,
    ModelTurn,
    Observed,
    StateChanged,
)
from schemarouter.state import Call, ExecutionState, Observation, StateError
from schemarouter.tokens import Message, TokenCounter
from surface.environment import Environment
from surface.task import Task

# Ends by a failure. An episode that an infrastructure failure ended is not measured, but checked up to there.
FAILURES = frozenset({"exception", "infrastructure", "time_limit"})
_MAX_QUERIES = 1024


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """A state, its canonical bytes and their SHA-256, counts of what its last turn left out, and that turn's contract."""

    state: ExecutionState
    data: bytes
    sha256: str
    omitted: Mapping[str, int]
    capability: Capability | None

    @classmethod
    def of(
        cls, state: ExecutionState, omitted: Mapping[str, int] | None = None, capability: Capability | None = None
    ) -> StateSnapshot:
        """Take the snapshot of a state."""
        data = state.canonical_json()
        return cls(state, data, sha256_hex(data), omitted or {}, capability)


@lru_cache(maxsize=_MAX_QUERIES)
def _start(query: str) -> StateSnapshot:
    return StateSnapshot.of(ExecutionState.start(query))


# An entry keeps its contract alive, so that no other object can have its `id`.
_STATES: Final = Bounded[tuple[bytes, bytes, str, int, bool], StateSnapshot](4096)
_MESSAGES: Final = Bounded[tuple[int, bytes, bytes], list[Message]](4096)


class Replay:
    """One pass over the events of a record, each checked; `where` (file and line) is named when one is refused.

    `order` says which steps count as next: those that are ready, or the one that is first as the key is written.
    """

    def __init__(
        self,
        record: EpisodeRecord,
        task: Task,
        catalog: Catalog,
        protocol: Protocol,
        counter: TokenCounter,
        where: str,
        *,
        order: Order = "ready",
    ) -> None:
        self.record = record
        self.task = task
        self.catalog = catalog
        self.max_turns = protocol.episode.max_model_turns
        self.counter = counter
        self.where = where
        self._exposures = ExposureChecker(record.condition, catalog, task.key.required_routes, protocol.conditions)
        self.timeline = Timeline(exposures=self._exposures.exposures)
        self._environment = Environment(task.key, catalog, seed_text=task.prompt.id)
        self._order = order
        self._ready = self._environment.progress.ready_steps(order)
        self._state = _start(task.prompt.query)
        self._messages = [Message("user", task.prompt.query)]
        self._call: Call | None = None
        self._last: tuple[Call, Observation] | None = None
        self._observed_bytes = b""
        self._turn = 0
        self._to_act = False
        self._fruitless_asks = 0

    def run(self) -> Timeline:
        """Replay every event. Raises InvalidRunError naming the location, the event and the contradiction."""
        events = self.record.events
        if not events or not isinstance(events[-1], Ended):
            raise self._wrong(len(events), "the record has no end")
        last = len(events) - 1
        for number, event in enumerate(events):
            ended = isinstance(event, Ended)
            if ended and number != last:
                raise self._wrong(number, "events follow the end of the episode")
            try:
                for problem in _HANDLERS[type(event)](self, event):
                    raise self._wrong(number, problem)
            except (StateError, CanonicalError) as error:
                raise self._wrong(number, f"this cannot have happened ({error})") from None
            if event.turn != self._turn and not ended:
                raise self._wrong(number, f"an event of turn {event.turn} in turn {self._turn}")
        progress = self._environment.progress
        self.timeline.candidates = self._exposures.candidates
        self.timeline.steps_completed = tuple(progress.complete)
        self.timeline.incomplete = progress.incomplete
        self.timeline.ready_at_end = self._ready
        self.timeline.order_violations = progress.order_violations
        return self.timeline

    def _wrong(self, number: int, problem: str) -> InvalidRunError:
        return InvalidRunError(f"{self.where}, {self.record.episode_id}, event {number}: {problem}.")

    def _expose(self, event: Exposed) -> Iterator[str]:
        before = self._exposures.exposure
        yield from self._exposures.take(event)
        if before is not None and event.routes != before.routes:
            self._fruitless_asks = 0
        if self.timeline.after_turns and event.cause == "refresh":
            # The recall event after a tool turn is judged on the ranking in force once the turn's refresh is done.
            self.timeline.after_turns[-1] = replace(self.timeline.after_turns[-1], ranking=event.ranking)

    def _model_turn(self, event: ModelTurn) -> Iterator[str]:
        self._turn += 1
        exposure = self._exposures.exposure
        if exposure is None:
            yield "a model turn before anything was exposed"
            return
        if event.turn != self._turn or event.turn > self.max_turns:
            yield f"model turn {event.turn} where {self._turn} comes next (at most {self.max_turns})"
        schema = self.counter.tools(self.catalog, self._exposures.routes)
        total = schema + self.counter.conversation(SYSTEM_PROMPT, self._messages)
        if (event.schema_tokens, event.input_tokens) != (schema, total):
            yield f"{event.schema_tokens} schema and {event.input_tokens} input tokens where {schema} and {total} are counted"
        if self._to_act or self._in_tool_turn:
            yield "a model turn before the previous one was over"
        yield from self._exposures.missing_change()
        if not self._environment.progress.incomplete:
            yield "a model turn after the task was completed"
        if self._fruitless_asks > 1:
            yield "a model turn after the agent asked twice with nothing changed"
        self._to_act = True
        self.timeline.model_turns.append(ModelTurnView(self._exposures.shown, self._ready, total, schema))

    @property
    def _in_tool_turn(self) -> bool:
        """Whether a call has not been observed yet, or its observation has not reached the state."""
        return self._call is not None or self._last is not None

    def _asked(self, _event: Asked) -> Iterator[str]:
        if not self._to_act:
            yield "an ask outside a model turn"
        self._to_act = False
        self._fruitless_asks += 1
        self._messages += [Message("assistant", REQUEST_MORE_TOOLS), Message("user", TASK_INCOMPLETE)]
        self._exposures.after_ask()

    def _called(self, event: Called) -> Iterator[str]:
        exposure, to_act = self._exposures.exposure, self._to_act
        if exposure is None or not to_act:
            yield "a call outside a model turn"
            return
        self._to_act, self._fruitless_asks = False, 0
        self._call = own_copy(Call(event.route, event.arguments))
        facts = facts_of(self._call, self.catalog, self._exposures.shown, self.task.key.authorised)
        self.timeline.executions.append(Execution(facts))
        if self._environment.progress.incomplete:
            self.timeline.after_turns.append(AfterTurn(self._ready, exposure.ranking))

    def _decided(self, event: Decided) -> Iterator[str]:
        if not self.timeline.executions or self._to_act:
            yield "a decision without a call"
            return
        execution = self.timeline.executions[-1]
        if execution.decision is not None:
            yield "a second decision on one call"
        if event.allowed and event.error:
            yield f"the decision lets the call run and gives the error {event.error!r}"
        execution.decision = Decision(event.allowed, event.error)
        stated = Facts(event.registered, event.exposed, event.schema_valid, event.effect, event.authorised)
        if stated != execution.facts:
            yield f"the decision rests on {stated}, but the facts are {execution.facts}"
        # A decision counts only while its call is still waiting to run.
        if self._call is not None:
            execution.allowed_before = event.allowed

    def _observed(self, event: Observed) -> Iterator[str]:
        call, self._call = self._call, None
        if call is None:
            yield "an observation without a call"
            return
        execution = self.timeline.executions[-1]
        observation = Observation(event.outcome, event.payload)
        self._observed_bytes = _bytes_of(observation)
        if event.outcome == "blocked":
            yield from self._compare_refusal(call, observation, execution)
        else:
            execution.ran, execution.failed = True, observation.failed
            yield from self._compare_execution(call, observation)
        progress = self._environment.progress
        if event.incomplete != progress.incomplete:
            yield f"incomplete is {event.incomplete} where the environment says {progress.incomplete}"
        self._last = call, observation
        self._settle(call, observation, event.incomplete)

    def _state_changed(self, event: StateChanged) -> Iterator[str]:
        last, self._last = self._last, None
        if last is None:
            yield "a change of state without an observation"
            return
        call, observation = last
        incomplete = self._environment.progress.incomplete
        before = self._state
        after = self._state = self._observe(call, observation, incomplete)
        if event.sha256 != after.sha256:
            yield "the state's hash does not follow from what was observed"
        if dict(event.omitted) != after.omitted:
            yield "the count of what was left out of the state is wrong"
        changed = after.data != before.data
        self._exposures.after_turn(failed=observation.failed, changed=changed, incomplete=incomplete)

    def _observe(self, call: Call, observation: Observation, incomplete: bool) -> StateSnapshot:
        """The state after a turn, made once for each state before, observation, contract and completeness."""
        capability = self.catalog.get(call.route_id)
        key = self._state.data, self._observed_bytes, call.route_id, id(capability), incomplete
        known = _STATES.get(key)
        if known is None:
            state, omitted = self._state.state.observe_all(call, observation, capability, incomplete=incomplete)
            known = _STATES[key] = StateSnapshot.of(state, omitted, capability)
        return known

    def _compare_refusal(self, call: Call, observation: Observation, execution: Execution) -> Iterator[str]:
        if execution.decision is None or execution.decision.allowed:
            yield "a call is recorded as blocked, and no decision refused it"
            return
        expected = StandardPolicy().decide(call, execution.facts)
        if expected.allowed:
            yield f"{call.route_id} was blocked, but the policy lets this call run"
        blocked = Observation("blocked", {"status": "blocked", "error": expected.error})
        if execution.decision.error != expected.error or _bytes_of(blocked) != self._observed_bytes:
            yield f"{call.route_id} was refused with {dict(observation.payload)}, but the policy says {expected.error!r}"

    def _compare_execution(self, call: Call, observation: Observation) -> Iterator[str]:
        actual = self._run_again(call)
        if _bytes_of(actual) != self._observed_bytes:
            yield (
                f"{call.route_id} answers {dict(actual.payload)} ({actual.outcome}), "
                f"the record says {dict(observation.payload)} ({observation.outcome})"
            )

    def _run_again(self, call: Call) -> Observation:
        if call.route_id not in self.catalog:
            return unregistered(call)
        progress = self._environment.progress
        complete, shown = len(progress.complete), {*progress.shown}
        observation = self._environment.execute(call)
        self._ready = progress.ready_steps(self._order)
        if len(progress.complete) > complete and self.timeline.executions[-1].facts.exposed:
            self.timeline.completed_exposed.add(call.route_id)
        needed = {cure for index in progress.shown - shown for cure in progress.key.faults[index].cured_by}
        if needed:
            ready = {step.route for step in self._ready if step.id in needed}
            self.timeline.after_turns[-1] = replace(self.timeline.after_turns[-1], cures=frozenset(ready))
        return observation

    def _settle(self, call: Call, observation: Observation, incomplete: bool) -> None:
        """After a tool turn: note the step that is now next, and extend the conversation."""
        after = self.timeline.after_turns
        if not incomplete:
            if after:
                after.pop()
        elif after:
            after[-1] = replace(after[-1], ready=self._ready)
        # The call is a copy read from canonical JSON: nothing in it has to be refused again.
        called = orjson.dumps([call.route_id, call.arguments], option=orjson.OPT_SORT_KEYS)
        key = self._turn, called, self._observed_bytes
        known = _MESSAGES.get(key)
        if known is None:
            known = _MESSAGES[key] = turn_messages(call, observation, self._turn)
        self._messages += known

    def _end(self, event: Ended) -> Iterator[str]:
        if event.reason not in self._possible_ends(event.detail):
            yield f"the outcome {event.reason!r} contradicts the events"
        failed = event.reason in FAILURES
        if not (self._fruitless_asks > 0 and failed):
            yield from self._exposures.missing_change()
        # Between two turns only the next one can have failed, before its tokens were counted.
        between = failed and not self._to_act and not self._in_tool_turn
        if event.turn != self._turn and not (between and event.turn == self._turn + 1 <= self.max_turns):
            yield f"the episode ends in turn {event.turn}, the events in turn {self._turn}"
        self._count_unobserved_call_as_run()
        yield from self._compare_steps(event)

    def _compare_steps(self, event: Ended) -> Iterator[str]:
        complete = self._environment.progress.complete
        replayed = [*complete]
        if event.steps_completed == tuple(replayed):
            return
        if event.reason == "infrastructure" and self._call is not None and self.timeline.executions[-1].ran:
            # The call had run when the infrastructure failed, and its observation was not recorded any more.
            self._run_again(self._call)
            if event.steps_completed == tuple(complete):
                return
        yield f"the outcome says steps {list(event.steps_completed)}, the events give {replayed}"

    def _possible_ends(self, detail: str) -> set[str]:
        """The reasons for which an episode can end after these events; `detail` is what the agent says when it stops."""
        if self._in_tool_turn:
            # Code failed inside the turn; whatever ended it, what ran is on record.
            return {*FAILURES, "agent_stopped"}
        if not self._environment.progress.incomplete:
            return {"completed"}
        if self._to_act:
            return {*FAILURES, "stalled" if detail == "stalled" else "agent_stopped"}
        if self._fruitless_asks > 1:
            return {*FAILURES, "stalled"}
        return {*FAILURES, "turn_limit"} if self._turn else {*FAILURES}

    def _count_unobserved_call_as_run(self) -> None:
        """Count a call that was allowed and never observed as run and failed: it may have had its effect."""
        if self._call is not None:
            execution = self.timeline.executions[-1]
            execution.ran = execution.failed = execution.allowed_before


_HANDLERS: Mapping[type[Any], Callable[[Replay, Any], Iterator[str]]] = {
    Exposed: Replay._expose,
    ModelTurn: Replay._model_turn,
    Asked: Replay._asked,
    Called: Replay._called,
    Decided: Replay._decided,
    Observed: Replay._observed,
    StateChanged: Replay._state_changed,
    Ended: Replay._end,
}


def _bytes_of(observation: Observation) -> bytes:
    """The canonical bytes of an observation, in which 1, 1.0 and true differ."""
    return canonical_json([observation.outcome, dict(observation.payload)])
