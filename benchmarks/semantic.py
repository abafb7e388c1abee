"""Exact dense search: this project's against a plain matrix-vector product with a full sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.corpora import DIMENSIONS, unit_vectors
from benchmarks.timing import Build, Effort, Row, alternate, build, rows
from schemarouter.errors import SchemaRouterError
from schemarouter.retrieval.dense import ExactSearch

BEST = 10
_DECIMALS = 6


def dense_rows(size: int, effort: Effort, queries: int) -> list[Row]:
    """Single queries over `size` random unit vectors. Raises SchemaRouterError when rankings differ."""
    vectors = unit_vectors(size, size)
    query_vectors = list(unit_vectors(queries, 0).astype(np.float64))
    search: Build[Any] = build(lambda: ExactSearch(vectors.copy()))
    plain: Build[Any] = build(lambda: vectors.astype(np.float64))
    whole: Build[Any] = build(vectors.copy)

    def sorted_product(vector: Any) -> Any:
        return np.argsort(-np.round(plain.value @ vector, _DECIMALS), kind="stable")[:BEST]

    for vector in query_vectors[:20]:
        if search.value.search(vector, BEST)[0].tolist() != sorted_product(vector).tolist():
            raise SchemaRouterError("the dense search and the plain product rank differently.")
    times = alternate(
        {
            "schemarouter": lambda vector: search.value.search(vector, BEST),
            "float64 @, argsort": sorted_product,
            "float32 @, argsort": lambda vector: np.argsort(-(whole.value @ vector.astype(np.float32)))[:BEST],
        },
        query_vectors,
        effort,
    )
    builds = dict(zip(times, (search, plain, whole), strict=True))
    notes = {
        "float64 @, argsort": "same ranking, 20 queries",
        "float32 @, argsort": "order depends on rounding errors",
    }
    return rows(f"dense, one query, {DIMENSIONS} dimensions, top 10", size, times, builds=builds, notes=notes)
