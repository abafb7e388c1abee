"""What holds of every retriever: a total order, prefixes, no memory, and an answer to every question."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.catalog import Capability, Catalog, OutputField, Parameter
from schemarouter.retrieval.base import Entry, Ranking, describe, entries_of, ordered
from schemarouter.retrieval.registry import build_retriever
from tests.retrieval.stubs import BUILDERS, WORDS, dense, entries, queries
from tests.strategies import LAWS

every_retriever = pytest.mark.parametrize("name", sorted(BUILDERS))
SPECS = ["bm25", "random(seed=3)", "rrf(bm25,random)"]
TALK = [Entry("a", "invoice lease"), Entry("b", "lease mass"), Entry("c", "설비 하중"), Entry("d", "")]


def is_totally_ordered(ranking: Ranking) -> bool:
    keys = [(-score, entry_id) for entry_id, score in ranking.items]
    return all(left < right for left, right in pairwise(keys))


@every_retriever
@LAWS
@given(given_entries=entries(), query=queries)
def test_scores_descend_ties_go_by_id_and_no_entry_comes_twice(
    name: str, given_entries: list[Entry], query: str
) -> None:
    ranking = BUILDERS[name](given_entries).rank(query, k=99)
    assert is_totally_ordered(ranking)
    assert len(set(ranking.ids)) == len(ranking.ids)
    assert set(ranking.ids) <= {entry.id for entry in given_entries}
    assert ranking.stages[-1].name == name
    assert ranking.stages[-1].kept == len(ranking.items)


@every_retriever
@LAWS
@given(given_entries=entries(), query=queries, data=st.data())
def test_the_order_of_entries_does_not_matter(
    name: str, given_entries: list[Entry], query: str, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(given_entries))
    assert BUILDERS[name](shuffled).rank(query, k=99) == BUILDERS[name](given_entries).rank(query, k=99)


@every_retriever
@LAWS
@given(given_entries=entries(), query=queries)
def test_a_smaller_k_is_a_prefix_of_a_larger_one(name: str, given_entries: list[Entry], query: str) -> None:
    retriever = BUILDERS[name](given_entries)
    full = retriever.rank(query, k=len(given_entries)).items
    for k in range(len(given_entries) + 1):
        assert retriever.rank(query, k=k).items == full[:k]
    assert retriever.rank(query, k=10**6).items == full
    assert retriever.rank(query, k=-1).items == ()


@every_retriever
@LAWS
@given(given_entries=entries(), asked=st.lists(queries, min_size=2, max_size=5), k=st.integers(0, 9))
def test_a_query_never_changes_a_retriever(name: str, given_entries: list[Entry], asked: list[str], k: int) -> None:
    fresh = [BUILDERS[name](given_entries).rank(query, k=k) for query in asked]
    used = BUILDERS[name](given_entries)
    first = [used.rank(query, k=k) for query in asked]
    again = [used.rank(query, k=k) for query in reversed(asked)]
    assert first == fresh
    assert again[::-1] == fresh


@every_retriever
@pytest.mark.parametrize("query", ["", " \n\t", "invoice", "\ud800", "\x00", "?!", "x" * 5000])
def test_an_empty_catalog_answers_every_query_with_nothing(name: str, query: str) -> None:
    assert BUILDERS[name]([]).rank(query, k=5).items == ()


@every_retriever
@pytest.mark.parametrize("query", ["\ud800 invoice", "\x00", "?!", "lease\u200b", "x" * 5000])
def test_odd_queries_are_answered(name: str, query: str) -> None:
    assert is_totally_ordered(BUILDERS[name](TALK).rank(query, k=4))


@pytest.mark.parametrize("query", ["", "  \n", "?! ...", "zebra quux", "\ud83d"])
def test_bm25_returns_nothing_without_a_common_term_and_says_why(query: str) -> None:
    ranking = BUILDERS["bm25"](TALK).rank(query, k=4)
    assert ranking.items == ()
    assert ranking.stages[-1].note


@pytest.mark.parametrize("query", ["", "  \n\t", "\u3000"])
def test_dense_has_no_ranking_for_an_empty_query_and_says_why(query: str) -> None:
    ranking = dense(TALK).rank(query, k=4)
    assert ranking.items == ()
    assert "query is empty" in ranking.stages[-1].note
    assert "no entries" in dense([]).rank("lease", k=4).stages[-1].note


@pytest.mark.parametrize("query", ["", " "])
def test_fusion_returns_nothing_when_no_part_does_and_says_why(query: str) -> None:
    ranking = BUILDERS["rrf"](TALK).rank(query, k=4)
    assert ranking.items == ()
    assert ranking.stages[-1].note
    assert [stage.name for stage in ranking.stages] == ["bm25", "dense", "rrf"]


@every_retriever
def test_whoever_returns_nothing_says_why(name: str) -> None:
    ranking = BUILDERS[name]([]).rank("lease", k=4)
    assert ranking.items == ()
    assert ranking.stages[-1].note


@every_retriever
def test_the_reason_given_for_k_0_is_not_a_missing_match(name: str) -> None:
    note = BUILDERS[name](TALK).rank("lease", k=0).stages[-1].note
    assert "no term" not in note
    assert "no nested retriever" not in note


@every_retriever
@pytest.mark.parametrize("k", [0, -1])
def test_whoever_is_asked_for_nothing_says_that(name: str, k: int) -> None:
    assert f"{k} entries were asked for" in BUILDERS[name](TALK).rank("lease", k=k).stages[-1].note


def contracts() -> list[Capability]:
    weigh: dict[str, Any] = {"name": "mass", "type": "number", "unit": "kg", "dimension": "mass"}
    return [
        Capability(
            provider=provider,
            operation=f"get_{index}",
            description=" ".join(WORDS[index : index + 3]),
            effect="read",
            parameters=(Parameter(name="lease_id", type="string", semantic_id="lease.id", required=True),),
            outputs=(
                OutputField.model_validate(weigh | {"description": "what it weighs", "semantic_id": "load.mass"}),
            ),
        )
        for index, provider in enumerate(["zulu", "alpha", "mike", "alpha", "kilo"])
    ]


@pytest.mark.parametrize("spec", SPECS)
@LAWS
@given(shuffled=st.permutations(contracts()), query=queries)
def test_the_order_of_a_catalog_does_not_matter(spec: str, shuffled: list[Capability], query: str) -> None:
    expected = build_retriever(spec, Catalog(contracts(), name="x")).rank(query, k=9)
    assert build_retriever(spec, Catalog(shuffled, name="y")).rank(query, k=9) == expected
    assert build_retriever(spec, entries_of(Catalog(shuffled, name="z"))).rank(query, k=9) == expected


def test_a_capability_is_found_by_everything_that_is_said_of_it() -> None:
    capability = contracts()[0]
    text = describe(capability)
    for word in (
        "zulu.get_0",
        capability.description,
        "lease_id",
        "lease.id",
        "mass",
        "what it weighs",
        "load.mass",
        "kg",
    ):
        assert word in text
    catalog = Catalog(contracts(), name="x")
    assert [entry.id for entry in entries_of(catalog)] == list(catalog.route_ids)
    assert [entry.capability for entry in entries_of(catalog)] == list(catalog.capabilities)


@LAWS
@given(pairs=st.dictionaries(st.text("ab", max_size=3), st.integers(-2, 2).map(float)), k=st.integers(-1, 9))
def test_ordered_is_the_total_order_cut_at_k(pairs: dict[str, float], k: int) -> None:
    best = ordered(pairs.items(), k)
    assert len(best) == min(max(k, 0), len(pairs))
    assert is_totally_ordered(Ranking(best))
    left_out = [(-score, key) for key, score in pairs.items() if (key, score) not in best]
    assert all((-best[-1][1], best[-1][0]) < other for other in left_out if best)
