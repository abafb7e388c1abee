"""BM25 over postings compiled once.

The model is that of rank-bm25's `BM25Okapi` (Robertson & Zaragoza 2009 for the formula): the same document statistics, k1,
b and epsilon. A query is a sum of a few postings lists and a partial sort.

Where this differs on purpose: `BM25Okapi` floors negative idfs at epsilon times the *average* idf, which is itself negative
in small or uniform corpora, so that a matching document falls below one that does not match. Here every idf that is not
positive becomes epsilon times the average of the positive idfs, or `_LEAST_IDF` when there is none: always above 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry, Ranking, Stage, silence
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.retrieval.text import tokenize

# Far beyond any use: k1 is all but linear in the term frequency there, and no score overflows.
_LARGEST = 1e6
DECLARATION = Declaration(
    name="bm25",
    summary="lexical ranking, BM25 with rank-bm25's statistics",
    options={
        "k1": Option(float, "1.5", minimum=0.0, maximum=_LARGEST),
        "b": Option(float, "0.75", minimum=0.0, maximum=1.0),
        "epsilon": Option(float, "0.25", minimum=0.0, maximum=_LARGEST),
    },
)
_LEAST_IDF = 1e-6


class BM25Index:
    """Postings of a tokenised corpus: per term the documents and what the term gives to their scores.

    `documents` are lists of tokens; `weights` is float64, one number a posting.
    """

    def __init__(self, documents: Sequence[Sequence[str]], *, k1: float, b: float, epsilon: float) -> None:
        self.size = len(documents)
        self.vocabulary: dict[str, int] = {}
        term_ids: list[int] = []
        doc_ids: list[int] = []
        frequencies: list[int] = []
        lengths = np.zeros(self.size)
        for position, tokens in enumerate(documents):
            lengths[position] = len(tokens)
            for term, count in Counter(tokens).items():
                term_ids.append(self.vocabulary.setdefault(term, len(self.vocabulary)))
                doc_ids.append(position)
                frequencies.append(count)
        terms = np.asarray(term_ids, dtype=np.int64)
        order = np.argsort(terms, kind="stable")
        self.doc_ids: NDArray[np.int32] = np.asarray(doc_ids, dtype=np.int32)[order]
        document_frequency = np.bincount(terms, minlength=len(self.vocabulary))
        self.starts: NDArray[np.int64] = np.concatenate(([0], np.cumsum(document_frequency)))
        self.idf = _idf(document_frequency, self.size, epsilon)
        tf = np.asarray(frequencies, dtype=np.float64)[order]
        average = lengths.mean() if self.size and lengths.any() else 1.0
        norm = k1 * (1 - b + b * lengths[self.doc_ids] / average) if self.size else np.zeros(0)
        self.weights: NDArray[np.float64] = np.repeat(self.idf, document_frequency) * (tf * (k1 + 1) / (tf + norm))

    def scores(self, tokens: Sequence[str]) -> NDArray[np.float64]:
        """Scores of all documents, shape (size,), float64; a repeated query term counts as often as it stands."""
        total = np.zeros(self.size)
        for term, count in Counter(tokens).items():
            term_id = self.vocabulary.get(term)
            if term_id is not None:
                span = slice(self.starts[term_id], self.starts[term_id + 1])
                weights = self.weights[span]
                total[self.doc_ids[span]] += weights if count == 1 else weights * count
        return total


def _idf(document_frequency: NDArray[np.int64], size: int, epsilon: float) -> NDArray[np.float64]:
    """Robertson-Sparck Jones idf, shape (n_terms,), with everything that is not positive raised to a small floor."""
    # math.log and not numpy's: vectorised logarithms differ in the last bit from one CPU to the next.
    frequencies = document_frequency.tolist()
    idf = np.asarray([math.log(size - n + 0.5) - math.log(n + 0.5) for n in frequencies], dtype=np.float64)
    positive = idf[idf > 0]
    floor = max(epsilon * float(positive.mean()) if positive.size else 0.0, _LEAST_IDF)
    return np.where(idf > 0, idf, floor)


class BM25:
    """Ranks the entries that share a term with the query; entries without one are not returned."""

    def __init__(
        self,
        entries: Sequence[Entry],
        *,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
        tokenizer: Callable[[str], list[str]] = tokenize,
    ) -> None:
        ordered_entries = sorted(entries, key=lambda entry: entry.id)
        self._ids = [entry.id for entry in ordered_entries]
        self._tokenize = tokenizer
        self.index = BM25Index([tokenizer(entry.text) for entry in ordered_entries], k1=k1, b=b, epsilon=epsilon)

    def rank(self, query: str, *, k: int) -> Ranking:
        """Return the best `k` matching entries."""
        scores = self.index.scores(self._tokenize(query))
        chosen = top_k(scores, k)
        items = tuple((self._ids[i], float(scores[i])) for i in chosen if scores[i] > 0)
        note = silence(items, k, len(self._ids), "no term of the query is in the index")
        return Ranking(items, (Stage("bm25", len(items), note),))


def top_k(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Positions of the `k` highest scores, ties by position; with entries sorted by id that is the total order."""
    if k <= 0 or scores.size == 0:
        return np.zeros(0, dtype=np.int64)
    if k < scores.size:
        # The k-th highest score decides who can be in; among equals the order of positions does.
        threshold = np.partition(scores, scores.size - k)[scores.size - k]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(scores.size)
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> BM25:
    """Build from a spec's values."""
    return BM25(entries, k1=float(values["k1"]), b=float(values["b"]), epsilon=float(values["epsilon"]))
