"""An attempt at an episode, turn by turn, for a reader: what was needed, what was shown, what was called, what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from conditions.storage.run_directory import Identities
from gates.identities import ReferenceData
from gates.replay import Replay
from schemarouter.agents.base import Order
from schemarouter.catalog.views import viewed
from schemarouter.cli.common import console as make_console
from schemarouter.records import Asked, Called, Decided, Ended, EpisodeRecord, Exposed, ModelTurn, Observed, encode
from schemarouter.retrieval import registry
from schemarouter.retrieval.base import Ranking
from schemarouter.state import Call, ExecutionState, Observation
from schemarouter.tokens import TokenCounter

_MAX_ROUTES = 20
# Differences of a score's parts below this are not printed.
_MIN_PRINTED = 0.005


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a route stood below the last one that is shown at first, by ranking all entries again.

    Attributes:
        rank: Place of the route among all entries, from 1; None where the retriever left it out.
        score: Its score.
        last_shown: The route at the last place of the Top-k.
        last_score: That one's score; None where nothing is shown.
        parts: What each kind of evidence adds to the route's score beyond what it adds to the other's, the largest first; empty
            where the retriever does not say.
    """

    rank: int | None
    score: float | None
    last_shown: str
    last_score: float | None
    parts: Mapping[str, float]

    def __str__(self) -> str:
        last = f"{self.last_score:.3f} of {self.last_shown}" if self.last_score is not None else "nothing"
        if self.rank is None or self.score is None:
            return f"the retriever gives it no score; the last one ranked among the first has {last}"
        against = f"rank {self.rank}, score {self.score:.3f} against {last}"
        parts = ", ".join(f"{name} {gain:+.3f}" for name, gain in self.parts.items() if abs(gain) >= _MIN_PRINTED)
        return f"{against}: {parts}" if parts else against


class Reasons:
    """Ranks all entries of a run's catalog again, by the run's own retriever, to say why a route was not shown.

    Raises SchemaRouterError where the retriever cannot be built here, for want of a model that the run had.
    """

    def __init__(self, reference: ReferenceData, identities: Identities, size: int) -> None:
        entries = viewed(reference.catalogs[size], identities.catalog_view)
        self._retriever = registry.build_retriever(registry.resolve(identities.retriever), entries)
        self._count, self._top_k = len(entries), reference.protocol.conditions.top_k

    def of(self, query: str, route: str) -> Reason | None:
        """Why a route is not among the Top-k for a query; None where it is."""
        ranking = self._retriever.rank(query, k=self._count)
        items = dict(ranking.items)
        shown = ranking.ids[: self._top_k]
        if route in shown:
            return None
        if route not in items:
            last = shown[-1] if shown else "nothing"
            return Reason(None, None, last, items.get(last), {})
        rank = ranking.ids.index(route) + 1
        return Reason(rank, items[route], shown[-1], items[shown[-1]], _parts(ranking, route, shown[-1]))


def _parts(ranking: Ranking, route: str, other: str) -> dict[str, float]:
    """By kind of evidence, how much more it adds to the score of one route than of another; the largest difference first."""
    one, two = ranking.parts.get(route, {}), ranking.parts.get(other, {})
    gains = {name: one.get(name, 0.0) - two.get(name, 0.0) for name in {*one, *two}}
    return dict(sorted(gains.items(), key=lambda part: (-abs(part[1]), part[0])))


@dataclass(frozen=True, slots=True)
class Needed:
    """A step of the plan that was ready at a model turn; there can be several.

    Attributes:
        turn: Model turn, from 1.
        step: Id of the plan's step.
        route: Its route.
        rank: Place of the route in the ranking in force, from 1; None where what was recorded of it does not hold the route.
        ranked: Number of routes recorded of that ranking; 0 for a condition that ranks nothing.
        exposed: Whether the agent saw the route.
        ranked_at: Model turn after which the ranking in force was made; 0 for the opening.
        reason: Why it is not among the first five: None where it is, or where nothing was ranked.
    """

    turn: int
    step: str
    route: str
    rank: int | None
    ranked: int
    exposed: bool
    ranked_at: int = 0
    reason: Reason | None = None

    def __str__(self) -> str:
        place = f"rank {self.rank}" if self.rank else f"not among the first {self.ranked}"
        made = f"made after turn {self.ranked_at}" if self.ranked_at else "of the opening"
        stale = f" in the ranking {made}" if self.ranked_at < self.turn - 1 and self.ranked else ""
        shown = f"{'' if self.exposed else 'not '}exposed"
        return f"{self.route} (step {self.step}): {place + stale + ', ' if self.ranked else ''}{shown}"


class EpisodeView:
    """An attempt, replayed: its record, what was needed at each model turn, and the state after each tool turn.

    With `reasons`, each needed route that is not among the first ranked says why.
    """

    def __init__(
        self, record: EpisodeRecord, reference: ReferenceData, reasons: Reasons | None = None, *, order: Order = "ready"
    ) -> None:
        task, catalog = reference.surface.by_id[record.task], reference.catalogs[record.catalog]
        timeline = Replay(
            record, task, catalog, reference.protocol, TokenCounter(), record.episode_id, order=order
        ).run()
        self.record = record
        self.query = task.prompt.query
        self._required = frozenset(task.key.required_routes)
        self.needed: list[Needed] = []
        self.states = [ExecutionState.start(self.query)]
        views, call = iter(timeline.model_turns), Call("", {})
        ranking: tuple[str, ...] = ()
        asked, ranked_at = "", 0
        for event in record.events:
            if isinstance(event, Exposed):
                ranking = event.ranking
                if event.cause != "widen":
                    asked = self.states[-1].retrieval_query() if event.cause == "refresh" else self.query
                    ranked_at = event.turn
            elif isinstance(event, ModelTurn):
                view = next(views)
                for step in view.ready:
                    rank = ranking.index(step.route) + 1 if step.route in ranking else None
                    reason = reasons.of(asked, step.route) if reasons and ranking else None
                    exposed = step.route in view.exposed
                    self.needed.append(
                        Needed(event.turn, step.id, step.route, rank, len(ranking), exposed, ranked_at, reason)
                    )
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
        states = zip(self.states, self.states[1:], strict=False)
        for event in self.record.events:
            yield from _event_lines(event, self._required)
            if isinstance(event, ModelTurn):
                for item in self.needed:
                    if item.turn == event.turn:
                        yield f"  needed    {item}"
                        yield from (f"  why       {reason}" for reason in (item.reason,) if reason)
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


def _event_lines(event: object, required: Collection[str]) -> list[str]:
    if isinstance(event, Exposed):
        return [f"  exposed   ({event.cause}) {_exposed(event)}"]
    if isinstance(event, ModelTurn):
        return [f"turn {event.turn}: {event.input_tokens} input tokens, {event.schema_tokens} of them tool schemas"]
    if isinstance(event, Asked):
        return ["  asked for more tools"]
    if isinstance(event, Called):
        return [
            f"  called    {event.route} {_plain(event.arguments)}{'' if event.route in required else ' (not of the plan)'}"
        ]
    if isinstance(event, Decided):
        return [f"  policy    {'allowed' if event.allowed else 'refused: ' + event.error}"]
    if isinstance(event, Observed):
        return [f"  observed  ({event.outcome}) {_plain(event.payload)}"]
    if isinstance(event, Ended):
        detail = f": {event.detail}" if event.detail not in ("", event.reason) else ""
        return [f"ended: {event.reason}{detail}; steps {', '.join(event.steps_completed) or 'none'}"]
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
