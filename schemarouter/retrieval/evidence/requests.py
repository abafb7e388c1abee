"""A request, independently of the catalog: its words, those of its clauses, its vectors and its identifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schemarouter.caches import Latest
from schemarouter.retrieval.evidence.clauses import clauses
from schemarouter.retrieval.evidence.contracts import Floats
from schemarouter.retrieval.evidence.lexicon import Lexicon
from schemarouter.retrieval.evidence.literals import Shape, literals, shape
from schemarouter.retrieval.evidence.words import content_stems
from schemarouter.retrieval.language import language_of
from schemarouter.retrieval.vectors import QueryVectors, unread_of_query

_CACHED_REQUESTS = 512


@dataclass(frozen=True)
class Request:
    """A request as the typed retriever reads it.

    Attributes:
        wanted: Weighted English stems of the whole.
        wanted_by_clause: Weighted English stems of each clause.
        vectors: Of the whole and of each clause, shape (1 + clauses, dimensions), float64.
        shapes: Shapes of its identifiers.
        unread: A note on what the encoder did not read; empty where it read all.
    """

    wanted: Mapping[str, float]
    wanted_by_clause: tuple[Mapping[str, float], ...]
    vectors: Floats
    shapes: tuple[Shape, ...]
    unread: str


class Requests:
    """Reads and encodes requests, cached since nested catalogs are asked the same ones."""

    def __init__(self, lexicon: Lexicon, queries: QueryVectors) -> None:
        self._lexicon = lexicon
        self._queries = queries
        self._known: Latest[Request] = Latest(self._read, _CACHED_REQUESTS)

    def get(self, text: str) -> Request:
        """Return the request that a text is."""
        return self._known.get(text)

    def _read(self, text: str) -> Request:
        language = language_of(text)
        parts = clauses(text, language) or [text]
        return Request(
            wanted=self._wanted(text, language),
            wanted_by_clause=tuple(self._wanted(part, language) for part in parts),
            vectors=np.stack(self._queries.get_all((text, *parts))),
            shapes=tuple(shape(found) for found in literals(text)),
            unread=unread_of_query(self._queries.encoder, text),
        )

    def _wanted(self, text: str, language: str) -> dict[str, float]:
        weights = self._lexicon.stems(text, language)
        for word in content_stems(text, language):
            weights[word] = max(weights.get(word, 0.0), 1.0)
        return weights
