"""What each condition shows: laws over random turns, and the flags that say whether it can still change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.base import Condition, ConditionError, Exposure
from conditions.registry import CONDITIONS, make_condition
from conditions.state_aware import StateAware
from preregistration.protocol import ConditionRules
from schemarouter.catalog import from_openai_tools
from schemarouter.errors import UsageError
from schemarouter.retrieval.base import Ranking, Retriever, entries_of
from schemarouter.retrieval.random import Random
from schemarouter.state import Call, Observation
from surface.environment import plausible_outputs
from tests.strategies import LAWS
from tests.toys import CATALOG, CATALOGS, LARGE, RULES, SMALL, SR, Following, Listed

QUERY = "Blue lamp"
RANDOM = Random(entries_of(CATALOG), seed=3)
CALL = Call("shop.ship_order", {})
FAILED = Observation("error", {"status": "error", "error": "busy: later"})


@dataclass(frozen=True)
class Move:
    """An ask, or a tool turn."""

    kind: Literal["ask", "ran", "error", "blocked"]
    route: str = "unregistered.route"
    seed: str = ""
    incomplete: bool = True

    def make(self, condition: Condition) -> Exposure:
        """Do it; returns what is shown then."""
        if self.kind == "ask":
            return condition.ask()
        call = Call(self.route, {})
        if self.kind == "ran":
            observation = Observation("ran", plausible_outputs(CATALOG[self.route], self.seed, {}))
        else:
            observation = Observation(self.kind, {"status": self.kind, "error": f"busy{self.seed}: later"})
        return condition.observe(call, observation, incomplete=self.incomplete)


# Few routes and seeds, so that turns repeat and leave the state's bytes as they were.
ROUTES = st.sampled_from(CATALOG.route_ids[:4])
SEEDS = st.sampled_from(["", "a", "b"])
TOOL_TURNS = st.builds(Move, st.just("ran"), ROUTES, SEEDS, st.integers(0, 9).map(bool)) | st.builds(
    Move,
    st.sampled_from(["error", "blocked"]),
    ROUTES | st.just("unregistered.route"),
    SEEDS,
    st.integers(0, 9).map(bool),
)
MOVES = st.lists(TOOL_TURNS | st.just(Move("ask")), max_size=14)


def opened(name: str, retriever: Retriever = RANDOM, rules: ConditionRules = RULES) -> Condition:
    condition = make_condition(name, retriever, CATALOG, rules, required_routes=["shop.find_order", "aux.purge"])
    condition.open(QUERY)
    return condition


@LAWS
@given(MOVES, st.integers(0, 3))
def test_the_refresh_budget_is_never_exceeded_and_a_turn_spends_at_most_one(moves: list[Move], budget: int) -> None:
    rules = RULES.model_copy(update={"refresh_budget": budget})
    retriever = Counting()
    condition = opened("SR-5-STATE-AWARE", retriever, rules)
    assert isinstance(condition, StateAware)
    for move in moves:
        before, asked = condition.budget.left, retriever.asked
        move.make(condition)
        spent = before - condition.budget.left
        assert spent in ((0,) if move.kind == "ask" else (0, 1))
        assert retriever.asked - asked == spent
        assert 0 <= condition.budget.left <= budget
    assert retriever.asked <= 1 + budget


class Counting(Listed):
    """Ranks at random and counts."""

    def order(self, query: str) -> list[str]:
        return list(RANDOM.rank(query, k=len(CATALOG)).ids)


@LAWS
@given(MOVES)
def test_state_aware_refreshes_exactly_when_the_bytes_of_an_incomplete_state_changed(moves: list[Move]) -> None:
    condition = opened("SR-5-STATE-AWARE")
    assert isinstance(condition, StateAware)
    for move in moves:
        left, shown, bytes_before = condition.budget.left, condition.exposure, condition.state.canonical_json()
        after = move.make(condition)
        changed = condition.state.canonical_json() != bytes_before
        due = move.kind != "ask" and changed and move.incomplete and left > 0
        assert (after is not shown) == due
        assert left - condition.budget.left == int(due)
        if due:
            assert after.cause == "refresh" and after.ranking is not None
            assert after.ranking.ids == RANDOM.rank(condition.state.retrieval_query(), k=5).ids
            assert set(after.routes) == set(after.ranking.ids), "a refresh replaces what was exposed"


def test_a_turn_that_leaves_the_bytes_of_the_state_alone_spends_nothing() -> None:
    retriever = Listed()
    condition = opened("SR-5-STATE-AWARE", retriever)
    assert isinstance(condition, StateAware)
    turn = Move("ran", "shop.find_order", "a")
    first = turn.make(condition)
    assert (condition.budget.left, retriever.asked, first.cause) == (4, 2, "refresh")
    assert turn.make(condition) is first
    assert (condition.budget.left, retriever.asked) == (4, 2)


def test_a_turn_that_completes_the_task_spends_nothing() -> None:
    condition = opened("SR-5-STATE-AWARE")
    assert isinstance(condition, StateAware)
    shown = condition.exposure
    assert Move("ran", "shop.find_order", incomplete=False).make(condition) is shown
    assert condition.budget.left == 5


def test_a_failed_turn_is_refreshed_from_as_well() -> None:
    retriever = Following(first=["aux.purge"], then={1: ["shop.ship_order"]})
    condition = opened("SR-5-STATE-AWARE", retriever)
    assert "shop.ship_order" not in condition.exposure.routes
    assert "shop.ship_order" in condition.observe(CALL, FAILED).routes


@LAWS
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: "[EXEC" not in text))
def test_the_sr_arms_open_with_the_same_five_tools(query: str) -> None:
    exposures = {name: make_condition(name, RANDOM, CATALOG, RULES).open(query) for name in SR}
    first = exposures["SR-5-STATIC"]
    assert first.ranking is not None and first.routes == tuple(sorted(first.ranking.ids[:5]))
    assert all(item.routes == first.routes and item.ranking == first.ranking for item in exposures.values())
    assert {item.cause for item in exposures.values()} == {"open"}


@LAWS
@given(st.sampled_from(sorted(CONDITIONS)), MOVES)
def test_tools_are_always_sorted_by_route_id_and_shown_once(name: str, moves: list[Move]) -> None:
    condition = opened(name)
    exposures = [condition.exposure, *(move.make(condition) for move in moves)]
    for exposure in exposures:
        assert list(exposure.routes) == sorted(set(exposure.routes))
        assert condition.exposure is exposures[-1]


@LAWS
@given(MOVES)
def test_progressive_widens_5_10_20_after_failed_turns_and_asks_and_then_stops(moves: list[Move]) -> None:
    retriever = Counting()
    condition = opened("SR-PROGRESSIVE-STATIC", retriever)
    ranking, stage = condition.exposure.ranking, 0
    assert ranking is not None
    for move in moves:
        stage = min(2, stage + int(move.kind != "ran"))
        exposure = move.make(condition)
        size = (5, 10, 20)[stage]
        assert exposure.routes == tuple(sorted(ranking.ids[:size]))
        assert exposure.ranking is ranking
        assert exposure.can_ask == exposure.can_turn == (stage < 2)
    assert retriever.asked == 1, "never a new ranking"


@LAWS
@given(MOVES)
def test_static_never_changes_and_says_so(moves: list[Move]) -> None:
    condition = opened("SR-5-STATIC")
    first = condition.exposure
    assert not first.can_ask and not first.can_turn
    assert all(move.make(condition) is first for move in moves)


@LAWS
@given(MOVES)
def test_full_and_oracle_show_their_routes_without_rank_and_never_change(moves: list[Move]) -> None:
    retriever = Listed()
    full, oracle = opened("FULL", retriever), opened("ORACLE", retriever)
    assert full.exposure == Exposure(CATALOG.route_ids, None, "open")
    assert oracle.exposure == Exposure(("aux.purge", "shop.find_order"), None, "open")
    for condition in (full, oracle):
        first = condition.exposure
        assert all(move.make(condition) is first for move in moves)
    assert retriever.asked == 0


@LAWS
@given(st.lists(TOOL_TURNS, max_size=10))
def test_state_aware_says_that_a_turn_helps_while_budget_is_left_and_that_asking_never_does(moves: list[Move]) -> None:
    condition = opened("SR-5-STATE-AWARE")
    assert isinstance(condition, StateAware)
    for move in moves:
        assert condition.exposure.can_turn == (condition.budget.left > 0)
        assert not condition.exposure.can_ask
        shown = condition.exposure
        assert condition.ask() is shown
        move.make(condition)


def test_a_budget_of_none_means_that_no_turn_can_help() -> None:
    assert not opened("SR-5-STATE-AWARE", rules=RULES.model_copy(update={"refresh_budget": 0})).exposure.can_turn


def test_progressive_cannot_widen_beyond_a_short_ranking() -> None:
    retriever = Listed(catalog=CATALOGS[SMALL])
    condition = make_condition("SR-PROGRESSIVE-STATIC", retriever, CATALOGS[SMALL], RULES)
    assert len(condition.open(QUERY).routes) == 5
    assert len(condition.ask().routes) == 10
    last = condition.ask()
    assert len(last.routes) == SMALL and not last.can_ask and not last.can_turn
    assert condition.ask() is last


def test_a_ranking_that_found_nothing_shows_nothing_and_cannot_widen() -> None:
    class Mute:
        def rank(self, query: str, *, k: int) -> object:
            return RANDOM.rank(query, k=0)

    for name in SR:
        condition = make_condition(name, Mute(), CATALOG, RULES)  # type: ignore[arg-type]
        assert condition.open(QUERY).routes == () and not condition.exposure.can_ask


def test_the_opening_ranking_is_as_deep_as_any_arm_can_come_to_expose() -> None:
    assert RULES.ranking_depth == 30 <= LARGE
    for name in SR:
        ranking = opened(name).exposure.ranking
        assert ranking is not None and len(ranking.ids) == 30


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_a_condition_without_an_episode_refuses_with_the_remedy(name: str) -> None:
    condition = make_condition(name, RANDOM, CATALOG, RULES, required_routes=["aux.purge"])
    uses = (lambda: condition.exposure, lambda: condition.state, condition.ask, lambda: condition.observe(CALL, FAILED))
    for use in uses:
        with pytest.raises(ConditionError, match=r"call open\(query\) first"):
            use()


def test_opening_again_begins_anew() -> None:
    condition = opened("SR-5-STATE-AWARE")
    first = condition.exposure
    Move("ran", "shop.find_order").make(condition)
    assert condition.open(QUERY) == first and condition.state.last_execution_status == "not_run"
    assert isinstance(condition, StateAware) and condition.budget.left == 5


def test_an_unknown_condition_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean 'SR-5-STATIC'"):
        make_condition("SR-5-STATICS", RANDOM, CATALOG, RULES)


def test_oracle_without_required_routes_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"ORACLE shows .* pass required_routes"):
        make_condition("ORACLE", RANDOM, CATALOG, RULES)


TOOLS = from_openai_tools([{"name": name, "description": name} for name in ("get_order", "ls", "crm__getUser")])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("get_order", "tools.get_order"),
        ("ls", "tools.ls"),
        ("tools__get_order", "tools.get_order"),
        ("crm__getUser", "crm.get_user"),
        ("get_user", "crm.get_user"),
        ("get_oder", "tools.get_order"),
    ],
)
def test_a_plain_tool_name_that_ran_is_refused_with_the_route_that_is_meant(given: str, meant: str) -> None:
    condition = make_condition("SR-5-STATE-AWARE", Random(entries_of(TOOLS), seed=1), TOOLS, RULES)
    shown = condition.open(QUERY)
    with pytest.raises(ConditionError, match=f"{given!r} is not registered.* Did you mean {meant!r}") as caught:
        condition.observe(Call(given, {}), Observation("ran", {}))
    assert "exposure.routes" in str(caught.value) and "route_of" in str(caught.value)
    assert condition.exposure is shown and condition.state.last_execution_status == "not_run"
    condition.observe(Call(meant, {}), Observation("ran", {}))
    assert condition.state.executed_registered_route_ids == (meant,)


def test_what_is_no_route_id_at_all_is_refused_in_words() -> None:
    with pytest.raises(ConditionError, match="'5' is not registered"):
        opened("SR-5-STATIC").observe(Call(5, {}), Observation("ran", {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", ["error", "blocked"])
def test_a_failed_call_of_an_unregistered_route_stays_lawful(outcome: Literal["error", "blocked"]) -> None:
    condition = opened("SR-5-STATE-AWARE")
    condition.observe(Call("get_order", {}), Observation(outcome, {"status": outcome, "error": "unknown_tool: x"}))
    assert condition.state.last_error_class == "unknown_tool"
    assert condition.state.executed_registered_route_ids == ()


def test_a_condition_without_rules_takes_the_numbers_of_the_preregistration() -> None:
    condition = make_condition("SR-PROGRESSIVE-STATIC", RANDOM, CATALOG)
    assert (condition.rules.top_k, condition.rules.progressive_stages, condition.rules.refresh_budget) == (
        5,
        (5, 10, 20),
        5,
    )


def test_a_condition_works_in_somebody_elses_loop() -> None:
    condition = make_condition(
        "SR-5-STATE-AWARE", Following(first=["shop.find_order"], then={1: ["shop.ship_order"]}), CATALOG
    )
    condition.open("find the lamp and send it")
    assert "shop.find_order" in condition.exposure.routes and "shop.ship_order" not in condition.exposure.routes
    condition.observe(Call("shop.find_order", {}), Observation("ran", {"order_id": "ord-1"}))
    assert "shop.ship_order" in condition.exposure.routes
    assert condition.state.stable_observed_identifiers == ("ord-1",)


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        (["orders.find"], "returned list, not a Ranking"),
        (Ranking((("nowhere.at_all", 1.0),)), "'nowhere.at_all', which is not in the catalog"),
        (
            Ranking(tuple((route, 1.0) for route in (*CATALOG.route_ids[:2], CATALOG.route_ids[0]))),
            "3 ids, 2 different ones",
        ),
        (Ranking(tuple((route, 1.0) for route in CATALOG.route_ids)), rf"{len(CATALOG)} ids, .* where k is"),
    ],
)
def test_what_is_no_ranking_of_the_catalog_is_refused(ranking: object, message: str) -> None:
    class Odd:
        def rank(self, query: str, *, k: int) -> Ranking:
            return ranking  # type: ignore[return-value]

    rules = RULES.model_copy(update={"progressive_stages": (2, 3), "top_k": 2})
    with pytest.raises(ConditionError, match=message):
        make_condition("SR-5-STATIC", Odd(), CATALOG, rules).open("q")


def test_a_condition_takes_a_retriever_and_a_catalog_in_this_order() -> None:
    pairs: list[tuple[Any, Any]] = [(CATALOG, Random(entries_of(CATALOG), seed=1)), ("bm25", CATALOG)]
    for given_retriever, given_catalog in pairs:
        with pytest.raises(UsageError, match="takes a retriever and a catalog, in this order"):
            make_condition("SR-5-STATIC", given_retriever, given_catalog)
