"""Rankings do not depend on the order of words, of nested rankings or of entries, and what has no order is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry, Ranking, RetrieverError, by_id, ordered
from schemarouter.retrieval.bm25 import BM25
from schemarouter.retrieval.dense import Dense
from schemarouter.retrieval.fusion import ReciprocalRankFusion
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.vectors import QueryVectors
from tests.retrieval.stubs import StubEncoder
from tests.strategies import LAWS

WORDS = ("pump", "valve", "meter", "flow", "tank", "seal")


@LAWS
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=2, max_size=12), st.data())
def test_the_order_of_a_querys_words_changes_no_bit(documents: list[list[str]], data: st.DataObject) -> None:
    built = BM25([Entry(f"d{n:02d}", " ".join(words)) for n, words in enumerate(documents)])
    query = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    other = data.draw(st.permutations(query))
    assert built.rank(" ".join(query), k=20).items == built.rank(" ".join(other), k=20).items


class Fixed:
    """A ranking that is always the same."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids

    def rank(self, query: str, *, k: int) -> Ranking:
        return Ranking(tuple((name, -float(rank)) for rank, name in enumerate(self.ids)))


@LAWS
@given(st.lists(st.permutations("abcdef"), min_size=2, max_size=5))
def test_the_order_of_nested_rankings_changes_no_bit(rankings: list[list[str]]) -> None:
    first, *others = (
        ReciprocalRankFusion([Fixed(ids) for ids in order], k=60, depth=6).rank("q", k=6).items
        for order in itertools.islice(itertools.permutations(rankings), 24)
    )
    assert all(items == first for items in others)


@pytest.mark.parametrize("spec", ["bm25", "dense", "typed", "random", "rrf(bm25,random)"])
def test_an_id_that_stands_twice_is_refused_when_the_retriever_is_built(spec: str) -> None:
    entries = [Entry("b", "one"), Entry("a", "two"), Entry("b", "three")]
    with pytest.raises(RetrieverError, match=r"1 ids stand twice among 3 entries: 'b'"):
        build_retriever(spec, entries)
    assert [entry.id for entry in by_id(entries[:2])] == ["a", "b"]


def test_a_score_that_is_no_number_is_refused_with_its_entry() -> None:
    for pairs in itertools.permutations([("a", 1.0), ("b", math.nan), ("c", 2.0)]):
        with pytest.raises(RetrieverError, match="the score of 'b' is not a number"):
            ordered(pairs, 3)


class Broken(StubEncoder):
    """Gives NaN for texts with one word."""

    word = "valve"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        vectors = super().encode(texts).copy()
        vectors[[self.word in text for text in texts], 0] = math.nan
        return vectors


def test_a_vector_that_is_no_number_is_refused_where_it_enters_with_model_and_text() -> None:
    encoder = Broken()
    with pytest.raises(RetrieverError, match=rf"encoder {encoder.name} .* 1 of 2 texts, the first 'a valve'"):
        Dense([Entry("a", "a pump"), Entry("b", "a valve")], encoder=encoder, queries=QueryVectors(encoder))
    built = Dense([Entry("a", "a pump")], encoder=encoder, queries=QueryVectors(encoder))
    with pytest.raises(RetrieverError, match="the first 'which valve'"):
        built.rank("which valve", k=1)
