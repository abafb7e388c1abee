"""The typed state-aware retriever: compares what an entry needs and gives with the request and the observed state.

A score is linear in the features of `evidence.flow`. One of them, an entry's relevance to the request, is itself linear in the
features of `evidence.relevance`; so a score is the sum of what each kind of evidence adds (`Ranking.parts`). The weights are
conditional-logit estimates (McFadden 1974) from the development tasks, for catalogs with and without registered meanings;
`schemarouter tune` estimates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from schemarouter.caches import Latest
from schemarouter.canonical import fingerprint
from schemarouter.catalog.views import VIEWS, CatalogView
from schemarouter.errors import SchemaRouterError
from schemarouter.files import read_model
from schemarouter.retrieval.base import SCORE_DECIMALS, Entry, Ranking, Stage, by_id, empty_reason
from schemarouter.retrieval.bm25 import top_k
from schemarouter.retrieval.dense import ENCODERS, shared_encoder
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.evidence.contracts import Contracts, Floats
from schemarouter.retrieval.evidence.flow import Flow, History, phase_of
from schemarouter.retrieval.evidence.lexicon import identity_of, shared_lexicon
from schemarouter.retrieval.evidence.relevance import QueryEvidence, Relevance
from schemarouter.retrieval.evidence.requests import Requests
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.retrieval.text import cut_query
from schemarouter.retrieval.vectors import Encoder, QueryVectors
from schemarouter.state import MARKER, ExecutionState, parse_retrieval_query

WEIGHTS_FILE = Path(__file__).with_name("typed_weights.json")
# Refreshes of one episode follow each other; evidence of a request that comes back later is computed again, not its vectors.
_CACHED_QUERIES = 64
_ENCODERS_AT_ONCE = 4
DECLARATION = Declaration(
    name="typed",
    summary="contracts against the observed state, with words and meaning of the request",
    options={"model": Option(str, "use-m3", suggestions=tuple(ENCODERS))},
    fitted_to=("development", "training"),
)


class WeightsError(SchemaRouterError):
    """A weights file that lacks a feature or a phase of this code."""


class Weights(BaseModel):
    """Weights by phase and feature: `relevance` over `relevance.FEATURES`, `score` over `flow.FEATURES`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    relevance: dict[str, dict[str, float]]
    score: dict[str, dict[str, float]]

    def table(self, which: str, features: Sequence[str]) -> Floats:
        """Return weights as an array, shape (len(PHASES), len(features)). Raises WeightsError where a weight is missing."""
        by_phase: Mapping[str, Mapping[str, float]] = getattr(self, which)
        try:
            return np.asarray([[by_phase[phase][name] for name in features] for phase in flow.PHASES], np.float64)
        except KeyError as error:
            raise WeightsError(
                f"{WEIGHTS_FILE.name}: {which} has no weight {error}; estimate the weights again: schemarouter tune."
            ) from None


