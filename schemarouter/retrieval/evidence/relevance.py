"""What a request says about each entry by itself: words, meaning, provider, operation, literals; whole and by clauses.

Every figure lies between 0 and 1, one an entry. A query's evidence is computed once and kept: a refresh encodes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from schemarouter.catalog import Capability
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.evidence.contracts import Bools, Contracts, Floats, provider_of
from schemarouter.retrieval.evidence.literals import SURE, Shape, likeness
from schemarouter.retrieval.evidence.requests import Requests
from schemarouter.retrieval.evidence.words import content_stems
from schemarouter.retrieval.vectors import Encoder, entry_vectors, unread_of_entries

# How often a word counts by where it stands; k1 and b of BM25 over these counts.
_OPERATION, _PROVIDER, _DESCRIPTION, _FIELD = 3.0, 2.0, 1.0, 0.5
_K1, _B = 1.2, 0.5
_PROVIDER_B = 0.75
# A cosine this many standard deviations above the mean of all entries counts in full.
_DEVIATIONS = 4.0
_TINY = 1e-9
_KEPT_TEXTS = 2**14
# A clause of which this much is left has not been answered.
_STILL_OPEN = 0.5

FEATURES: tuple[str, ...] = (
    "words_whole", "words_clause", "words_left", "meaning_whole", "meaning_clause", "meaning_left", "both_left", "first_left",
    "operation", "provider_words", "provider_meaning", "literal",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(FEATURES)}


class WeightedBM25:
    """BM25 over documents of weighted words (the weighted counts stand for term frequencies; Robertson et al. 2004)."""

    def __init__(self, documents: Sequence[Mapping[str, float]], *, b: float) -> None:
        self.size = len(documents)
        lengths = np.asarray([sum(document.values()) for document in documents], np.float64)
        average = float(lengths.mean()) if self.size and lengths.any() else 1.0
        rows: dict[str, tuple[list[int], list[float]]] = {}
        for place, document in enumerate(documents):
            for word, count in document.items():
                found = rows.setdefault(word, ([], []))
                found[0].append(place)
                found[1].append(count)
        frequencies = [len(places) for places, _ in rows.values()]
        idfs = [math.log(1 + (self.size - n + 0.5) / (n + 0.5)) for n in frequencies]
        self.idf: dict[str, float] = dict(zip(rows, idfs, strict=True))
        # Of all words at once, then cut apart: a word by itself has few documents.
        all_places = np.asarray([place for places, _ in rows.values() for place in places], np.int64)
        counts = np.asarray([count for _, found in rows.values() for count in found], np.float64)
        norm = _K1 * (1 - b + b * lengths[all_places] / average)
        weights = np.repeat(np.asarray(idfs, np.float64), frequencies) * counts * (_K1 + 1) / (counts + norm)
        ends = np.cumsum(frequencies, dtype=np.int64).tolist()
        self._postings: dict[str, tuple[NDArray[np.int64], Floats]] = {
            word: (all_places[end - n : end], weights[end - n : end])
            for word, n, end in zip(rows, frequencies, ends, strict=True)
        }

    def scores(self, query: Mapping[str, float]) -> Floats:
        """Scores of all documents for weighted words, relative to the best; shape (size,)."""
        found = [(self._postings[word], weight) for word, weight in query.items() if word in self._postings]
        if not found:
            return np.zeros(self.size)
        places = np.concatenate([posting[0] for posting, _ in found])
        gains = np.concatenate([posting[1] * weight for posting, weight in found])
        # Adds one after the other, in the order of the query's words.
        return _relative(np.bincount(places, gains, self.size).astype(np.float64))


def _relative(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return np.asarray(values / best) if best > 0 else values


def _clipped_z(cosines: Floats) -> Floats:
    """How far a cosine stands above the others of its query, along the last axis, from 0 to 1."""
    deviation = cosines.std(axis=-1, keepdims=True)
    scores = (cosines - cosines.mean(axis=-1, keepdims=True)) / (deviation + _TINY)
    standing: Floats = np.clip(scores, 0.0, _DEVIATIONS) / _DEVIATIONS
    return standing


@lru_cache(maxsize=_KEPT_TEXTS)
def _stems(text: str) -> tuple[str, ...]:
    """The stems of a text of an entry; nested catalogs share entries, and entries share fields."""
    return tuple(content_stems(text))


def _document(entry: Entry) -> dict[str, float]:
    """The weighted stems of an entry."""
    counts: dict[str, float] = {}

    def add(words: Sequence[str], weight: float) -> None:
        for word in words:
            counts[word] = counts.get(word, 0.0) + weight

    item = entry.capability
    if item is None:
        add(_stems(entry.id), _OPERATION)
        add(_stems(entry.text), _DESCRIPTION)
        return counts
    add(_stems(item.provider), _PROVIDER)
    add(_stems(item.operation), _OPERATION)
    add(_stems(item.description), _DESCRIPTION)
    for field in (*item.parameters, *item.outputs):
        add(sorted({*_stems(f"{field.name} {field.description} {field.semantic_id or ''}")}), _FIELD)
        add([word for value in field.enum for word in _stems(value)], _FIELD)
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
    shape (clauses, n); `cover` the same, each clause's best entry at 1; `unread` says what the encoder did not read.
    """

    whole: Floats
    words: Floats
    meaning: Floats
    cover: Floats
    literal_kinds: Floats
    has_literal: bool
    unread: str

    def features(self, finished: Bools) -> Floats:
        """The evidence with the clauses that `finished` entries answered counting less; shape (n, len(FEATURES))."""
        if not finished.any():
            return self._unanswered
        left = 1.0 - self.cover[:, finished].max(axis=1, keepdims=True) ** 2
        standing = np.flatnonzero(left[:, 0] > _STILL_OPEN)
        words = left * self.words
        table = self._unanswered.copy()
        table[:, _PLACE["words_left"]] = words.max(axis=0)
        table[:, _PLACE["meaning_left"]] = (left * self.meaning).max(axis=0)
        table[:, _PLACE["both_left"]] = np.sqrt((words * self.meaning).max(axis=0))
        table[:, _PLACE["first_left"]] = self.cover[standing[0]] if standing.size else 0.0
        return table

    @cached_property
    def _unanswered(self) -> Floats:
        """The evidence before anything has run, which nobody may change."""
        words, meaning, operation, provider_words, provider_meaning, literal = self.whole.T
        most_words, most_meaning = self.words.max(axis=0), self.meaning.max(axis=0)
        columns = (
            words, most_words, most_words, meaning, most_meaning, most_meaning,
            np.sqrt((self.words * self.meaning).max(axis=0)), self.cover[0],
            operation, provider_words, provider_meaning, literal,
        )  # fmt: skip
        table: Floats = np.stack(columns, axis=1)
        table.flags.writeable = False
        return table


