"""Checks the exposures of a record, one after the other, against the rules of its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conditions.base import display_order
from conditions.full import Full
from conditions.oracle import Oracle
from conditions.progressive import Progressive
from conditions.registry import ranks
from conditions.state_aware import StateAware
from conditions.static import Static
from preregistration.protocol import ConditionRules
from schemarouter.catalog import Catalog
from schemarouter.records import Cause, Exposed

FIXED = (Full.name, Oracle.name)
CAUSES: Mapping[str, tuple[Cause, ...]] = {
    Static.name: ("open",),
    Progressive.name: ("open", "widen"),
    StateAware.name: ("open", "refresh"),
}
UNEXPECTED: Mapping[Cause, str] = {
    "open": "the episode was opened twice",
    "widen": "the ranking was widened though no turn failed and nobody asked",
    "refresh": "a refresh though the turn left the state as it was, or the task complete",
}


class ExposureChecker:
    """The exposures of one episode so far, and the change that must come after the last turn or ask.

    `required` are the routes that ORACLE shows. A condition without rules here may show any route of the catalog, and change
    that once a turn; only its rankings are checked. `routes`, and `shown` as a set, are those of the exposure in force,
    `candidates` those of all exposures so far.
    """

    def __init__(self, name: str, catalog: Catalog, required: Sequence[str], rules: ConditionRules) -> None:
        self.name = name
        self.catalog = catalog
        self.required = required
        self.rules = rules
        self.exposures: list[Exposed] = []
        self.routes: tuple[str, ...] = ()
        self.shown: frozenset[str] = frozenset()
        self.candidates: frozenset[str] = frozenset()
        self._expected: Cause | None = None
        self._changed = False

    @property
    def exposure(self) -> Exposed | None:
        """What is shown now, or None before the opening."""
        return self.exposures[-1] if self.exposures else None

    def after_ask(self) -> None:
        """The agent asked for more tools."""
        self._changed = False
        if self.name == Progressive.name and self.exposure is not None and self.exposure.can_ask:
            self._expected = "widen"

    def after_turn(self, *, failed: bool, changed: bool, incomplete: bool) -> None:
        """A tool turn is over; `changed` says whether it changed the bytes of the state."""
        self._changed = False
        if self.exposure is None or not self.exposure.can_turn:
            return
        if self.name == Progressive.name and failed:
            self._expected = "widen"
        elif self.name == StateAware.name and changed and incomplete:
            self._expected = "refresh"

    def missing_change(self) -> Iterator[str]:
        """Yield the problem, if any, with no change before the next model turn or the end."""
        if self._expected is not None:
            yield f"{self.name} changes its exposure here by {self._expected!r}, and that change is missing"

    def take(self, event: Exposed) -> Iterator[str]:
        """Check an exposure and put it in force. Yields every problem with it."""
        first = self.exposure is None
        if first != (event.cause == "open"):
            yield f"an exposure of cause {event.cause!r} where {'the opening' if first else 'a change'} belongs"
        # For a whole catalog its own tuple and set serve, so that none is built in every episode.
        whole = event.routes == self.catalog.route_ids
        self.routes = self.catalog.route_ids if whole else event.routes
        self.shown = self.catalog.routes if whole else frozenset(event.routes)
        if not (self.shown <= self.catalog.routes and self.catalog.routes.issuperset(event.ranking)):
            unknown = [route for route in (*event.routes, *event.ranking) if route not in self.catalog]
            yield f"routes are not in catalog {self.catalog.name}: {', '.join(unknown[:3])}"
        if self._changed:
            yield "the exposure changed twice in one turn"
        if self.name in FIXED:
            yield from self._fixed(event)
        elif self.name in CAUSES:
            yield from self._ranked(event)
        else:
            yield from self._other(event)
        self.candidates = self.shown if first else self.candidates | self.shown
        self.exposures.append(event)
        self._expected, self._changed = None, not first

    def _fixed(self, event: Exposed) -> Iterator[str]:
        whole = self.name == Full.name
        expected = self.catalog.route_ids if whole else display_order(self.required)
        if self.routes != expected or event.ranking or event.cause != "open":
            yield f"{self.name} shows something other than {'the whole catalog' if whole else 'the required routes'}"
        yield from self._flags(event, can_ask=False, can_turn=False)

    def _ranked(self, event: Exposed) -> Iterator[str]:
        """Check the exposure of a condition that retrieves against the ranking that it came from."""
        rules, stages = self.rules, self.rules.progressive_stages
        widened, refreshed = self._count("widen", event), self._count("refresh", event)
        progressive = self.name == Progressive.name
        if progressive and widened >= len(stages):
            yield "the ranking was widened beyond its last stage"
            return
        if progressive and self.exposure is not None and event.ranking != self.exposure.ranking:
            yield "the frozen ranking changed"
        if event.cause not in CAUSES[self.name]:
            yield f"{self.name} does not change its exposure by {event.cause!r}"
        if refreshed > rules.refresh_budget:
            yield f"{refreshed} refreshes where {rules.refresh_budget} are allowed"
        size = stages[widened] if progressive else rules.top_k
        if event.routes != display_order(event.ranking[:size]):
            yield f"the routes shown are not the first {size} of the ranking"
        if event.cause not in ("open", self._expected):
            yield UNEXPECTED[event.cause]
        yield from self._ranking(event, rules.top_k if event.cause == "refresh" else rules.ranking_depth)
        can_widen = progressive and widened + 1 < len(stages) and len(event.ranking) > size
        can_refresh = self.name == StateAware.name and refreshed < rules.refresh_budget
        yield from self._flags(event, can_ask=can_widen, can_turn=can_widen or can_refresh)

    def _other(self, event: Exposed) -> Iterator[str]:
        """Check the ranking of a condition that has no rules of its own."""
        if event.ranking and not ranks(self.name):
            yield f"{self.name} is registered as one that ranks nothing, and there is a ranking"
        yield from self._ranking(event, self.rules.ranking_depth)

    def _count(self, cause: Cause, event: Exposed) -> int:
        return sum(item.cause == cause for item in (*self.exposures, event))

    def _ranking(self, event: Exposed, depth: int) -> Iterator[str]:
        if len(event.ranking) > depth:
            yield f"a ranking of {len(event.ranking)} routes where {event.cause!r} asks for {depth}"
        if len(set(event.ranking)) != len(event.ranking):
            yield "the ranking holds a route twice"

    def _flags(self, event: Exposed, *, can_ask: bool, can_turn: bool) -> Iterator[str]:
        if (event.can_ask, event.can_turn) != (can_ask, can_turn):
            yield (
                f"the exposure says that asking can change it: {event.can_ask}, and that a tool turn can: {event.can_turn}; "
                f"under {self.name} it is {can_ask} and {can_turn} here"
            )
