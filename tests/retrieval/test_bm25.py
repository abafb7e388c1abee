"""BM25 against rank-bm25, and where it departs from it on purpose."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.bm25 import BM25, BM25Index, top_k
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.spec import SpecError
from tests.strategies import LAWS

TERMS = list("abcdefghijkl")
corpora = st.lists(st.lists(st.sampled_from(TERMS), max_size=8), min_size=1, max_size=12).filter(any)
term_queries = st.lists(st.sampled_from([*TERMS, "unseen"]), max_size=6)
k1s, bs, epsilons = st.floats(0, 4), st.floats(0, 1), st.floats(0, 1)


def document_frequency(corpus: list[list[str]]) -> Counter[str]:
    return Counter(term for document in corpus for term in set(document))


@LAWS
@given(corpus=corpora, query=term_queries, k1=st.floats(0.01, 4), b=st.floats(0, 0.99), epsilon=epsilons)
def test_scores_are_those_of_rank_bm25_where_the_query_has_no_common_term(
    corpus: list[list[str]], query: list[str], k1: float, b: float, epsilon: float
) -> None:
    frequency = document_frequency(corpus)
    rare = [term for term in query if 2 * frequency[term] < len(corpus)]
    expected = BM25Okapi(corpus, k1=k1, b=b, epsilon=epsilon).get_scores(rare)
    np.testing.assert_allclose(BM25Index(corpus, k1=k1, b=b, epsilon=epsilon).scores(rare), expected, rtol=0, atol=1e-9)


@LAWS
@given(seed=st.integers(0, 2**32 - 1))
def test_scores_are_those_of_rank_bm25_on_a_corpus_of_rare_terms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corpus = [[f"t{term}" for term in rng.integers(0, 60, size=rng.integers(0, 20))] for _ in range(30)]
    corpus[0] += ["t1", "t1"]
    query = [f"t{term}" for term in rng.integers(0, 70, size=8)]
    reference = BM25Okapi(corpus)
    assume(min(reference.idf.values()) > 0)
    index = BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25)
    np.testing.assert_allclose(index.scores(query), reference.get_scores(query), rtol=0, atol=1e-9)


@LAWS
@given(corpus=corpora, query=term_queries, k1=k1s, b=bs, epsilon=epsilons)
def test_a_matching_document_never_falls_below_one_that_does_not_match(
    corpus: list[list[str]], query: list[str], k1: float, b: float, epsilon: float
) -> None:
    scores = BM25Index(corpus, k1=k1, b=b, epsilon=epsilon).scores(query)
    for document, score in zip(corpus, scores, strict=True):
        assert score > 0 if set(document) & set(query) else score == 0


@LAWS
@given(corpus=corpora, epsilon=epsilons)
def test_terms_in_half_or_more_of_the_documents_get_epsilon_times_the_mean_positive_idf(
    corpus: list[list[str]], epsilon: float
) -> None:
    size = len(corpus)
    frequency = document_frequency(corpus)
    raw = {term: math.log((size - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}
    positive = [raw[term] for term, n in frequency.items() if 2 * n < size]
    floor = max(epsilon * sum(positive) / len(positive), 1e-6) if positive else 1e-6
    index = BM25Index(corpus, k1=1.5, b=0.75, epsilon=epsilon)
    for term, n in frequency.items():
        expected = raw[term] if 2 * n < size else floor
        assert index.idf[index.vocabulary[term]] == pytest.approx(expected, rel=1e-9)


def test_rank_bm25_itself_sinks_a_matching_document_where_this_one_does_not() -> None:
    corpus = [["a", "c"], ["a", "c"], ["b"]]
    assert BM25Okapi(corpus).get_scores(["a"])[0] < 0
    assert BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25).scores(["a"])[0] > 0


@LAWS
@given(corpus=corpora, query=term_queries, k=st.integers(0, 12))
def test_ranking_returns_the_matching_entries_with_the_index_scores(
    corpus: list[list[str]], query: list[str], k: int
) -> None:
    given_entries = [Entry(f"{index:02}", " ".join(document)) for index, document in enumerate(corpus)]
    retriever = BM25(given_entries, tokenizer=str.split)
    scores = BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25).scores(query)
    matching = [index for index, document in enumerate(corpus) if set(document) & set(query)]
    best = sorted(matching, key=lambda index: (-scores[index], index))[:k]
    assert retriever.rank(" ".join(query), k=k).items == tuple((f"{i:02}", float(scores[i])) for i in best)


def test_a_repeated_term_counts_as_often_as_it_stands() -> None:
    index = BM25Index([["a", "b"], ["c"], ["d"], ["e"]], k1=1.5, b=0.75, epsilon=0.25)
    np.testing.assert_allclose(index.scores(["a", "a", "a"]), 3 * index.scores(["a"]), rtol=1e-12)


@pytest.mark.parametrize("corpus", [[], [[]], [[], [], []]])
def test_a_corpus_without_words_scores_nothing(corpus: list[list[str]]) -> None:
    scores = BM25Index(corpus, k1=1.5, b=0.75, epsilon=0.25).scores(["a", "b"])
    assert scores.tolist() == [0.0] * len(corpus)


@LAWS
@given(scores=arrays(np.float64, st.integers(0, 20), elements=st.integers(-2, 2).map(float)), k=st.integers(-1, 25))
def test_top_k_is_the_stable_sort_cut_at_k(scores: NDArray[np.float64], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[: max(k, 0)]
    assert top_k(scores, k).tolist() == expected


@pytest.mark.parametrize("option", ["k1", "b", "epsilon"])
def test_every_option_reaches_the_scores(option: str) -> None:
    given_entries = [Entry("a", "x x y z z"), Entry("b", "y"), Entry("c", "y w v"), Entry("d", "u")]
    plain = build_retriever("bm25", given_entries).rank("x y", k=4)
    assert build_retriever(f"bm25({option}=0.9)", given_entries).rank("x y", k=4).items != plain.items


@pytest.mark.parametrize(
    ("option", "said"),
    [("b=1.5", "b=1.5 must be at most 1."), ("k1=1e308", "k1=1e308 must be at most"), ("epsilon=1e7", "at most 1e+06")],
)
def test_an_option_beyond_its_bound_is_refused_with_the_bound(option: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        build_retriever(f"bm25({option})", [])
    assert said in str(caught.value)


@pytest.mark.parametrize("spec", ["bm25(b=1)", "bm25(k1=1e6)", "bm25(b=1,epsilon=1e6,k1=1e6)", "bm25(k1=0)"])
def test_the_largest_options_rank_every_matching_entry(spec: str) -> None:
    given_entries = [Entry("a", "foo " * 900), Entry("b", "foo bar"), Entry("c", "x"), Entry("d", "y")]
    ranking = build_retriever(spec, given_entries).rank("foo " * 900, k=4)
    assert set(ranking.ids) == {"a", "b"}
    assert all(math.isfinite(score) for _, score in ranking.items)


@pytest.mark.parametrize("spec", ["bm25(b=5)", "bm25(b=1.5)", "bm25(k1=1e308)", "bm25(k1=1e200,epsilon=1e200)"])
def test_extreme_options_are_refused_or_keep_every_matching_entry(spec: str) -> None:
    given_entries = [
        Entry("a", "foo bar baz qux"),
        Entry("b", "foo"),
        Entry("c", "x"),
        Entry("d", "y " * 9),
        Entry("e", "z"),
    ]
    try:
        retriever = build_retriever(spec, given_entries)
    except SpecError:
        return
    ranking = retriever.rank("foo", k=5)
    assert set(ranking.ids) == {"a", "b"}
    assert all(math.isfinite(score) for _, score in ranking.items)
