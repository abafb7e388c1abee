"""What a request says about each entry by itself: words, meaning, provider, operation, literals; whole and by clauses.

Every figure lies between 0 and 1, one an entry. A query's evidence is computed once and kept: a refresh encodes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemarouter.catalog import Capability
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.bridge import Bridge
from schemarouter.retrieval.evidence.clauses import clauses
from schemarouter.retrieval.evidence.contracts import Bools, Contracts, Floats, provider_of
from schemarouter.retrieval.evidence.literals import SURE, likeness, literals, shape
from schemarouter.retrieval.evidence.words import content_stems
from schemarouter.retrieval.language import language_of
from schemarouter.retrieval.vectors import Encoder, QueryVectors, entry_vectors, unread_of_entries, unread_of_query

# How often a word counts by where it stands; k1 and b of BM25 over these counts.
_OPERATION, _PROVIDER, _DESCRIPTION, _FIELD = 3.0, 2.0, 1.0, 0.5
_K1, _B = 1.2, 0.5
_PROVIDER_B = 0.75
# A cosine this many standard deviations above the mean of all entries counts in full.
_DEVIATIONS = 4.0
_TINY = 1e-9
# A clause of which this much is left has not been answered.
_STILL_OPEN = 0.5

FEATURES: tuple[str, ...] = (
    "words_whole", "words_clause", "words_left", "meaning_whole", "meaning_clause", "meaning_left", "both_left", "first_left",
    "operation", "provider_words", "provider_meaning", "literal",
)  # fmt: skip


class WeightedBM25:
    """BM25 over documents of weighted words (the weighted counts stand for term frequencies; Robertson et al. 2004)."""

    def __init__(self, documents: Sequence[Mapping[str, float]], *, b: float) -> None:
        self.size = len(documents)
        lengths = np.asarray([sum(document.values()) for document in documents], np.float64)
        average = float(lengths.mean()) if self.size and lengths.any() else 1.0
        rows: dict[str, list[tuple[int, float]]] = {}
        for place, document in enumerate(documents):
            for word, count in document.items():
                rows.setdefault(word, []).append((place, count))
        self.idf: dict[str, float] = {}
        self._postings: dict[str, tuple[NDArray[np.int64], Floats]] = {}
        for word, found in rows.items():
            places = np.asarray([place for place, _ in found], np.int64)
            counts = np.asarray([count for _, count in found], np.float64)
            idf = math.log(1 + (self.size - len(found) + 0.5) / (len(found) + 0.5))
            norm = _K1 * (1 - b + b * lengths[places] / average)
            self.idf[word] = idf
            self._postings[word] = (places, idf * counts * (_K1 + 1) / (counts + norm))

    def scores(self, query: Mapping[str, float]) -> Floats:
        """Scores of all documents for weighted words, relative to the best; shape (size,)."""
        total = np.zeros(self.size)
        for word, weight in query.items():
            posting = self._postings.get(word)
            if posting is not None:
                total[posting[0]] += posting[1] * weight
        return _relative(total)


def _relative(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return np.asarray(values / best) if best > 0 else values


def _standing_out(cosines: Floats) -> Floats:
    """How far a cosine stands above the others of its query, along the last axis, from 0 to 1."""
    deviation = cosines.std(axis=-1, keepdims=True)
    scores = (cosines - cosines.mean(axis=-1, keepdims=True)) / (deviation + _TINY)
    standing: Floats = np.clip(scores, 0.0, _DEVIATIONS) / _DEVIATIONS
    return standing


def _document(entry: Entry) -> dict[str, float]:
    """The weighted stems of an entry."""
    counts: dict[str, float] = {}

    def add(words: Sequence[str], weight: float) -> None:
        for word in words:
            counts[word] = counts.get(word, 0.0) + weight

    item = entry.capability
    if item is None:
        add(content_stems(entry.id), _OPERATION)
        add(content_stems(entry.text), _DESCRIPTION)
        return counts
    add(content_stems(item.provider), _PROVIDER)
    add(content_stems(item.operation), _OPERATION)
    add(content_stems(item.description), _DESCRIPTION)
    for field in (*item.parameters, *item.outputs):
        add(sorted({*content_stems(f"{field.name} {field.description} {field.semantic_id or ''}")}), _FIELD)
        add([word for value in field.enum for word in content_stems(value)], _FIELD)
    return counts


def _sentence(entry: Entry) -> str:
    """What the encoder reads of an entry."""
    item: Capability | None = entry.capability
    if item is None:
        return entry.text
    return f"{item.provider} {item.operation}. {item.description}".replace("_", " ")


@dataclass(frozen=True)
class QueryEvidence:
    """What a request says: per entry, per clause and entry, and which kinds of identifiers it names.

    `whole` has shape (n, 6): words, meaning, operation, provider words, provider meaning, literal. `words` and `meaning` have
    shape (clauses, n); `cover` the same, each clause's best entry at 1. The encoder read `tokens` for it; `unread` says what
    it did not read.
    """

    whole: Floats
    words: Floats
    meaning: Floats
    cover: Floats
    literal_kinds: Floats
    has_literal: bool
    tokens: int
    unread: str

    def features(self, finished: Bools) -> Floats:
        """The evidence with the clauses that `finished` entries answered counting less; shape (n, len(FEATURES))."""
        left = np.ones((len(self.words), 1))
        if finished.any():
            left = 1.0 - self.cover[:, finished].max(axis=1, keepdims=True) ** 2
        standing = np.flatnonzero(left[:, 0] > _STILL_OPEN)
        first = self.cover[standing[0]] if standing.size else np.zeros(len(self.whole))
        both = np.sqrt((left * self.words * self.meaning).max(axis=0))
        words, meaning, operation, provider_words, provider_meaning, literal = self.whole.T
        columns = (
            words, self.words.max(axis=0), (left * self.words).max(axis=0),
            meaning, self.meaning.max(axis=0), (left * self.meaning).max(axis=0), both, first,
            operation, provider_words, provider_meaning, literal,
        )  # fmt: skip
        return np.stack(columns, axis=1)


class Relevance:
    """Everything that is needed to read a request over the entries of `contracts`."""

    def __init__(
        self, entries: Sequence[Entry], contracts: Contracts, bridge: Bridge, encoder: Encoder, queries: QueryVectors
    ) -> None:
        self._contracts = contracts
        self._bridge = bridge
        self._encoder = encoder
        self._queries = queries
        documents = [_document(entry) for entry in entries]
        self._bm25 = WeightedBM25(documents, b=_B)
        providers: list[dict[str, float]] = [{} for _ in contracts.providers]
        for place, document in enumerate(documents):
            found = providers[contracts.provider[place]]
            for word in document:
                found[word] = found.get(word, 0.0) + 1.0
        self._providers = WeightedBM25(providers, b=_PROVIDER_B)
        self._operations = [frozenset(content_stems(_operation(entry))) for entry in entries]
        self._idf_of_operation = [sum(self._bm25.idf[word] for word in words) for words in self._operations]
        self._operations_with: dict[str, list[int]] = {}
        for place, words in enumerate(self._operations):
            for word in words:
                self._operations_with.setdefault(word, []).append(place)
        sentences = [_sentence(entry) for entry in entries]
        self.unread = unread_of_entries(encoder, sentences)
        self._matrix = entry_vectors(encoder, sentences).astype(np.float64)

    def read(self, query: str) -> QueryEvidence:
        """Evidence of a request; the only place where anything is encoded."""
        language = language_of(query)
        parts = clauses(query, language) or [query]
        wanted = self._wanted(query, language)
        cosines = self._matrix @ np.stack([self._queries.get(text) for text in (query, *parts)]).T
        standing = _standing_out(cosines.T)
        words = np.stack([self._bm25.scores(self._wanted(part, language)) for part in parts])
        best = np.full(len(self._contracts.providers), -1.0)
        np.maximum.at(best, self._contracts.provider, cosines[:, 0])
        provider = self._contracts.provider
        literal, kinds, has_literal = self._literals(query)
        whole = np.stack(
            (
                self._bm25.scores(wanted), standing[0], self._operation_share(wanted),
                self._providers.scores(wanted)[provider], _standing_out(best)[provider], literal,
            ),
            axis=1,
        )  # fmt: skip
        cover = 0.5 * words + 0.5 * standing[1:]
        cover /= np.maximum(cover.max(axis=1, keepdims=True), _TINY)
        tokens = sum(self._encoder.count_tokens(text) for text in (query, *parts))
        return QueryEvidence(
            whole, words, standing[1:], cover, kinds, has_literal, tokens, unread_of_query(self._encoder, query)
        )

    def error_words(self, words: Mapping[str, float]) -> Floats:
        """How well each entry answers the words of an error, relative to the best."""
        return self._bm25.scores(words)

    def _wanted(self, text: str, language: str) -> dict[str, float]:
        weights = self._bridge.stems(text, language)
        for word in content_stems(text, language):
            weights[word] = max(weights.get(word, 0.0), 1.0)
        return weights

    def _operation_share(self, wanted: Mapping[str, float]) -> Floats:
        """The share of an operation's words, by idf, that a request has."""
        found = np.zeros(self._contracts.size)
        for word in wanted:
            for place in self._operations_with.get(word, ()):
                found[place] += self._bm25.idf[word] / self._idf_of_operation[place]
        return found

    def _literals(self, query: str) -> tuple[Floats, Floats, bool]:
        """Likeness of the request's identifiers to each entry's examples, and to each kind of identifier."""
        shapes = [shape(text) for text in literals(query)]
        by_entry = np.zeros(self._contracts.size)
        by_kind = np.zeros(len(self._contracts.kinds))
        for place, example, kind in self._contracts.shapes if shapes else ():
            score = max(likeness(given, example) for given in shapes)
            by_entry[place] = max(by_entry[place], score)
            if kind is not None and score >= SURE and kind in self._contracts.kind_place:
                by_kind[self._contracts.kind_place[kind]] = 1.0
        return by_entry, by_kind, bool(shapes)


def _operation(entry: Entry) -> str:
    return entry.capability.operation if entry.capability is not None else entry.id.removeprefix(provider_of(entry))
