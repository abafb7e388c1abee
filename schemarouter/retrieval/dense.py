"""Dense retrieval: exact search by cosine between the vectors of query and entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from schemarouter.canonical import fingerprint
from schemarouter.retrieval.base import SCORE_DECIMALS, Entry, Ranking, Stage, by_id, empty_reason
from schemarouter.retrieval.bm25 import kth_highest, top_k
from schemarouter.retrieval.sentence import SentenceEncoder
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.retrieval.text import cut_query
from schemarouter.retrieval.use_m3 import UseM3
from schemarouter.retrieval.vectors import (
    Encoder,
    QueryVectors,
    entry_vectors,
    unread_of_entries,
    unread_of_query,
)

# Encoders by name; any other model is a path or name for sentence-transformers.
ENCODERS: dict[str, Callable[[], Encoder]] = {"use-m3": UseM3}
DECLARATION = Declaration(
    name="dense",
    summary="cosine of sentence vectors, exact search",
    options={"model": Option(str, "use-m3", suggestions=tuple(ENCODERS))},
)
_instances: dict[str, tuple[Encoder, QueryVectors]] = {}


def shared_encoder(model: str) -> tuple[Encoder, QueryVectors]:
    """Return an encoder and its query vectors, loaded once a process.

    Args:
        model: A name in `ENCODERS`, or a path or name for sentence-transformers.

    Raises:
        ModelError: For a model that is not found.
    """
    if model not in _instances:
        encoder = ENCODERS[model]() if model in ENCODERS else SentenceEncoder(model)
        _instances[model] = (encoder, QueryVectors(encoder))
    return _instances[model]


class ExactSearch:
    """Finds the rows of a matrix with the highest products with a vector, computed in float64 and rounded.

    All products are first computed in float32, which reads half the memory; rows that could be among the best within its error
    are computed again in float64.

    Args:
        matrix: Shape (rows, dimensions), float32; not copied.
    """

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self._matrix = matrix
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
        self._max_norm = float(np.sqrt(squares.max(initial=0.0)))

    def search(self, vector: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the row indices of the `k` highest products, ties by index, and these products, rounded; shapes (<= k,)."""
        candidates = np.arange(len(self._matrix))
        if 0 < k < len(self._matrix):
            rough = self._matrix @ vector.astype(np.float32)
            # Twice the error bound of a sum of n products (Higham 2002, 3.1), and the step of the rounding.
            relative = (vector.size + 2) * float(np.finfo(np.float32).eps)
            error = relative * self._max_norm * float(np.sqrt(vector @ vector))
            candidates = (rough >= kth_highest(rough, k) - (2 * error + 10.0**-SCORE_DECIMALS)).nonzero()[0]
        scores = np.round(self._matrix[candidates].astype(np.float64) @ vector, SCORE_DECIMALS)
        chosen = top_k(scores, k)
        return candidates[chosen], scores[chosen]


class Dense:
    """Ranks every entry by cosine."""

    def __init__(self, entries: Sequence[Entry], *, encoder: Encoder, queries: QueryVectors) -> None:
        ordered_entries = by_id(entries)
        self._ids = [entry.id for entry in ordered_entries]
        self._encoder = encoder
        self._queries = queries
        entry_texts = [entry.text for entry in ordered_entries]
        self._search = ExactSearch(entry_vectors(encoder, entry_texts))
        self._unread = unread_of_entries(encoder, entry_texts)

    def rank(self, query: str, *, k: int) -> Ranking:
        """Rank every entry; an empty query or catalog gives an empty ranking: see `Retriever.rank`."""
        query, cut = cut_query(query)
        if not query.strip() or not self._ids:
            why = "the query is empty" if self._ids else "there are no entries"
            return Ranking((), (Stage("dense", 0, why),))
        chosen, scores = self._search.search(self._queries.get(query), k)
        items = tuple((self._ids[i], score) for i, score in zip(chosen.tolist(), scores.tolist(), strict=True))
        notes = (empty_reason(items, k, len(self._ids)), self._unread, unread_of_query(self._encoder, query), cut)
        note = "; ".join(filter(None, notes))
        return Ranking(items, (Stage("dense", len(items), note),))


def data_identity(values: dict[str, int | float | str]) -> str:
    """Hash of the encoder, for `registry.data_fingerprint`."""
    encoder, _ = shared_encoder(str(values["model"]))
    return fingerprint([encoder.name, encoder.identity])


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> Dense:
    """Build from a spec's values."""
    encoder, queries = shared_encoder(str(values["model"]))
    return Dense(entries, encoder=encoder, queries=queries)
