"""The laws of the typed retriever: order, parts, prefixes, no memory, and the rendered query as its whole input."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemarouter.catalog.views import VIEWS, viewed
from schemarouter.retrieval.base import Entry, Ranking, Retriever, entries_of
from schemarouter.retrieval.evidence import flow, relevance
from schemarouter.retrieval.evidence.lexicon import shared_lexicon
from schemarouter.retrieval.evidence.requests import Requests
from schemarouter.retrieval.typed import (
    RELEVANCE_GROUPS,
    Typed,
    Weights,
    WeightsError,
    build_typed,
    packaged_weights,
    read_query,
    view_of,
)
from schemarouter.retrieval.vectors import QueryVectors
from schemarouter.state import MARKER, Call, ExecutionState, Observation
from tests.retrieval.evidence.worlds import catalogs, executed
from tests.retrieval.stubs import StubEncoder, queries
from tests.retrieval.typed import every_weight, typed, weights_of
from tests.strategies import free_text, laws
from tests.strategies import states as any_states
from tests.toys import CATALOG, CATALOGS, SMALL

TOYS = entries_of(CATALOG)
PLAIN = [Entry("a", "invoice lease"), Entry("b", "lease mass"), Entry("c", "설비 하중"), Entry("d", "")]
# Drawing a state costs far more than ranking it.
FEW = laws(20)
states = any_states(max_turns=2)
asked = queries.filter(lambda text: MARKER not in text and text.isprintable())


def toy_state(count: int, query: str = "Send the Blue lamp") -> ExecutionState:
    """The state after the first routes of the toy catalog have run."""
    return executed(TOYS[:count], query=query)


def is_ordered(ranking: Ranking) -> bool:
    return all((-a[1], a[0]) < (-b[1], b[0]) for a, b in pairwise(ranking.items))


@pytest.fixture(scope="module")
def toys() -> Typed:
    return typed(TOYS)


@FEW
@given(entries=catalogs(), query=asked)
def test_scores_descend_are_quantised_and_ties_go_by_id(entries: list[Entry], query: str) -> None:
    ranking = typed(entries).rank(query, k=99)
    assert is_ordered(ranking)
    assert sorted(ranking.ids) == sorted(entry.id for entry in entries if query.strip())
    assert all(score == round(score, 6) for _, score in ranking.items)


def test_where_nothing_weighs_anything_all_tie_and_come_by_id() -> None:
    ranking = typed(TOYS[::-1], weights_of({}, {})).rank("Blue lamp", k=99)
    assert ranking.ids == tuple(sorted(CATALOG.route_ids))
    assert {score for _, score in ranking.items} == {0.0}


def test_differences_below_the_quantum_are_ties() -> None:
    ranking = typed(TOYS, weights_of({}, {"writes": 4e-7})).rank("Blue lamp", k=99)
    assert ranking.ids == tuple(sorted(CATALOG.route_ids))


@FEW
@given(entries=catalogs(), query=asked, data=st.data())
def test_the_order_of_entries_does_not_matter(entries: list[Entry], query: str, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(entries))
    state = executed(entries[:2], query=query)
    for text in (query, state.retrieval_query()):
        assert typed(shuffled).rank(text, k=99) == typed(entries).rank(text, k=99)


@FEW
@given(state=states, k=st.integers(-1, 40))
@example(state=ExecutionState.start("0!"), k=21)
def test_a_smaller_k_is_a_prefix_of_a_larger_one(toys: Typed, state: ExecutionState, k: int) -> None:
    text = state.retrieval_query()
    some, every = toys.rank(text, k=k), toys.rank(text, k=10**6)
    assert some.items == every.items[: max(k, 0)]
    assert some.parts == {entry: every.parts[entry] for entry in some.ids}


@FEW
@given(given_states=st.lists(states, min_size=2, max_size=3))
def test_a_query_never_changes_a_retriever(toys: Typed, given_states: list[ExecutionState]) -> None:
    texts = [state.retrieval_query() for state in given_states]
    first = [toys.rank(text, k=9) for text in texts]
    assert [toys.rank(text, k=9) for text in reversed(texts)][::-1] == first
    assert [typed(TOYS).rank(text, k=9) for text in texts[:1]] == first[:1]


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("query", ["Send the Blue lamp and lift it", "ORD-104 취소", "x"])
def test_parts_add_up_to_the_score(toys: Typed, count: int, query: str) -> None:
    ran = toy_state(count, query)
    failed = ran.observe(
        Call("lease.renew", {}), Observation("error", {"error": "lease_expired: x"}), CATALOG["lease.renew"],
        incomplete=True,
    )  # fmt: skip
    for text in (query, ran.retrieval_query(), failed.retrieval_query()):
        ranking = toys.rank(text, k=99)
        assert set(ranking.parts) == set(ranking.ids)
        for entry, score in ranking.items:
            assert sum(ranking.parts[entry].values()) == pytest.approx(score, abs=1e-6)


@FEW
@given(entries=catalogs(min_size=1), ran=st.integers(0, 3))
def test_parts_add_up_over_any_catalog(entries: list[Entry], ran: int) -> None:
    ranking = typed(entries).rank(executed(entries[:ran]).retrieval_query(), k=99)
    for entry, score in ranking.items:
        assert sum(ranking.parts[entry].values()) == pytest.approx(score, abs=1e-6)


def test_every_feature_belongs_to_one_kind_of_evidence() -> None:
    assert sorted(name for names in RELEVANCE_GROUPS.values() for name in names) == sorted(relevance.FEATURES)
    assert sorted(name for names in flow.GROUPS.values() for name in names) == sorted(flow.FEATURES)
    assert len(set(flow.FEATURES)) == len(flow.FEATURES)


@pytest.mark.parametrize("query", ["", " \n\t", "\u3000", ExecutionState.start(" ").retrieval_query()])
def test_an_empty_query_has_no_ranking_and_says_why(toys: Typed, query: str) -> None:
    ranking = toys.rank(query, k=5)
    assert ranking.items == ()
    assert "query is empty" in ranking.stages[-1].note


@pytest.mark.parametrize("query", ["", "invoice", "\ud800", toy_state(3).retrieval_query()])
def test_an_empty_catalog_answers_every_query_with_nothing(query: str) -> None:
    ranking = typed([]).rank(query, k=5)
    assert ranking.items == ()
    assert "no entries" in ranking.stages[-1].note


@pytest.mark.parametrize("k", [0, -1])
def test_whoever_is_asked_for_nothing_says_that(toys: Typed, k: int) -> None:
    ranking = toys.rank("lease", k=k)
    assert ranking.items == ()
    assert ranking.parts == {}
    assert f"{k} entries were asked for" in ranking.stages[-1].note


@pytest.mark.parametrize("query", ["lease", "lease\u200b", "?!", "\x00", "\ud800 invoice", "x" * 5000])
def test_entries_without_a_capability_rank(query: str) -> None:
    ranking = typed(PLAIN).rank(query, k=9)
    assert sorted(ranking.ids) == ["a", "b", "c", "d"]
    assert is_ordered(ranking)


def test_plain_entries_are_found_by_their_words_beside_contracts() -> None:
    retriever = typed([*TOYS, *PLAIN], weights_of({"words_whole": 5.0}, {"relevance": 1.0}))
    assert retriever.rank("the mass please", k=1).ids == ("b",)
    assert retriever.rank(toy_state(2, "the invoice").retrieval_query(), k=1).ids == ("a",)


@FEW
@given(state=states)
def test_a_state_and_the_same_state_read_back_rank_alike(toys: Typed, state: ExecutionState) -> None:
    again = ExecutionState.parse(state.canonical_json())
    assert toys.rank(state.retrieval_query(), k=99) == toys.rank(again.retrieval_query(), k=99)
    request, read = read_query(state.retrieval_query())
    assert (request, read.canonical_json()) == (state.original_query, state.canonical_json())


@FEW
@given(query=asked)
def test_a_rendered_state_in_which_nothing_happened_ranks_as_the_request(toys: Typed, query: str) -> None:
    assert toys.rank(ExecutionState.start(query).retrieval_query(), k=99) == toys.rank(query, k=99)


RUBBISH = ["", "{}", "[1]", "null", "{", '{"a":1}', "not json", "[" * 9999, '{"next_required_route":"a.b"}', "\x00"]


@pytest.mark.parametrize("rest", RUBBISH, ids=lambda rest: repr(rest[:12]))
@pytest.mark.parametrize("between", ["\n\n{}\n", " {} ", "{}", "\n{}\n"])
def test_a_marker_with_rubbish_after_it_is_part_of_a_request(toys: Typed, rest: str, between: str) -> None:
    text = f"Send it{between.format(MARKER)}{rest}"
    request, state = read_query(text)
    assert request == text
    assert state == ExecutionState.start("")
    assert len(toys.rank(text, k=5).items) == 5


@FEW
@given(state=states, head=free_text, tail=free_text.filter(bool))
def test_a_rendered_state_with_anything_after_it_is_a_request(state: ExecutionState, head: str, tail: str) -> None:
    text = f"{head}{state.retrieval_query()}{tail}"
    assert read_query(text)[0] == text


def test_rank_takes_a_text_and_a_number_and_nothing_else() -> None:
    assert list(inspect.signature(Typed.rank).parameters) == ["self", "query", "k"]
    assert inspect.signature(Typed.rank).parameters["query"].annotation == "str"
    assert inspect.signature(Typed.rank) == inspect.signature(Retriever.rank)


@FEW
@given(one=states, other=states)
def test_equal_bytes_rank_equally_and_so_do_equal_states_of_different_tasks(
    toys: Typed, one: ExecutionState, other: ExecutionState
) -> None:
    twin = other.model_copy(update=one.model_dump())
    assert twin.retrieval_query() == one.retrieval_query()
    before = toys.rank(one.retrieval_query(), k=99)
    toys.rank(other.retrieval_query(), k=99)
    assert toys.rank(twin.retrieval_query(), k=99) == before == typed(TOYS).rank(one.retrieval_query(), k=99)


def test_nothing_but_the_request_and_its_clauses_is_encoded_and_a_refresh_encodes_nothing() -> None:
    encoder = StubEncoder()
    retriever = typed(TOYS, encoder=encoder)
    encoder.asked.clear()
    query = "Send the Blue lamp, and lift it at the harbour."
    retriever.rank(query, k=5)
    assert encoder.asked == [query, "Send the Blue lamp", "lift it at the harbour"]
    encoder.asked.clear()
    for count in range(1, 6):
        assert retriever.rank(toy_state(count, query).retrieval_query(), k=5).items
    assert encoder.asked == []


def test_nested_catalogs_read_a_request_once() -> None:
    encoder = StubEncoder()
    requests = Requests(shared_lexicon(), QueryVectors(encoder))
    retrievers = [Typed(TOYS[:size], encoder=encoder, requests=requests, weights=every_weight()) for size in (3, 6)]
    del encoder.asked[:]
    query = "Find the Blue lamp, then send it to ORD-104"
    rankings = [retriever.rank(query, k=9) for retriever in retrievers]
    assert encoder.asked[0] == query
    assert len(encoder.asked) == len(set(encoder.asked)) > 1
    assert rankings == [typed(TOYS[:size]).rank(query, k=9) for size in (3, 6)]


def test_each_view_has_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert view_of(TOYS) == "full"
    assert view_of(entries_of(viewed(CATALOG, "names-only"))) == view_of(PLAIN) == view_of([]) == "names-only"
    seen: list[Any] = []
    monkeypatch.setattr("schemarouter.retrieval.typed.shared_encoder", lambda model: (StubEncoder(), None))
    monkeypatch.setattr("schemarouter.retrieval.typed.Typed", lambda *args, **options: seen.append(options["weights"]))
    for view in VIEWS:
        build_typed(entries_of(viewed(CATALOGS[SMALL], view)))
        assert seen.pop() == packaged_weights().views[view]


def test_the_packaged_weights_fit_the_features_of_this_code() -> None:
    assert sorted(packaged_weights().views) == sorted(VIEWS)
    for weights in packaged_weights().views.values():
        for which, features in (("relevance", relevance.FEATURES), ("score", flow.FEATURES)):
            table = weights.table(which, features)
            assert table.shape == (len(flow.PHASES), len(features))
            assert np.isfinite(table).all()
            assert {name for row in getattr(weights, which).values() for name in row} == set(features)


@pytest.mark.parametrize(("which", "features"), [("relevance", relevance.FEATURES), ("score", flow.FEATURES)])
def test_weights_that_lack_a_feature_or_a_phase_say_which_and_what_to_do(which: str, features: tuple[str, ...]) -> None:
    weights = every_weight().model_dump()
    del weights[which]["opening"][features[0]]
    with pytest.raises(WeightsError, match=rf"{which} has no weight '{features[0]}'; .*schemarouter tune"):
        typed(TOYS, Weights.model_validate(weights))
    del weights[which]["opening"]
    with pytest.raises(WeightsError, match="'opening'"):
        typed(TOYS, Weights.model_validate(weights))
