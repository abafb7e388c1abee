"""Synthetic corpora, queries and vectors, reproducible from their seed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SEED = 20261130
DIMENSIONS = 512
QUERY_TERMS = 12
_VOCABULARY = 50_000
# Zipf-Mandelbrot, with an exponent and an offset as running text has them.
_EXPONENT, _OFFSET = 1.07, 2.7
_MIN_LENGTH, _MAX_LENGTH = 16, 40


@dataclass(frozen=True)
class Corpus:
    """Tokenised documents, and queries of `QUERY_TERMS` tokens."""

    documents: list[list[str]]
    queries: list[list[str]]


def zipf_corpus(size: int, queries: int) -> Corpus:
    """Documents of 16 to 40 tokens drawn by Zipf's law; a query is twelve different terms of one document.

    Query terms occur in fewer than half of the documents: above that the three systems differ by design.
    """
    rng = np.random.default_rng([SEED, size])
    weights = 1 / (np.arange(_VOCABULARY) + _OFFSET) ** _EXPONENT
    lengths = rng.integers(_MIN_LENGTH, _MAX_LENGTH + 1, size=size)
    terms = rng.choice(_VOCABULARY, size=int(lengths.sum()), p=weights / weights.sum())
    bounds = np.concatenate(([0], np.cumsum(lengths))).tolist()
    # One number for each pair of a term and a document that holds it.
    occurrences = np.unique(terms * size + np.repeat(np.arange(size), lengths))
    rare = 2 * np.bincount(occurrences // size, minlength=_VOCABULARY) < size
    words = [f"w{term}" for term in range(_VOCABULARY)]
    flat = [words[term] for term in terms.tolist()]
    documents = [flat[start:stop] for start, stop in pairwise(bounds)]
    drawn: list[list[str]] = []
    while len(drawn) < queries:
        index = int(rng.integers(size))
        own = np.unique(terms[bounds[index] : bounds[index + 1]])
        own = own[rare[own]]
        if own.size >= QUERY_TERMS:
            drawn.append([words[term] for term in rng.permutation(own)[:QUERY_TERMS].tolist()])
    return Corpus(documents, drawn)


def unit_vectors(count: int, stream: int) -> NDArray[np.float32]:
    """Random unit vectors, shape (count, DIMENSIONS); other streams give others."""
    vectors = np.random.default_rng([SEED, stream]).standard_normal((count, DIMENSIONS), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
