"""An attempt at an episode, turn by turn, for a reader: what was needed, what was shown, what was called, what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from gates.identities import ReferenceData
from gates.replay import Replay
from schemarouter.cli.common import console as make_console
from schemarouter.records import Asked, Called, Decided, Ended, EpisodeRecord, Exposed, ModelTurn, Observed, encode
from schemarouter.state import Call, ExecutionState, Observation
from schemarouter.tokens import TokenCounter

_MAX_ROUTES = 20


@dataclass(frozen=True, slots=True)
class Needed:
    """What the plan needed next at a model turn.

    Attributes:
        turn: Model turn, from 1.
        step: Id of the plan's step.
        route: Its route.
        rank: Place of the route in the ranking in force, from 1; None where what was recorded of it does not hold the route.
        ranked: Number of routes recorded of that ranking; 0 for a condition that ranks nothing.
        exposed: Whether the agent saw the route.
    """

    turn: int
    step: str | None
    route: str | None
    rank: int | None
    ranked: int
    exposed: bool

    def __str__(self) -> str:
        place = f"rank {self.rank}" if self.rank else f"not among the first {self.ranked}"
        return f"{self.route} (step {self.step}): {place + ', ' if self.ranked else ''}{'' if self.exposed else 'not '}exposed"


class EpisodeView:
    """An attempt, replayed: its record, what was needed at each model turn, and the state after each tool turn."""

    def __init__(self, record: EpisodeRecord, reference: ReferenceData) -> None:
        task, catalog = reference.surface.by_id[record.task], reference.catalogs[record.catalog]
        timeline = Replay(record, task, catalog, reference.protocol, TokenCounter(), record.episode_id).run()
        self.record = record
        self.query = task.prompt.query
        self.needed: list[Needed] = []
        self.states = [ExecutionState.start(self.query)]
        views, call = iter(timeline.model_turns), Call("", {})
        ranking: tuple[str, ...] = ()
        for event in record.events:
            if isinstance(event, Exposed):
                ranking = event.ranking
            elif isinstance(event, ModelTurn):
                view = next(views)
                rank = ranking.index(view.next_route) + 1 if view.next_route in ranking else None
                shown = view.next_route in view.exposed
                self.needed.append(Needed(event.turn, view.next_step, view.next_route, rank, len(ranking), shown))
            elif isinstance(event, Called):
                call = Call(event.route, event.arguments)
            elif isinstance(event, Observed):
                observation, capability = Observation(event.outcome, event.payload), catalog.get(call.route_id)
                self.states.append(self.states[-1].observe(call, observation, capability, incomplete=event.incomplete))

    def as_json(self) -> dict[str, Any]:
        """Record, query, what was needed and the states, the first of them from before any turn, as plain JSON values."""
        return {
            "record": orjson.loads(encode(self.record)),
            "query": self.query,
            "needed": [asdict(item) for item in self.needed],
            "states": [_values(state) for state in self.states],
        }

    def lines(self) -> Iterator[str]:
        """The attempt as text, a line for each event; of a state what the turn changed in it."""
        yield self.query
        needed, states = iter(self.needed), zip(self.states, self.states[1:], strict=False)
        for event in self.record.events:
            yield from _event_lines(event)
            if isinstance(event, ModelTurn):
                yield f"  needed    {next(needed)}"
            if isinstance(event, Observed):
                before, after = next(states)
                yield f"  state     {_change(_values(before), _values(after)) or 'as before'}"


def print_attempt(view: EpisodeView) -> None:
    """Print an attempt turn by turn."""
    console = make_console()
    name = f"{view.record.episode_id}, attempt {view.record.attempt}"
    console.print(name, style="bold", highlight=False, soft_wrap=True)
    for line in view.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _values(state: ExecutionState) -> dict[str, Any]:
    return dict(orjson.loads(state.canonical_json()))


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What differs between two states: of lists what was added and taken away, of other fields the new value."""
    parts = []
    for name, value in after.items():
        old = before.get(name)
        if value == old:
            continue
        if isinstance(value, list) and isinstance(old, list):
            signs = [f"+{item}" for item in value if item not in old] + [
                f"-{item}" for item in old if item not in value
            ]
            parts.append(f"{name} {' '.join(signs) or 'in another order'}")
        else:
            parts.append(f"{name}={orjson.dumps(value).decode()}")
    return ", ".join(parts)


def _event_lines(event: object) -> list[str]:
    if isinstance(event, Exposed):
        return [f"  exposed   ({event.cause}) {_exposed(event)}"]
    if isinstance(event, ModelTurn):
        return [f"turn {event.turn}: {event.input_tokens} input tokens, {event.schema_tokens} of them tool schemas"]
    if isinstance(event, Asked):
        return ["  asked for more tools"]
    if isinstance(event, Called):
        return [f"  called    {event.route} {_plain(event.arguments)}"]
    if isinstance(event, Decided):
        return [f"  policy    {'allowed' if event.allowed else 'refused: ' + event.error}"]
    if isinstance(event, Observed):
        return [f"  observed  ({event.outcome}) {_plain(event.payload)}"]
    if isinstance(event, Ended):
        return [
            f"ended: {event.reason} {event.detail}".rstrip() + f"; steps {', '.join(event.steps_completed) or 'none'}"
        ]
    return []


def _exposed(event: Exposed) -> str:
    """The routes shown; those that come from a ranking with their ranks, in that order."""
    if len(event.routes) > _MAX_ROUTES:
        return f"{len(event.routes)} routes"
    ranks = {route: rank for rank, route in enumerate(event.ranking, start=1)}
    by_rank = sorted(event.routes, key=lambda route: (ranks.get(route, len(ranks) + 1), route))
    return ", ".join(f"{ranks[route]} {route}" if route in ranks else route for route in by_rank)


def _plain(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
