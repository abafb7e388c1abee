"""Going through a record again: every call runs in the environment anew, and what the record says is compared.

What comes out is the timeline that the measures read. A record that tells of something that cannot have happened so is
refused with the event and the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from conditions.base import shown
from conditions.registry import CONDITIONS
from preregistration.protocol import Protocol
from schemarouter.agents.base import REQUEST_MORE_TOOLS, SYSTEM_PROMPT, TASK_INCOMPLETE
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError
from schemarouter.identity import sha256_hex
from schemarouter.policy import Facts, facts_of
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
from schemarouter.state import Call, ExecutionState, Observation, omissions
from schemarouter.tokens import Message, TokenCounter, call_text, result_text
from surface.environment import Environment
from surface.task import Task


@dataclass(frozen=True, slots=True)
class Moment:
    """A model turn: what was exposed, which required step was next, and the tokens of the prompt."""

    exposed: frozenset[str]
    next_step: str | None
    next_route: str | None
    input_tokens: int
    schema_tokens: int


@dataclass(frozen=True, slots=True)
class AfterTurn:
    """The situation after a tool turn that left the task incomplete: what is next and the ranking then in force."""

    next_step: str
    next_route: str
    ranking: tuple[str, ...]


@dataclass(slots=True)
class Execution:
    """A call that was made: its facts, whether it was allowed before it ran, whether it ran, and whether it failed."""

    facts: Facts
    allowed_before: bool = False
    ran: bool = False
    failed: bool = False


@dataclass
class Timeline:
    """What happened in an episode, as the measures need it."""

    moments: list[Moment] = field(default_factory=list)
    after_turns: list[AfterTurn] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    exposures: list[Exposed] = field(default_factory=list)
    asks: int = 0
    steps_completed: tuple[str, ...] = ()
    next_at_end: str | None = None
    incomplete: bool = True


class Replay:
    """One pass over the events of a record, checking each against the world it claims to come from."""

    def __init__(
        self, record: EpisodeRecord, task: Task, catalog: Catalog, protocol: Protocol, counter: TokenCounter, place: str
    ) -> None:
        self.record = record
        self.task = task
        self.catalog = catalog
        self.rules = protocol.conditions
        self.max_turns = protocol.episode.max_model_turns
        self.counter = counter
        self.place = place
        self.timeline = Timeline()
        self._environment = Environment(task.key, catalog, seed_text=task.prompt.id)
        self._state = ExecutionState.start(task.prompt.query)
        self._messages = [Message("user", task.prompt.query)]
        self._exposure: Exposed | None = None
        self._call: Call | None = None
        self._last: tuple[Call, Observation] | None = None
        self._changes = 0
        self._turn = 0
        self._asked_agent = False

    def run(self) -> Timeline:
        """Replay every event. Raises InvalidRunError naming the place, the event and what contradicts."""
        events = self.record.events
        if not events or not isinstance(events[-1], Ended):
            raise self._wrong(len(events), "the record has no end")
        for number, event in enumerate(events):
            for problem in self._take(event, last=number == len(events) - 1):
                raise self._wrong(number, problem)
        progress = self._environment.progress
        step = progress.next_step()
        self.timeline.steps_completed = tuple(progress.complete)
        self.timeline.incomplete = progress.incomplete
        self.timeline.next_at_end = step.route if step is not None else None
        return self.timeline

    def _wrong(self, number: int, problem: str) -> InvalidRunError:
        return InvalidRunError(f"{self.place}, {self.record.episode_id}, event {number}: {problem}.")

    def _take(self, event: object, *, last: bool) -> Iterator[str]:
        if isinstance(event, Ended):
            if not last:
                yield "the episode goes on after its end"
            yield from self._end(event)
        elif isinstance(event, Exposed):
            yield from self._expose(event)
        elif isinstance(event, ModelTurn):
            yield from self._model_turn(event)
        elif isinstance(event, Asked):
            self.timeline.asks += 1
            self._changes = 0
            self._messages += [Message("assistant", REQUEST_MORE_TOOLS), Message("user", TASK_INCOMPLETE)]
        elif isinstance(event, Called):
            yield from self._called(event)
        elif isinstance(event, Decided):
            yield from self._decided(event)
        elif isinstance(event, Observed):
            yield from self._observed(event)
        elif isinstance(event, StateChanged):
            yield from self._state_changed(event)

    def _expose(self, event: Exposed) -> Iterator[str]:
        first = self._exposure is None
        if first != (event.cause == "open"):
            yield f"an exposure of cause {event.cause!r} stands where {'the opening' if first else 'a change'} belongs"
        unknown = [route for route in (*event.routes, *event.ranking) if route not in self.catalog]
        if unknown:
            yield f"routes are not in catalog {self.record.catalog}: {', '.join(unknown[:3])}"
        self._changes += 1
        if not first and self._changes > 1:
            yield "the exposure changed twice in one turn"
        yield from self._expected_exposure(event)
        self._replace_ranking(event)

    def _replace_ranking(self, event: Exposed) -> None:
        self._exposure = event
        self.timeline.exposures.append(event)
        if self.timeline.after_turns and event.cause == "refresh":
            # The judgement after a tool turn is on the ranking in force once the turn's refresh is done.
            self.timeline.after_turns[-1] = replace(self.timeline.after_turns[-1], ranking=event.ranking)

    def _expected_exposure(self, event: Exposed) -> Iterator[str]:
        """What the condition can have shown, given the ranking it says it came from."""
        name, rules = self.record.condition, self.rules
        if name in ("FULL", "ORACLE"):
            expected = self.catalog.route_ids if name == "FULL" else shown(self.task.key.required_routes)
            if event.routes != expected or event.ranking or event.cause != "open":
                yield f"{name} shows something else than {'the whole catalog' if name == 'FULL' else 'the required routes'}"
            return
        if name not in CONDITIONS or name.startswith("SR-") is False:
            return
        size = rules.top_k
        if name == "SR-PROGRESSIVE-STATIC":
            stage = sum(item.cause == "widen" for item in self.timeline.exposures) + (event.cause == "widen")
            if stage >= len(rules.progressive_stages):
                yield "the ranking was widened beyond its last stage"
                return
            size = rules.progressive_stages[stage]
            if self._exposure is not None and event.ranking != self._exposure.ranking:
                yield "the frozen ranking changed"
        allowed = {
            "SR-5-STATIC": {"open"},
            "SR-PROGRESSIVE-STATIC": {"open", "widen"},
            "SR-5-STATE-AWARE": {"open", "refresh"},
        }
        if event.cause not in allowed[name]:
            yield f"{name} does not change its exposure by {event.cause!r}"
        refreshes = sum(item.cause == "refresh" for item in self.timeline.exposures) + (event.cause == "refresh")
        if refreshes > rules.refresh_budget:
            yield f"{refreshes} refreshes where {rules.refresh_budget} are allowed"
        if event.routes != shown(event.ranking[:size]):
            yield f"the routes shown are not the first {size} of the ranking"

    def _model_turn(self, event: ModelTurn) -> Iterator[str]:
        self._turn += 1
        self._asked_agent = True
        if not self._environment.progress.incomplete:
            yield "a model turn after the task was completed"
        if self._exposure is None:
            yield "a model turn before anything was exposed"
            return
        if event.turn != self._turn or event.turn > self.max_turns:
            yield f"model turn {event.turn} where {self._turn} comes next (at most {self.max_turns})"
        schema = self.counter.tools(self.catalog, self._exposure.routes)
        total = schema + self.counter.conversation(SYSTEM_PROMPT, self._messages)
        if (event.schema_tokens, event.input_tokens) != (schema, total):
            yield f"{event.schema_tokens} schema and {event.input_tokens} input tokens where {schema} and {total} are counted"
        step = self._environment.progress.next_step()
        exposed = frozenset(self._exposure.routes)
        route = step.route if step is not None else None
        self.timeline.moments.append(Moment(exposed, step.id if step else None, route, total, schema))

    def _called(self, event: Called) -> Iterator[str]:
        self._changes = 0
        asked, self._asked_agent = self._asked_agent, False
        if self._exposure is None or self._call is not None or not asked:
            yield "a call outside a model turn"
            return
        self._call = Call(event.route, event.arguments)
        facts = facts_of(self._call, self.catalog, self._exposure.routes, self.task.key.authorised)
        self.timeline.executions.append(Execution(facts))
        step = self._environment.progress.next_step()
        if step is not None:
            self.timeline.after_turns.append(AfterTurn(step.id, step.route, self._exposure.ranking))

    def _decided(self, event: Decided) -> Iterator[str]:
        if not self.timeline.executions:
            yield "a decision without a call"
            return
        execution = self.timeline.executions[-1]
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
        if event.outcome == "blocked" and execution.allowed_before:
            yield "a call that was allowed is said to have been blocked"
        if event.outcome != "blocked":
            execution.ran, execution.failed = True, observation.failed
            yield from self._compare_execution(call, observation)
        progress = self._environment.progress
        if event.incomplete != progress.incomplete:
            yield f"incomplete is {event.incomplete} where the environment says {progress.incomplete}"
        self._last = call, observation
        self._settle(call, event)

    def _state_changed(self, event: StateChanged) -> Iterator[str]:
        last, self._last = self._last, None
        if last is None:
            yield "a change of state without an observation"
            return
        call, observation = last
        capability = self.catalog.get(call.route_id)
        incomplete = self._environment.progress.incomplete
        self._state = self._state.observe(call, observation, capability, incomplete=incomplete)
        if event.sha256 != sha256_hex(self._state.canonical_json()):
            yield "the state's hash is not that of what was observed"
        if dict(event.omitted) != omissions(call, observation, capability):
            yield "the count of what was left out of the state is wrong"

    def _compare_execution(self, call: Call, observation: Observation) -> Iterator[str]:
        if call.route_id not in self.catalog:
            return
        actual = self._environment.execute(call)
        if (actual.outcome, dict(actual.payload)) != (observation.outcome, dict(observation.payload)):
            yield (
                f"{call.route_id} answers {dict(actual.payload)} ({actual.outcome}), "
                f"the record says {dict(observation.payload)} ({observation.outcome})"
            )

    def _settle(self, call: Call, event: Observed) -> None:
        """After a tool turn: judge what is next now, and let the conversation grow."""
        after = self.timeline.after_turns
        step = self._environment.progress.next_step()
        if step is None or not event.incomplete:
            if after:
                after.pop()
        elif after:
            after[-1] = AfterTurn(step.id, step.route, after[-1].ranking)
        call_id = f"call{event.turn:05d}"
        name = call.route_id.replace(".", "__")
        self._messages += [
            Message("call", call_text(name, dict(call.arguments), call_id)),
            Message("result", result_text(dict(event.payload), call_id)),
        ]

    def _end(self, event: Ended) -> Iterator[str]:
        progress = self._environment.progress
        if event.steps_completed != tuple(progress.complete):
            yield f"the outcome says steps {list(event.steps_completed)}, the events give {progress.complete}"
        # Code may fail after the last step too: the task is complete, and the episode ended by an exception.
        contradicts = (event.reason == "completed") == progress.incomplete
        if contradicts and not (event.reason == "exception" and not progress.incomplete):
            yield f"the outcome {event.reason!r} contradicts the events"
