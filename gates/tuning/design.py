"""The features of every entry at every decision point of a surface, computed once, and weights fitted to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from gates.tuning.decision_points import DecisionPoint, all_decision_points
from gates.tuning.logit import Choice, Floats, fit
from preregistration.protocol import Protocol
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.retrieval.base import SCORE_DECIMALS, entries_of
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.evidence.flow import phase_of
from schemarouter.retrieval.typed import RELEVANCE_GROUPS, Typed, Weights, build_typed
from surface.loader import Surface

# Weights are rounded to this many decimals: more would only record rounding errors of the optimiser.
_DECIMALS = 3
GROUPS: Mapping[str, tuple[str, ...]] = {
    **RELEVANCE_GROUPS,
    **{name: features for name, features in flow.GROUPS.items() if name != "relevance"},
}


@dataclass(frozen=True)
class Penalty:
    """How strongly shared weights and the deviations of phases are shrunk towards 0."""

    shared: float
    deviation: float


def no_weights() -> Weights:
    """Weights of a retriever that is built for its features alone."""
    return Weights(
        relevance={phase: dict.fromkeys(relevance.FEATURES, 0.0) for phase in flow.PHASES},
        score={phase: dict.fromkeys(flow.FEATURES, 0.0) for phase in flow.PHASES},
    )


def groups_of(surface: Surface) -> dict[str, str]:
    """The group of each task: tasks that need the same set of routes or are of one family are of one group.

    A group is named after the first of its tasks.
    """
    found = DisjointSet(task.prompt.id for task in surface.tasks)
    first: dict[object, str] = {}
    for task in surface.tasks:
        name = task.prompt.id
        for shared in (("routes", *task.key.required_routes), ("family", surface.family(name))):
            found.merge(name, first.setdefault(shared, name))
    return {task: min(found.subset(task)) for task in sorted(found)}


def folds_of(groups: Mapping[str, str], count: int) -> dict[str, int]:
    """The fold of each task, given its group: groups in the order of the hashes of their names, a group in one fold."""
    ordered = sorted(set(groups.values()), key=lambda group: sha256(group.encode()).hexdigest())
    fold = {group: index % count for index, group in enumerate(ordered)}
    return {task: fold[group] for task, group in groups.items()}


class FeatureDesign:
    """The decision points of a surface and the typed retriever's features over its catalogs, in one view.

    A `point` is an index of `decision_points`, a `size` that of a catalog, and n its number of entries.
    """

    def __init__(
        self, protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog], view: CatalogView
    ) -> None:
        self.protocol = protocol
        self.view = view
        self.decision_points: Sequence[DecisionPoint] = all_decision_points(surface, catalogs[min(catalogs)], view)
        self.tasks = sorted({point.task for point in self.decision_points})
        self.groups = groups_of(surface)
        self.phases = [phase_of(point.state) for point in self.decision_points]
        self.largest = max(catalogs)
        self._typed: dict[int, Typed] = {
            size: build_typed(entries_of(viewed(catalog, view)), weights=no_weights())
            for size, catalog in catalogs.items()
        }
        self._relevance: dict[tuple[int, int], Floats] = {}

    @property
    def sizes(self) -> list[int]:
        """Sizes of the catalogs."""
        return sorted(self._typed)

    def relevance_features(self, size: int, point: int) -> Floats:
        """Relevance features at a point, shape (n, len(relevance.FEATURES))."""
        key = (size, point)
        if key not in self._relevance:
            state = self.decision_points[point].state
            self._relevance[key] = self._typed[size].evidence(state.original_query, state)[0]
        return self._relevance[key]

    def score_features(self, size: int, point: int, relevance_weights: Floats) -> Floats:
        """Score features at a point under relevance weights, shape (n, len(flow.FEATURES))."""
        typed, state = self._typed[size], self.decision_points[point].state
        log_odds = self.relevance_features(size, point) @ relevance_weights[self.phases[point]]
        return typed.features(state.original_query, state, log_odds - log_odds.max())

    def index(self, size: int, route: str) -> int:
        """The index of a route among the entries."""
        return self._typed[size].contracts.position[route]

    def fitted(self, tasks: Collection[str], penalty: Penalty, without: Collection[str] = ()) -> FittedWeights:
        """Weights from the decision points of some tasks on the largest catalog, without some `GROUPS` of features.

        First each entry's own relevance is fitted to which routes are still to come, then the score to which are ready.
        """
        size = self.largest
        points = [index for index, point in enumerate(self.decision_points) if point.task in tasks]
        relevance_mask, score_mask = _mask(relevance.FEATURES, without), _mask(flow.FEATURES, without)
        still_to_come = [
            Choice(
                self.relevance_features(size, point) * relevance_mask,
                tuple(sorted({self.index(size, route) for route in self.decision_points[point].coming})),
                self.phases[point],
            )
            for point in points
        ]
        by_relevance = _rounded_fit(still_to_come, penalty) * relevance_mask
        next_one = [
            Choice(
                self.score_features(size, point, by_relevance) * score_mask,
                tuple(sorted(self.index(size, route) for route in self.decision_points[point].ready)),
                self.phases[point],
            )
            for point in points
        ]
        return FittedWeights(by_relevance, _rounded_fit(next_one, penalty) * score_mask)

    def rank_of_next(self, size: int, point: int, weights: FittedWeights) -> int:
        """The rank of the best of the next required routes, from 1."""
        features = self.score_features(size, point, weights.relevance)
        scores = np.round(features @ weights.score[self.phases[point]], SCORE_DECIMALS)
        ready = [self.index(size, route) for route in self.decision_points[point].ready]
        right = min(ready, key=lambda index: (-scores[index], index))
        better = scores > scores[right]
        return int(better.sum() + (scores[:right] == scores[right]).sum()) + 1

    def hits(self, size: int, tasks: Collection[str], weights: FittedWeights) -> dict[int, bool]:
        """For every point of some tasks whether a next required route is among the protocol's Top-k."""
        top_k = self.protocol.conditions.top_k
        return {
            index: self.rank_of_next(size, index, weights) <= top_k
            for index, point in enumerate(self.decision_points)
            if point.task in tasks
        }


@dataclass(frozen=True)
class FittedWeights:
    """Relevance weights, shape (phases, len(relevance.FEATURES)), and score weights, (phases, len(flow.FEATURES))."""

    relevance: Floats
    score: Floats

    def as_weights(self) -> Weights:
        """The weights by phase and feature."""
        return Weights(relevance=_named(self.relevance, relevance.FEATURES), score=_named(self.score, flow.FEATURES))


def _rounded_fit(choices: Sequence[Choice], penalty: Penalty) -> Floats:
    weights = fit(choices, len(flow.PHASES), shared=penalty.shared, deviation=penalty.deviation)
    return np.asarray(np.round(weights, _DECIMALS))


def _named(table: Floats, features: Sequence[str]) -> dict[str, dict[str, float]]:
    return {
        phase: {name: float(value) for name, value in zip(features, row, strict=True)}
        for phase, row in zip(flow.PHASES, table, strict=True)
    }


def _mask(features: Sequence[str], without: Collection[str]) -> Floats:
    """1.0 for every feature that stays, 0.0 for those of the groups left out; shape (len(features),)."""
    left_out = {name for group in without for name in GROUPS[group]}
    return np.asarray([name not in left_out for name in features], np.float64)