class Relevance:
    """Everything that is needed to read a request over the entries of `contracts`."""

    def __init__(self, entries: Sequence[Entry], contracts: Contracts, encoder: Encoder, requests: Requests) -> None:
        self._contracts = contracts
        self._requests = requests
        documents = [_document(entry) for entry in entries]
        self._bm25 = WeightedBM25(documents, b=_B)
        providers: list[dict[str, float]] = [{} for _ in contracts.providers]
        for place, document in enumerate(documents):
            found = providers[contracts.provider[place]]
            for word in document:
                found[word] = found.get(word, 0.0) + 1.0
        self._providers = WeightedBM25(providers, b=_PROVIDER_B)
        self._operations = [tuple(dict.fromkeys(_stems(_operation(entry)))) for entry in entries]
        self._idf_of_operation = [sum(self._bm25.idf[word] for word in words) for words in self._operations]
        self._operations_with: dict[str, list[int]] = {}
        for place, words in enumerate(self._operations):
            for word in words:
                self._operations_with.setdefault(word, []).append(place)
        sentences = [_sentence(entry) for entry in entries]
        self.unread = unread_of_entries(encoder, sentences)
        self._matrix = entry_vectors(encoder, sentences).astype(np.float64)

    def read(self, query: str) -> QueryEvidence:
        """Evidence of a request."""
        request = self._requests.get(query)
        cosines = self._matrix @ request.vectors.T
        standing = _clipped_z(cosines.T)
        words = np.stack([self._bm25.scores(wanted) for wanted in request.wanted_by_clause])
        best = np.full(len(self._contracts.providers), -1.0)
        np.maximum.at(best, self._contracts.provider, cosines[:, 0])
        provider = self._contracts.provider
        literal, kinds = self._literals(request.shapes)
        whole = np.stack(
            (
                self._bm25.scores(request.wanted), standing[0], self._operation_share(request.wanted),
                self._providers.scores(request.wanted)[provider], _clipped_z(best)[provider], literal,
            ),
            axis=1,
        )  # fmt: skip
        cover = 0.5 * words + 0.5 * standing[1:]
        cover /= np.maximum(cover.max(axis=1, keepdims=True), _TINY)
        return QueryEvidence(whole, words, standing[1:], cover, kinds, bool(request.shapes), request.unread)

    def error_words(self, words: Mapping[str, float]) -> Floats:
        """How well each entry answers the words of an error, relative to the best."""
        return self._bm25.scores(words)

    def _operation_share(self, wanted: Mapping[str, float]) -> Floats:
        """The share of an operation's words, by idf, that a request has."""
        found = np.zeros(self._contracts.size)
        for word in wanted:
            for place in self._operations_with.get(word, ()):
                found[place] += self._bm25.idf[word] / self._idf_of_operation[place]
        return found

    def _literals(self, given: Sequence[Shape]) -> tuple[Floats, Floats]:
        """Likeness of a request's identifiers to each entry's examples, and to each kind of identifier."""
        examples = self._contracts.examples
        by_entry = np.zeros(self._contracts.size)
        by_kind = np.zeros(len(self._contracts.kinds))
        if given and len(examples.entry):
            scores = np.asarray([max(likeness(one, other) for one in given) for other in examples.shapes])[
                examples.what
            ]
            np.maximum.at(by_entry, examples.entry, scores)
            by_kind[examples.kind[(scores >= SURE) & (examples.kind >= 0)]] = 1.0
        return by_entry, by_kind


def _operation(entry: Entry) -> str:
    return entry.capability.operation if entry.capability is not None else entry.id.removeprefix(provider_of(entry))
