"""Dense retrieval: cosine between the vector of the query and those of the entries, exact search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from schemarouter.retrieval.base import Entry, Ranking, Stage, silence
from schemarouter.retrieval.bm25 import top_k
from schemarouter.retrieval.spec import Declaration, Option
from schemarouter.retrieval.use_m3 import UseM3
from schemarouter.retrieval.vectors import Encoder, QueryVectors, entry_vectors

ENCODERS: dict[str, Callable[[], Encoder]] = {"use-m3": UseM3}
DECLARATION = Declaration(
    name="dense",
    summary="cosine of sentence vectors, exact search",
    options={"model": Option(str, "use-m3", choices=tuple(ENCODERS))},
)
# Scores are rounded to this many decimals before they are ordered, so that the last bits of a BLAS cannot reorder ties.
_DECIMALS = 6
_instances: dict[str, tuple[Encoder, QueryVectors]] = {}


def shared_encoder(model: str) -> tuple[Encoder, QueryVectors]:
    """The encoder of that name and its query vectors, loaded once a process: an encoder has no state but its weights."""
    if model not in _instances:
        encoder = ENCODERS[model]()
        _instances[model] = (encoder, QueryVectors(encoder))
    return _instances[model]


class Dense:
    """Ranks every entry by cosine."""

    def __init__(self, entries: Sequence[Entry], *, encoder: Encoder, queries: QueryVectors) -> None:
        ordered_entries = sorted(entries, key=lambda entry: entry.id)
        self._ids = [entry.id for entry in ordered_entries]
        self._encoder = encoder
        self._queries = queries
        self._matrix = entry_vectors(encoder, [entry.text for entry in ordered_entries]).astype(np.float64)

    def rank(self, query: str, *, k: int) -> Ranking:
        """Return the best `k` entries; an empty query or an empty catalog has no ranking."""
        if not query.strip() or not self._ids:
            why = "the query is empty" if self._ids else "there are no entries"
            return Ranking((), (Stage("dense", 0, why),))
        scores = np.round(self._matrix @ self._queries.get(query), _DECIMALS)
        items = tuple((self._ids[i], float(scores[i])) for i in top_k(scores, k))
        note = silence(items, k, len(self._ids))
        return Ranking(items, (Stage("dense", len(items), note),), self._encoder.count_tokens(query))


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> Dense:
    """Build from a spec's values."""
    encoder, queries = shared_encoder(str(values["model"]))
    return Dense(entries, encoder=encoder, queries=queries)