class WeightsFile(BaseModel):
    """The weights for both views of a catalog, by view."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    views: dict[str, Weights]


@cache
def packaged_weights() -> WeightsFile:
    """Return the weights of this package, read once a process."""
    return read_model(WEIGHTS_FILE, WeightsFile, WeightsError)


def view_of(entries: Sequence[Entry]) -> CatalogView:
    """Return ``full`` where any contract registers a semantic id or a unit, else ``names-only``."""
    contracts = [entry.capability for entry in entries if entry.capability is not None]
    fields = (field for item in contracts for field in (*item.parameters, *item.outputs))
    return VIEWS[0] if any(field.semantic_id or field.unit for field in fields) else VIEWS[1]


class Typed:
    """Ranks every entry for a rendered state, or for a request before anything was observed."""

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        encoder: Encoder,
        requests: Requests,
        weights: Weights,
    ) -> None:
        ordered = by_id(entries)
        self.ids = [entry.id for entry in ordered]
        self.contracts = Contracts(ordered)
        self._relevance = Relevance(ordered, self.contracts, encoder, requests)
        self._flow = Flow(self.contracts, self._relevance)
        self._own = weights.table("relevance", relevance.FEATURES)
        self._score = weights.table("score", flow.FEATURES)
        self._read: Latest[QueryEvidence] = Latest(self._relevance.read, _CACHED_QUERIES)

    def rank(self, query: str, *, k: int) -> Ranking:
        """Rank every entry; an empty query or catalog gives an empty ranking: see `Retriever.rank`."""
        whole, state = read_query(query)
        request, cut = cut_query(whole)
        if not request.strip() or not self.ids:
            why = "the query is empty" if self.ids else "there are no entries"
            return Ranking((), (Stage("typed", 0, why),))
        own, table, phase = self.evidence(request, state)
        log_odds = table[:, flow.INDEX["relevance"]]
        gains = table * self._score[phase]
        scores = np.round(gains.sum(axis=1), SCORE_DECIMALS)
        chosen = top_k(scores, k)
        items = tuple((self.ids[index], float(scores[index])) for index in chosen)
        parts = self._parts(chosen, own, gains, log_odds, phase)
        unread = (self._relevance.unread, self._read.get(request).unread)
        note = "; ".join(filter(None, (empty_reason(items, k, len(self.ids)), *unread, cut)))
        return Ranking(items, (Stage("typed", len(items), note),), parts=parts)

    def evidence(self, request: str, state: ExecutionState) -> tuple[Floats, Floats, int]:
        """Compute the features of every entry.

        Returns:
            `relevance.FEATURES`, shape (n, 12); `flow.FEATURES`, shape (n, 35); and the index of the state's phase.
        """
        phase = phase_of(state)
        history = History.of(state, self.contracts)
        read = self._read.get(request)
        own = read.features(history.finished)
        log_odds = own @ self._own[phase]
        return own, self._flow.features(state, read, history, log_odds - log_odds.max()), phase

    def features(self, request: str, state: ExecutionState, log_odds: Floats) -> Floats:
        """Compute `flow.FEATURES`, shape (n, 35), from given relevances: log odds, shape (n,), 0 for the best entry."""
        return self._flow.features(state, self._read.get(request), History.of(state, self.contracts), log_odds)

    def _parts(
        self, chosen: NDArray[np.int64], own: Floats, gains: Floats, log_odds: Floats, phase: int
    ) -> dict[str, dict[str, float]]:
        """What each kind of evidence added to the score of each entry; relevance is split into its own kinds."""
        scale = self._score[phase, flow.INDEX["relevance"]]
        relevance_gains = own * self._own[phase] * scale
        # Relevance is relative to the best entry: the same number is subtracted from every entry.
        against = log_odds * scale - relevance_gains.sum(axis=1)
        # For all entries, whichever are chosen: the last bits of a matrix product depend on its number of rows.
        groups = (gains @ _SCORE_GROUPS, relevance_gains @ _RELEVANCE_GROUPS, against)
        columns = np.column_stack(groups)[chosen].tolist()
        return {
            self.ids[index]: dict(zip(_PARTS, row, strict=True))
            for index, row in zip(chosen.tolist(), columns, strict=True)
        }


RELEVANCE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "words": ("words_whole", "words_clause", "words_left", "operation", "both_left", "first_left"),
    "meaning": ("meaning_whole", "meaning_clause", "meaning_left"),
    "provider": ("provider_words", "provider_meaning"),
    "literals": ("literal",),
}


def _indicator(features: Sequence[str], groups: Mapping[str, Sequence[str]]) -> Floats:
    """1 where a feature belongs to a group, else 0; shape (features, groups)."""
    return np.asarray([[float(name in names) for names in groups.values()] for name in features], np.float64)


_SCORED = {group: names for group, names in flow.GROUPS.items() if group != "relevance"}
_SCORE_GROUPS = _indicator(flow.FEATURES, _SCORED)
_RELEVANCE_GROUPS = _indicator(relevance.FEATURES, RELEVANCE_GROUPS)
_PARTS = (*_SCORED, *RELEVANCE_GROUPS, "against the best")


def read_query(query: str) -> tuple[str, ExecutionState]:
    """Split a rendered state into request and state; any other text is a request before anything was observed."""
    if MARKER in query:
        try:
            state = parse_retrieval_query(query)
        except SchemaRouterError:
            return query, _NOTHING_OBSERVED
        return state.original_query, state
    return query, _NOTHING_OBSERVED


_NOTHING_OBSERVED = ExecutionState.start("")


def build_typed(entries: Sequence[Entry], *, model: str = "use-m3", weights: Weights | None = None) -> Typed:
    """Build over entries, with the packaged weights unless `weights` is given."""
    encoder, queries = shared_encoder(model)
    chosen = weights or packaged_weights().views[view_of(entries)]
    return Typed(entries, encoder=encoder, requests=_shared_requests(queries), weights=chosen)


@lru_cache(maxsize=_ENCODERS_AT_ONCE)
def _shared_requests(queries: QueryVectors) -> Requests:
    """The requests that all retrievers with one encoder share."""
    return Requests(shared_lexicon(), queries)


def data_identity(values: dict[str, int | float | str]) -> str:
    """Hash of the encoder, the lexicon and the weights, for `registry.data_fingerprint`."""
    encoder, _ = shared_encoder(str(values["model"]))
    weights = fingerprint(packaged_weights().model_dump(mode="json"))
    return fingerprint([encoder.name, encoder.identity, identity_of(), weights])


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> Typed:
    """Build from a spec's values."""
    return build_typed(entries, model=str(values["model"]))
