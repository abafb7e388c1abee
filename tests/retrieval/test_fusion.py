"""Reciprocal rank fusion: the formula, what each part gave, and depth."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.errors import SchemaRouterError
from schemarouter.retrieval.base import Entry, Ranking, Stage, Usage
from schemarouter.retrieval.fusion import ReciprocalRankFusion
from schemarouter.retrieval.registry import build_retriever
from tests.strategies import LAWS

ENTRIES = [Entry("a", "lease lease mass"), Entry("b", "lease invoice"), Entry("c", "mass load"), Entry("d", "sensor")]
NOTHING = Usage()
orders = st.lists(st.sampled_from("abcdef"), unique=True)


class Fixed:
    """Always the same order."""

    def __init__(self, name: str, order: Sequence[str], usage: Usage = NOTHING) -> None:
        self._name, self._order, self._usage = name, order, usage

    def rank(self, query: str, *, k: int) -> Ranking:
        items = tuple((entry_id, -float(at)) for at, entry_id in enumerate(self._order[:k]))
        return Ranking(items, (Stage(self._name, len(items)),), self._usage)


@LAWS
@given(first=orders, second=orders, third=orders, k=st.integers(0, 100))
def test_scores_are_sums_of_reciprocal_ranks(first: list[str], second: list[str], third: list[str], k: int) -> None:
    lists = [first, second, third]
    parts = [Fixed(str(at), order) for at, order in enumerate(lists)]
    ranking = ReciprocalRankFusion(parts, k=k, depth=6).rank("x", k=6)
    exact = {e: sum(Fraction(1, k + o.index(e) + 1) for o in lists if e in o) for e in {*first, *second, *third}}
    assert dict(ranking.items) == pytest.approx({entry_id: float(score) for entry_id, score in exact.items()})
    for entry_id, score in ranking.items:
        assert sum(ranking.parts[entry_id].values()) == pytest.approx(score)
        assert set(ranking.parts[entry_id]) == {str(at) for at, order in enumerate(lists) if entry_id in order}


def test_what_nested_rankings_used_adds_up() -> None:
    parts = [Fixed("x", "ab", Usage(30, 1, 0.25)), Fixed("y", "", Usage(5, 2, 0.5)), Fixed("z", "b")]
    assert ReciprocalRankFusion(parts, k=60, depth=2).rank("x", k=1).usage == Usage(35, 3, 0.75)
    assert build_retriever("rrf(bm25,dense)", ENTRIES).rank("lease", k=2).usage == NOTHING == Usage(0, 0, 0.0)


def test_parts_are_fused_to_their_full_depth_also_for_a_small_k() -> None:
    parts = [Fixed("x", "abcd"), Fixed("y", "dcab")]
    fused = ReciprocalRankFusion(parts, k=0, depth=4)
    assert fused.rank("x", k=4).ids == ("a", "d", "c", "b")
    assert fused.rank("x", k=1).ids == ("a",)
    assert set(fused.rank("x", k=1).parts) == {"a"}


def test_a_part_without_a_ranking_takes_nothing_from_the_others() -> None:
    assert ReciprocalRankFusion([Fixed("x", ""), Fixed("y", "ba")], k=60, depth=2).rank("x", k=9).ids == ("b", "a")


@pytest.mark.parametrize("spec", ["rrf(bm25,bm25(k1=2))", "rrf(rrf(bm25,random),rrf(bm25,random(seed=2)))"])
def test_the_parts_of_two_retrievers_of_one_kind_add_up_to_the_score(spec: str) -> None:
    ranking = build_retriever(spec, ENTRIES).rank("lease mass", k=9)
    assert ranking.items
    for entry_id, score in ranking.items:
        assert sum(ranking.parts[entry_id].values()) == pytest.approx(score)


def test_parts_of_one_name_are_distinguished_by_their_number() -> None:
    parts = [Fixed("x", "ab"), Fixed("y", "a"), Fixed("x", "b"), Fixed("", "a")]
    given = ReciprocalRankFusion(parts, k=0, depth=2).rank("x", k=2).parts
    assert given == {"a": {"x": 1.0, "y": 1.0, "#4": 1.0}, "b": {"x": 0.5, "x#3": 1.0}}


def test_the_largest_k_still_distinguishes_ranks_and_a_larger_one_is_refused_with_the_bound() -> None:
    assert build_retriever("rrf(bm25,bm25(k1=2),k=1000000)", ENTRIES).rank("lease", k=9).ids == ("a", "b")
    with pytest.raises(SchemaRouterError, match=r"k=1000001 must be at most 1e\+06"):
        build_retriever("rrf(bm25,random,k=1000001)", ENTRIES)


def test_a_huge_k_is_refused_or_ranks() -> None:
    spec = f"rrf(bm25,random,k={'9' * 400})"
    try:
        ranking = build_retriever(spec, ENTRIES).rank("lease", k=9)
    except SchemaRouterError:
        return
    assert ranking.items
