"""Many queries at once give what each gives alone, to the bit; large corpora rank as the plain sort does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemarouter.retrieval import bm25
from schemarouter.retrieval.bm25 import BM25Index, top_k
from tests.strategies import LAWS

TERMS = list("abcdefghijkl")
corpora = st.lists(st.lists(st.sampled_from(TERMS), max_size=8), max_size=12)
batches = st.lists(st.lists(st.sampled_from([*TERMS, "unseen"]), max_size=6), max_size=6)
# Small corpora take the way of large ones where nothing counts as small, and blocks of one query where none holds more.
ways = st.sampled_from([(4096, 2**17), (4096, 1), (0, 2**17), (3, 5)])


def index_of(corpus: list[list[str]]) -> BM25Index:
    return BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25)


def plain_order(scores: NDArray[np.float64], k: int) -> list[int]:
    """Positions of the `k` highest scores above 0 by a sort in plain Python."""
    matching = [position for position, score in enumerate(scores.tolist()) if score > 0]
    return sorted(matching, key=lambda position: (-scores[position], position))[: max(k, 0)]


@LAWS
@given(corpus=corpora, queries=batches, k=st.integers(-1, 14), way=ways)
def test_a_batch_is_its_single_queries_to_the_bit(
    corpus: list[list[str]], queries: list[list[str]], k: int, way: tuple[int, int]
) -> None:
    index = index_of(corpus)
    single = [index.scores(query) for query in queries]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bm25, "_SMALL", way[0])
        patched.setattr(bm25, "_BLOCK_SCORES", way[1])
        many = index.scores_many(queries)
        best = index.top_k_many(queries, k)
        alone = [index.top_k(query, k) for query in queries]
    assert many.shape == (len(queries), len(corpus)) and many.dtype == np.float64
    assert [row.tobytes() for row in many] == [scores.tobytes() for scores in single]
    for scores, together, one in zip(single, best, alone, strict=True):
        assert together[0].tolist() == one[0].tolist() == plain_order(scores, k)
        assert together[1].tobytes() == one[1].tobytes() == scores[one[0]].tobytes()


@LAWS
@given(seed=st.integers(0, 2**32 - 1), kinds=st.integers(1, 9), k=st.integers(0, 40))
def test_top_k_of_many_scores_is_the_stable_sort_cut_at_k(seed: int, kinds: int, k: int) -> None:
    scores = np.random.default_rng(seed).integers(0, kinds, size=5000).astype(np.float64) ** 9
    assert top_k(scores, k).tolist() == np.argsort(-scores, kind="stable")[:k].tolist()


@pytest.mark.parametrize("k", [1, 10, 4999, 5000, 9000])
def test_a_large_corpus_ranks_as_the_plain_sort_does(k: int) -> None:
    rng = np.random.default_rng(5)
    corpus = [[f"t{term}" for term in rng.zipf(1.3, size=6)] for _ in range(5000)]
    index = index_of(corpus)
    for query in (["t1"], ["t3", "t40", "t3"], ["t2", "t900", "unseen"], ["unseen"], []):
        chosen, values = index.top_k(query, k)
        scores = index.scores(query)
        assert chosen.tolist() == plain_order(scores, k)
        assert values.tobytes() == scores[chosen].tobytes()


def test_a_query_adds_no_term_to_the_vocabulary() -> None:
    index = index_of([["a"], ["b"]])
    index.top_k_many([["unseen"], ["a"]], 2)
    assert index.vocabulary == {"a": 0, "b": 1}
