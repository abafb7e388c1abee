"""Large corpora take another way than small ones, and rank as the plain sort of plainly added scores does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemarouter.retrieval.bm25 import BM25Index, top_k
from tests.strategies import LAWS

QUERIES: tuple[list[str], ...] = (["t1"], ["t3", "t40", "t3"], ["t2", "t900", "unseen"], ["unseen"], [])


def index_of(documents: int) -> BM25Index:
    rng = np.random.default_rng(5)
    corpus = [[f"t{term}" for term in rng.zipf(1.3, size=6)] for _ in range(documents)]
    return BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25)


def plain_scores(index: BM25Index, query: list[str]) -> NDArray[np.float64]:
    """What each term gives, added one after the other in the order of the query."""
    scores = np.zeros(index.size)
    for term in dict.fromkeys(query):
        if term in index.vocabulary:
            number = index.vocabulary[term]
            for posting in range(index.starts[number], index.starts[number + 1]):
                scores[index.doc_ids[posting]] += index.weights[posting] * query.count(term)
    return scores


@LAWS
@given(seed=st.integers(0, 2**32 - 1), kinds=st.integers(1, 9), k=st.integers(0, 40))
def test_top_k_of_many_scores_is_the_stable_sort_cut_at_k(seed: int, kinds: int, k: int) -> None:
    scores = np.random.default_rng(seed).integers(0, kinds, size=5000).astype(np.float64) ** 9
    assert top_k(scores, k).tolist() == np.argsort(-scores, kind="stable")[:k].tolist()


@pytest.mark.parametrize("size", [60, 5000])
@pytest.mark.parametrize("k", [-1, 0, 1, 10, 4999, 5000, 9000])
def test_a_corpus_of_any_size_ranks_as_the_plain_sort_does(size: int, k: int) -> None:
    index = index_of(size)
    for query in QUERIES:
        scores = plain_scores(index, query)
        assert index.scores(query).tobytes() == scores.tobytes()
        chosen, values = index.top_k(query, k)
        matching = np.flatnonzero(scores)
        assert chosen.tolist() == matching[np.argsort(-scores[matching], kind="stable")][: max(k, 0)].tolist()
        assert values.tobytes() == scores[chosen].tobytes()


def test_a_query_adds_no_term_to_the_vocabulary() -> None:
    index = index_of(1)
    known = dict(index.vocabulary)
    index.top_k(["unseen", "t1"], 2)
    assert index.vocabulary == known
