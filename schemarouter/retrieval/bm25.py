"""BM25 over postings lists that are compiled once.

The model is that of rank-bm25's `BM25Okapi` (Robertson & Zaragoza 2009 for the formula): the same document statistics, k1,
b and epsilon. A query takes the sum of a few postings lists and a partial sort.

It differs in one point: `BM25Okapi` floors negative idfs at epsilon times the *average* idf, which is itself negative
in small or uniform corpora, so that a matching document falls below one that does not match. In this module every idf that is not
positive becomes epsilon times the average of the positive idfs, or `_MIN_IDF` when there is none: always above 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry, Ranking, Stage, by_id, empty_reason
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.retrieval.text import cut_query, tokenize

# Far beyond any use, and no score overflows.
_MAX_OPTION = 1e6
DECLARATION = Declaration(
    name="bm25",
    summary="lexical ranking, BM25 with rank-bm25's statistics",
    options={
        "k1": Option(float, "1.5", minimum=0.0, maximum=_MAX_OPTION),
        "b": Option(float, "0.75", minimum=0.0, maximum=1.0),
        "epsilon": Option(float, "0.25", minimum=0.0, maximum=_MAX_OPTION),
    },
)
_MIN_IDF = 1e-6
_MIN_SCORE = math.ulp(0.0)
# Above this many scores, a lower bound of the k-th highest score is taken first, from every 16th score.
_SMALL = 4096
_SAMPLING_STEP = 16
_NONE: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

Floats = NDArray[np.float64]
# Indices of documents, shape (n,) int64, and their scores, shape (n,) float64, best first.
Best = tuple[NDArray[np.int64], Floats]


class BM25Index:
    """Postings of a tokenised corpus: per term the documents and what the term gives to their scores.

    A repeated query term counts as often as it occurs.

    Args:
        documents: Lists of tokens.
        k1: Saturation of the term frequency.
        b: Normalisation by document length, 0 to 1.
        epsilon: What an idf that is not positive is raised to, as a share of the average positive idf.

    Attributes:
        size: Number of documents.
        vocabulary: The number of every term.
        doc_ids: Documents that hold term `t`: ``doc_ids[starts[t]:starts[t + 1]]``, int32, ascending.
        starts: Shape (n_terms + 1,), int64.
        weights: What the term adds to the document's score, beside `doc_ids`, float64.
        idf: Shape (n_terms,), float64.
    """

    def __init__(self, documents: Sequence[Sequence[str]], *, k1: float, b: float, epsilon: float) -> None:
        self.size = len(documents)
        lengths = np.fromiter(map(len, documents), np.int64, self.size)
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        keys = np.fromiter(map(numbers.__getitem__, chain.from_iterable(documents)), np.int64, int(lengths.sum()))
        self.vocabulary = dict(numbers)
        # One number for each pair of term and document: equal numbers are the occurrences of the term in the document.
        keys *= self.size
        keys += np.repeat(np.arange(self.size), lengths)
        postings, frequencies = np.unique(keys, return_counts=True)
        terms, documents_of = np.divmod(postings, max(self.size, 1))
        self.doc_ids: NDArray[np.int32] = documents_of.astype(np.int32)
        document_frequency = np.bincount(terms, minlength=len(self.vocabulary))
        self.starts: NDArray[np.int64] = np.concatenate(([0], np.cumsum(document_frequency)))
        self.idf = _idf(document_frequency, self.size, epsilon)
        average = lengths.mean() if lengths.any() else 1.0
        norm = k1 * (1 - b + b * lengths / average)
        self.weights: Floats = np.repeat(self.idf, document_frequency)
        self.weights *= frequencies * (k1 + 1) / (frequencies + norm[documents_of])
        # A list: fetching a single number from an array takes far longer.
        self._bounds: list[int] = self.starts.tolist()

    def scores(self, tokens: Sequence[str]) -> Floats:
        """Return the scores of all documents, shape (size,), float64."""
        return self._sum(*self._lists(tokens))

    def top_k(self, tokens: Sequence[str], k: int) -> Best:
        """Return the best `k` of the documents that share a term with the query, ties by document index."""
        documents, weights = self._lists(tokens)
        scores = self._sum(documents, weights)
        # The k-th highest score of some documents is a lower bound of that of all.
        some = scores
        if self.size > _SMALL:
            some = scores[min((doc_ids for doc_ids in documents if len(doc_ids) >= k), key=len, default=_NONE)]
        bound = kth_highest(some, k) if 0 < k <= some.size else 0.0
        chosen = _best(scores, k, max(bound, _MIN_SCORE))
        return chosen, scores[chosen]

    def _lists(self, tokens: Sequence[str]) -> tuple[list[NDArray[np.int32]], list[Floats]]:
        """Documents and weights of each known term of a query, by term: sums do not depend on the order of words."""
        documents, weights = [], []
        for term, count in sorted(Counter(tokens).items()):
            number = self.vocabulary.get(term)
            if number is not None:
                start, stop = self._bounds[number], self._bounds[number + 1]
                documents.append(self.doc_ids[start:stop])
                weights.append(self.weights[start:stop] if count == 1 else self.weights[start:stop] * count)
        return documents, weights

    def _sum(self, documents: list[NDArray[np.int32]], weights: list[Floats]) -> Floats:
        """Scores of all documents, shape (size,); summed list by list, so that the order of the summands is fixed."""
        if not documents:
            return np.zeros(self.size)
        if self.size <= _SMALL:
            # The type stub of bincount covers unweighted counts alone.
            return cast(Floats, np.bincount(np.concatenate(documents), np.concatenate(weights), self.size))
        # The same sum, without copying long lists.
        scores = np.zeros(self.size)
        for doc_ids, gains in zip(documents, weights, strict=True):
            np.add.at(scores, doc_ids, gains)
        return scores


def _idf(document_frequency: NDArray[np.int64], size: int, epsilon: float) -> Floats:
    """Robertson-Sparck Jones idf, shape (n_terms,); values that are not positive are raised to a small floor."""
    # math.log rather than numpy's: vectorised logarithms differ in the last bit between CPUs.
    frequencies = document_frequency.tolist()
    idf = np.asarray([math.log(size - n + 0.5) - math.log(n + 0.5) for n in frequencies], dtype=np.float64)
    positive = idf[idf > 0]
    floor = max(epsilon * float(positive.mean()) if positive.size else 0.0, _MIN_IDF)
    return np.where(idf > 0, idf, floor)


class BM25:
    """Ranks the entries that share a term with the query, and returns no others."""

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
        tokenizer: Callable[[str], list[str]] = tokenize,
    ) -> None:
        ordered_entries = by_id(entries)
        self._ids = [entry.id for entry in ordered_entries]
        self._tokenize = tokenizer
        self.index = BM25Index([tokenizer(entry.text) for entry in ordered_entries], k1=k1, b=b, epsilon=epsilon)

    def rank(self, query: str, *, k: int) -> Ranking:
        """Rank the entries that share a term with the query: see `Retriever.rank`."""
        text, cut = cut_query(query)
        chosen, scores = self.index.top_k(self._tokenize(text), k)
        items = tuple((self._ids[i], score) for i, score in zip(chosen.tolist(), scores.tolist(), strict=True))
        reason = empty_reason(items, k, len(self._ids), "no term of the query is in the index")
        note = "; ".join(filter(None, (reason, cut)))
        return Ranking(items, (Stage("bm25", len(items), note),))


def top_k(scores: Floats, k: int) -> NDArray[np.int64]:
    """Return the indices of the `k` highest scores, ties by index: the total order, where entries are sorted by id."""
    return _best(scores, k, kth_highest(scores, k) if 0 < k < scores.size else -math.inf)


def kth_highest(scores: NDArray[np.floating[Any]], k: int) -> float:
    """Return the `k`-th highest of at least `k` scores, `k` from 1."""
    sample = scores[::_SAMPLING_STEP]
    if scores.size > _SMALL and k <= sample.size:
        # The k-th highest score of a sample is a lower bound of that of all.
        scores = scores[scores >= kth_highest(sample, k)]
    ranked = scores.copy()
    ranked.partition(ranked.size - k)
    return float(ranked[ranked.size - k])


def _best(scores: Floats, k: int, minimum: float) -> NDArray[np.int64]:
    """Indices of the `k` highest of the scores that are at least `minimum`, ties by index."""
    if k <= 0:
        return np.zeros(0, dtype=np.int64)
    candidates: NDArray[np.int64] = (scores >= minimum).nonzero()[0]
    values = scores[candidates]
    if k < values.size:
        # What is below the k-th highest score is out; of those equal to it, the first by index are in.
        within = values >= kth_highest(values, k)
        candidates, values = candidates[within], values[within]
    order: NDArray[np.int64] = (-values).argsort(kind="stable")[:k]
    return candidates[order]


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> BM25:
    """Build from a spec's values."""
    return BM25(entries, k1=float(values["k1"]), b=float(values["b"]), epsilon=float(values["epsilon"]))
