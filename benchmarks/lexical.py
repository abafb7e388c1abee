"""BM25: this project's against rank-bm25 and bm25s, on the same tokens and in the same run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.corpora import zipf_corpus
from benchmarks.timing import Build, Effort, Row, alternate, build, rows
from schemarouter.errors import SchemaRouterError
from schemarouter.retrieval.bm25 import Best, BM25Index

BEST = 10
OURS = "schemarouter"
Query = Sequence[str]
Ask = Callable[[Query], Best]


def lexical_rows(size: int, effort: Effort, queries: int) -> list[Row]:
    """Single queries over a corpus of `size` documents. Raises SchemaRouterError when rankings differ."""
    corpus = zipf_corpus(size, queries)
    builds = _builds(corpus.documents)
    ask = {name: _single(name, item.value) for name, item in builds.items()}
    # One call of rank-bm25 takes milliseconds over hundreds of documents and a good part of a second over 238,000.
    burst, compared = (25, 64) if size < 10_000 else (5, 16)
    notes = {
        name: _agreement(corpus.queries[:compared], ask[OURS], one, name) for name, one in ask.items() if name != OURS
    }
    single = alternate(ask, corpus.queries, replace(effort, burst=burst))
    return rows("BM25, one query, top 10", size, single, builds=builds, notes=notes)


def _builds(documents: list[list[str]]) -> dict[str, Build[Any]]:
    makers: dict[str, Callable[[], Any]] = {
        OURS: lambda: BM25Index(documents, k1=1.5, b=0.75, epsilon=0.25),
        "rank-bm25": lambda: _rank_bm25(documents),
        "bm25s": lambda: _bm25s(documents, "numpy"),
    }
    if importlib.util.find_spec("numba"):
        makers["bm25s (numba)"] = lambda: _bm25s(documents, "numba")
    return {name: build(make) for name, make in makers.items()}


def _rank_bm25(documents: list[list[str]]) -> Any:
    from rank_bm25 import BM25Okapi

    return BM25Okapi(documents)


def _bm25s(documents: list[list[str]], backend: str) -> Any:
    """The variant of bm25s that is rank-bm25's: ATIRE's term frequencies, Robertson's idf."""
    from bm25s import BM25

    index = BM25(method="atire", idf_method="robertson", backend=backend)
    index.index(documents, show_progress=False)
    return index


def _single(name: str, index: Any) -> Ask:
    if name == OURS:
        return lambda query: index.top_k(query, BEST)
    if name == "rank-bm25":
        return lambda query: _best_of(index.get_scores(query))
    return lambda query: _unpacked(index.retrieve([query], k=BEST, show_progress=False, n_threads=0))


def _best_of(scores: Any) -> Best:
    """As rank-bm25's own `get_top_n` selects."""
    chosen = np.argsort(scores)[::-1][:BEST]
    return chosen, scores[chosen]


def _unpacked(results: Any) -> Best:
    return results.documents[0], results.scores[0]


def _agreement(queries: Sequence[Query], ours: Ask, other: Ask, name: str) -> str:
    """Check that both rank alike (equal scores, and equal documents except for ties), and note over how many queries."""
    tolerance = 1e-9 if name == "rank-bm25" else 1e-4  # bm25s adds up 32-bit scores.
    for query in queries:
        (own_ids, own), (other_ids, others) = ours(query), other(query)
        length = min(len(own), len(others))
        decided = own > own[-1] + tolerance
        missing = set(own_ids[decided].tolist()) - set(np.asarray(other_ids).tolist())
        if missing or np.abs(own[:length] - others[:length]).max(initial=0) > tolerance:
            raise SchemaRouterError(f"{name} ranks {' '.join(query)!r} differently; its times cannot be compared.")
    return f"same ranking, {len(queries)} queries, scores within {tolerance:g}"
