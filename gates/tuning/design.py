"""The features of every entry at every point of a surface, computed once, and weights fitted to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from gates.tuning.decision_points import DecisionPoint, all_decision_points
from gates.tuning.logit import Choice, Floats, fit
from preregistration.protocol import Protocol
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.retrieval.base import SCORE_DECIMALS, entries_of
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.evidence.flow import phase_of
from schemarouter.retrieval.typed import RELEVANCE_GROUPS, Typed, Weights, build_typed
from schemarouter.state import ExecutionState
from surface.loader import Surface

# Weights are kept to this many decimals: more would only record rounding errors of the optimiser.
_DECIMALS = 3
GROUPS: Mapping[str, tuple[str, ...]] = {
    **RELEVANCE_GROUPS,
    **{name: features for name, features in flow.GROUPS.items() if name != "relevance"},
}


@dataclass(frozen=True)
class Penalty:
    """How strongly common weights and the deviations of phases are held towards 0."""

    shared: float
    deviation: float


def no_weights() -> Weights:
    """Weights of a retriever that is built for its features alone."""
    return Weights(
        relevance={phase: dict.fromkeys(relevance.FEATURES, 0.0) for phase in flow.PHASES},
        score={phase: dict.fromkeys(flow.FEATURES, 0.0) for phase in flow.PHASES},
    )


def folds_of(tasks: Collection[str], count: int) -> dict[str, int]:
    """A fold for each task: by the order of the hashes of their ids, so that it depends on nothing else."""
    ordered = sorted(set(tasks), key=lambda task: sha256(task.encode()).hexdigest())
    return {task: place % count for place, task in enumerate(ordered)}


class Design:
    """Moments of a surface and the typed retriever's features over its catalogs, in one view."""

    def __init__(
        self, protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog], view: CatalogView
    ) -> None:
        self.protocol = protocol
        self.view = view
        self.decision_points: Sequence[DecisionPoint] = all_decision_points(surface, catalogs[min(catalogs)], view)
        self.tasks = sorted({point.task for point in self.decision_points})
        self.phases = [phase_of(point.state) for point in self.decision_points]
        self.largest = max(catalogs)
        self._typed: dict[int, Typed] = {
            size: build_typed(entries_of(viewed(catalog, view)), weights=no_weights())
            for size, catalog in catalogs.items()
        }
        self._own: dict[tuple[int, int], Floats] = {}

    @property
    def sizes(self) -> list[int]:
        """Sizes of the catalogs."""
        return sorted(self._typed)

    def own(self, size: int, point: int) -> Floats:
        """Relevance features at a point, shape (n, len(relevance.FEATURES))."""
        key = (size, point)
        if key not in self._own:
            self._own[key] = self._typed[size].evidence(*self._asked(point))[0]
        return self._own[key]

    def _asked(self, point: int) -> tuple[str, ExecutionState]:
        state = self.decision_points[point].state
        return state.original_query, state

    def table(self, size: int, point: int, own_weights: Floats) -> Floats:
        """Score features at a point under relevance weights, shape (n, len(flow.FEATURES))."""
        typed, state = self._typed[size], self.decision_points[point].state
        log_odds = self.own(size, point) @ own_weights[self.phases[point]]
        return typed.features(state.original_query, state, log_odds - log_odds.max())

    def place(self, size: int, route: str) -> int:
        """Where a route stands among the entries."""
        return self._typed[size].contracts.position[route]

    def fitted(self, tasks: Collection[str], penalty: Penalty, without: Collection[str] = ()) -> FittedWeights:
        """Weights from the decision points of some tasks on the largest catalog; `without` leaves kinds of evidence out.

        First each entry's own relevance is fitted to which routes are still to come, then the score to which one is next.
        """
        size = self.largest
        chosen = [m for m, point in enumerate(self.decision_points) if point.task in tasks]
        own_mask, mask = _mask(relevance.FEATURES, without), _mask(flow.FEATURES, without)
        coming = [
            Choice(
                self.own(size, m) * own_mask,
                tuple(sorted({self.place(size, route) for route in self.decision_points[m].coming})),
                self.phases[m],
            )
            for m in chosen
        ]
        count = len(flow.PHASES)
        own = np.round(fit(coming, count, shared=penalty.shared, deviation=penalty.deviation), _DECIMALS) * own_mask
        following = [
            Choice(
                self.table(size, m, own) * mask, (self.place(size, self.decision_points[m].next_route),), self.phases[m]
            )
            for m in chosen
        ]
        score = np.round(fit(following, count, shared=penalty.shared, deviation=penalty.deviation), _DECIMALS) * mask
        return FittedWeights(own, score)

    def rank_of_next(self, size: int, point: int, weights: FittedWeights) -> int:
        """The rank of the next required route, from 1."""
        scores = np.round(self.table(size, point, weights.own) @ weights.score[self.phases[point]], SCORE_DECIMALS)
        right = self.place(size, self.decision_points[point].next_route)
        better = scores > scores[right]
        return int(better.sum() + (scores[:right] == scores[right]).sum()) + 1

    def hits(self, size: int, tasks: Collection[str], weights: FittedWeights) -> dict[int, bool]:
        """For every point of some tasks whether the next required route is among the protocol's Top-k."""
        top_k = self.protocol.conditions.top_k
        return {
            m: self.rank_of_next(size, m, weights) <= top_k
            for m, point in enumerate(self.decision_points)
            if point.task in tasks
        }


@dataclass(frozen=True)
class FittedWeights:
    """Relevance weights, shape (phases, len(relevance.FEATURES)), and score weights, (phases, len(flow.FEATURES))."""

    own: Floats
    score: Floats

    def as_weights(self) -> Weights:
        """The weights by name."""
        return Weights(relevance=_named(self.own, relevance.FEATURES), score=_named(self.score, flow.FEATURES))


def _named(table: Floats, features: Sequence[str]) -> dict[str, dict[str, float]]:
    return {
        phase: {name: float(value) for name, value in zip(features, row, strict=True)}
        for phase, row in zip(flow.PHASES, table, strict=True)
    }


def _mask(features: Sequence[str], without: Collection[str]) -> Floats:
    off = {figure for group in without for figure in GROUPS[group]}
    return np.asarray([name not in off for name in features], np.float64)
