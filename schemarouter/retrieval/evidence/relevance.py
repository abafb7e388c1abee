"""Features of each entry from the request alone: words, meaning, provider, operation, literals; of the whole and of clauses.

Every feature is between 0 and 1. The evidence of a request is computed once and cached: a refresh encodes nothing.
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

# Weight of a word by the field that it occurs in; k1 and b of BM25 over the sums of these weights.
_OPERATION, _PROVIDER, _DESCRIPTION, _FIELD = 3.0, 2.0, 1.0, 0.5
_K1, _B = 1.2, 0.5
_PROVIDER_B = 0.75
# A cosine this many standard deviations above the mean of all entries counts in full.
_DEVIATIONS = 4.0
_TINY = 1e-9
_CACHED_TEXTS = 2**14
# A clause of which more than this share is left has not been answered.
_UNANSWERED = 0.5

FEATURES: tuple[str, ...] = (
    "words_whole", "words_clause", "words_left", "meaning_whole", "meaning_clause", "meaning_left", "both_left", "first_left",
    "operation", "provider_words", "provider_meaning", "literal",
)  # fmt: skip
_INDEX = {name: index for index, name in enumerate(FEATURES)}


class WeightedBM25:
    """BM25 over documents of weighted words; the sums of weights replace term frequencies (Robertson et al. 2004)."""

    def __init__(self, documents: Sequence[Mapping[str, float]], *, b: float) -> None:
        self.size = len(documents)
        lengths = np.asarray([sum(document.values()) for document in documents], np.float64)
        average = float(lengths.mean()) if self.size and lengths.any() else 1.0
        rows: dict[str, tuple[list[int], list[float]]] = {}
        for index, document in enumerate(documents):
            for word, count in document.items():
                indices, counts_of_word = rows.setdefault(word, ([], []))
                indices.append(index)
                counts_of_word.append(count)
        frequencies = [len(indices) for indices, _ in rows.values()]
        idfs = [math.log(1 + (self.size - n + 0.5) / (n + 0.5)) for n in frequencies]
        self.idf: dict[str, float] = dict(zip(rows, idfs, strict=True))
        # Computed for all words at once, then split: a single word occurs in few documents.
        all_indices = np.asarray([index for indices, _ in rows.values() for index in indices], np.int64)
        counts = np.asarray([count for _, of_word in rows.values() for count in of_word], np.float64)
        norm = _K1 * (1 - b + b * lengths[all_indices] / average)
        weights = np.repeat(np.asarray(idfs, np.float64), frequencies) * counts * (_K1 + 1) / (counts + norm)
        ends = np.cumsum(frequencies, dtype=np.int64).tolist()
        self._postings: dict[str, tuple[NDArray[np.int64], Floats]] = {
            word: (all_indices[end - n : end], weights[end - n : end])
            for word, n, end in zip(rows, frequencies, ends, strict=True)
        }

    def scores(self, query: Mapping[str, float]) -> Floats:
        """Return the scores of all documents for weighted words, relative to the best; shape (size,)."""
        matches = [(self._postings[word], weight) for word, weight in query.items() if word in self._postings]
        if not matches:
            return np.zeros(self.size)
        indices = np.concatenate([posting[0] for posting, _ in matches])
        gains = np.concatenate([posting[1] * weight for posting, weight in matches])
        # Summed in the order of the query's words.
        return _relative(np.bincount(indices, gains, self.size).astype(np.float64))


def _relative(values: Floats) -> Floats:
    best = float(values.max(initial=0.0))
    return np.asarray(values / best) if best > 0 else values


def _clipped_z(cosines: Floats) -> Floats:
    """z-scores along the last axis, clipped at 0 and `_DEVIATIONS` and scaled to 0 to 1."""
    deviation = cosines.std(axis=-1, keepdims=True)
    scores = (cosines - cosines.mean(axis=-1, keepdims=True)) / (deviation + _TINY)
    clipped: Floats = np.clip(scores, 0.0, _DEVIATIONS) / _DEVIATIONS
    return clipped


@lru_cache(maxsize=_CACHED_TEXTS)
def _stems(text: str) -> tuple[str, ...]:
    """The stems of a text of an entry, cached since nested catalogs share entries, and entries share fields."""
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
    """The text of an entry that is encoded."""
    item: Capability | None = entry.capability
    if item is None:
        return entry.text
    return f"{item.provider} {item.operation}. {item.description}".replace("_", " ")


@dataclass(frozen=True)
class QueryEvidence:
    """The evidence of a request about n entries.

    Attributes:
        whole: For the whole request, shape (n, 6): words, meaning, operation, provider words, provider meaning, literal.
        words: By clause, shape (clauses, n).
        meaning: By clause, shape (clauses, n).
        cover: Mean of `words` and `meaning`, 1 for each clause's best entry, shape (clauses, n).
        literal_kinds: 1 for each kind of identifier that the request names, shape (kinds,).
        has_literal: Whether the request names any identifier.
        unread: A note on what the encoder did not read; empty where it read all.
    """

    whole: Floats
    words: Floats
    meaning: Floats
    cover: Floats
    literal_kinds: Floats
    has_literal: bool
    unread: str

    def features(self, finished: Bools) -> Floats:
        """Return the features, shape (n, len(FEATURES)); clauses that `finished` entries, shape (n,), answered count less."""
        if not finished.any():
            return self._unanswered
        left = 1.0 - self.cover[:, finished].max(axis=1, keepdims=True) ** 2
        unanswered = np.flatnonzero(left[:, 0] > _UNANSWERED)
        words = left * self.words
        table = self._unanswered.copy()
        table[:, _INDEX["words_left"]] = words.max(axis=0)
        table[:, _INDEX["meaning_left"]] = (left * self.meaning).max(axis=0)
        table[:, _INDEX["both_left"]] = np.sqrt((words * self.meaning).max(axis=0))
        table[:, _INDEX["first_left"]] = self.cover[unanswered[0]] if unanswered.size else 0.0
        return table

    @cached_property
    def _unanswered(self) -> Floats:
        """The features before anything has run; read-only, since it is shared."""
        words, meaning, operation, provider_words, provider_meaning, literal = self.whole.T
        best_words, best_meaning = self.words.max(axis=0), self.meaning.max(axis=0)
        columns = (
            words, best_words, best_words, meaning, best_meaning, best_meaning,
            np.sqrt((self.words * self.meaning).max(axis=0)), self.cover[0],
            operation, provider_words, provider_meaning, literal,
        )  # fmt: skip
        table: Floats = np.stack(columns, axis=1)
        table.flags.writeable = False
        return table


class Relevance:
    """Computes the evidence of requests about the entries of `contracts`, which are sorted by id."""

    def __init__(self, entries: Sequence[Entry], contracts: Contracts, encoder: Encoder, requests: Requests) -> None:
        self._contracts = contracts
        self._requests = requests
        documents = [_document(entry) for entry in entries]
        self._bm25 = WeightedBM25(documents, b=_B)
        providers: list[dict[str, float]] = [{} for _ in contracts.providers]
        for index, document in enumerate(documents):
            provider = providers[contracts.provider[index]]
            for word in document:
                provider[word] = provider.get(word, 0.0) + 1.0
        self._providers = WeightedBM25(providers, b=_PROVIDER_B)
        self._operations = [tuple(dict.fromkeys(_stems(_operation(entry)))) for entry in entries]
        self._idf_of_operation = [sum(self._bm25.idf[word] for word in words) for words in self._operations]
        self._operations_with: dict[str, list[int]] = {}
        for index, words in enumerate(self._operations):
            for word in words:
                self._operations_with.setdefault(word, []).append(index)
        sentences = [_sentence(entry) for entry in entries]
        self.unread = unread_of_entries(encoder, sentences)
        self._matrix = entry_vectors(encoder, sentences).astype(np.float64)

    def read(self, query: str) -> QueryEvidence:
        """Return the evidence of a request."""
        request = self._requests.get(query)
        cosines = self._matrix @ request.vectors.T
        meaning = _clipped_z(cosines.T)
        words = np.stack([self._bm25.scores(wanted) for wanted in request.wanted_by_clause])
        best = np.full(len(self._contracts.providers), -1.0)
        np.maximum.at(best, self._contracts.provider, cosines[:, 0])
        provider = self._contracts.provider
        literal, kinds = self._literals(request.shapes)
        whole = np.stack(
            (
                self._bm25.scores(request.wanted), meaning[0], self._operation_share(request.wanted),
                self._providers.scores(request.wanted)[provider], _clipped_z(best)[provider], literal,
            ),
            axis=1,
        )  # fmt: skip
        cover = 0.5 * words + 0.5 * meaning[1:]
        cover /= np.maximum(cover.max(axis=1, keepdims=True), _TINY)
        return QueryEvidence(whole, words, meaning[1:], cover, kinds, bool(request.shapes), request.unread)

    def error_words(self, words: Mapping[str, float]) -> Floats:
        """Return the BM25 score of each entry for weighted stems of an error, relative to the best; shape (n,)."""
        return self._bm25.scores(words)

    def _operation_share(self, wanted: Mapping[str, float]) -> Floats:
        """The share of an operation's words, by idf, that occur in the request; shape (n,)."""
        shares = np.zeros(self._contracts.size)
        for word in wanted:
            for index in self._operations_with.get(word, ()):
                shares[index] += self._bm25.idf[word] / self._idf_of_operation[index]
        return shares

    def _literals(self, given: Sequence[Shape]) -> tuple[Floats, Floats]:
        """Likeness of a request's identifiers to each entry's examples, shape (n,), and the kinds that they surely are."""
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
