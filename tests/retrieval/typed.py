"""Typed retrievers over the stub encoder, with weights that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.evidence.lexicon import shared_lexicon
from schemarouter.retrieval.evidence.requests import Requests
from schemarouter.retrieval.typed import Typed, Weights
from schemarouter.retrieval.vectors import QueryVectors
from tests.retrieval.stubs import StubEncoder


def weights_of(relevance_weights: Mapping[str, float], score: Mapping[str, float]) -> Weights:
    """The same weights in every phase; what is not named weighs nothing."""
    unknown = {*relevance_weights, *score} - {*relevance.FEATURES, *flow.FEATURES}
    assert not unknown, f"no features: {unknown}"
    return Weights(
        relevance={
            phase: {name: relevance_weights.get(name, 0.0) for name in relevance.FEATURES} for phase in flow.PHASES
        },
        score={phase: {name: score.get(name, 0.0) for name in flow.FEATURES} for phase in flow.PHASES},
    )


def every_weight() -> Weights:
    """A different weight for every feature and phase, of both signs."""
    values = iter(((number * 37) % 23 - 11) / 8 for number in range(1000))
    return Weights(
        relevance={phase: {name: next(values) for name in relevance.FEATURES} for phase in flow.PHASES},
        score={phase: {name: next(values) for name in flow.FEATURES} for phase in flow.PHASES},
    )


def typed(entries: Sequence[Entry], weights: Weights | None = None, encoder: StubEncoder | None = None) -> Typed:
    """A typed retriever over the stub encoder."""
    chosen = encoder or StubEncoder()
    requests = Requests(shared_lexicon(), QueryVectors(chosen))
    return Typed(entries, encoder=chosen, requests=requests, weights=weights or every_weight())
