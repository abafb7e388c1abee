"""Every feature of the state: where it fires, where it does not, and its value, in a yard computed by hand."""

from __future__ import annotations

import math

import pytest

from schemarouter.retrieval.evidence.flow import GROUPS, PHASES, phase_of
from schemarouter.state import Call, ExecutionState, Observation
from tests.retrieval.evidence.yard import QUERY, YARD, feature, ran

START = ExecutionState.start(QUERY)
FOUND = ran("stock.find")
ALONE = {"stock.weigh", "stock.copy", "stock.scrap", "stock.unlock"}  # What needs an item and nothing else.
NEEDS_NOTHING = {
    "stock.find", "stock.audit", "sites.find", "sites.nearest", "docks.list", "crane.lift", "crane.reach", "units.convert",
    "units.imperial",
}  # fmt: skip
HALF, THIRD = 0.5, 0.333333


def silent(state: ExecutionState, route: str) -> ExecutionState:
    """The state after a route ran well and gave nothing."""
    return state.observe(Call(route, {}), Observation("ran", {}), YARD[route], incomplete=True)


def ones(*routes: str) -> dict[str, float]:
    return dict.fromkeys(routes, 1.0)


def test_the_phase_is_opening_after_success_or_after_failure() -> None:
    failed = ran("stock.find", error="x: y")
    blocked = START.observe(
        Call("stock.find", {}), Observation("blocked", {"status": "blocked", "error": "x"}), YARD["stock.find"], incomplete=True
    )  # fmt: skip
    assert [PHASES[phase_of(state)] for state in (START, FOUND, failed, blocked)] == [
        "opening", "after_success", "after_failure", "after_failure"
    ]  # fmt: skip


def test_relevance_is_the_logarithm_of_odds_with_a_floor() -> None:
    values = feature("relevance", START, stock_move=-3.0, crane_lift=0.0)
    assert (values["stock.move"], values["stock.find"], "crane.lift" in values) == (-3.0, -10.0, False)


def test_effects_are_those_of_the_contracts() -> None:
    writes = {"copy", "move", "scrap", "unlock"}
    others = ("sites.place", "sites.unlock", "docks.leave", "crane.lift")
    assert feature("writes", START) == ones(*(f"stock.{name}" for name in writes), *others)
    assert feature("destroys", START) == ones("stock.scrap")


# --- needs ------------------------------------------------------------------------------------------------------------


def test_entries_are_distinguished_by_how_many_identifiers_they_lack() -> None:
    assert feature("ready", START) == ones(*NEEDS_NOTHING)
    assert feature("one_missing", START) == ones(*ALONE, "sites.unlock", "docks.leave")
    assert feature("more_missing", START) == ones("stock.move", "sites.place")
    assert feature("ready", FOUND) == ones(*NEEDS_NOTHING, *ALONE)
    assert feature("more_missing", FOUND) == ones("stock.move")
    assert feature("one_missing", FOUND) == ones("sites.place", "sites.unlock", "docks.leave")


def test_two_identifiers_of_a_kind_need_two_that_gave_one() -> None:
    assert "stock.move" in feature("one_missing", ran("stock.find", "sites.find"))
    assert "stock.move" in feature("ready", ran("stock.find", "sites.find", "sites.nearest"))


def test_what_was_seen_is_there_once_though_nobody_in_the_catalog_gave_it() -> None:
    foreign = YARD["sites.find"].model_copy(update={"provider": "elsewhere"})
    state = START.observe(Call(foreign.route_id, {}), Observation("ran", {"site": "S-1"}), foreign, incomplete=True)
    assert "sites.unlock" in feature("ready", state)
    assert "stock.move" in feature("more_missing", state)


def test_a_name_that_ends_in_another_is_met_by_it() -> None:
    assert "docks.leave" in feature("ready", ran("docks.list"))


def test_what_lacks_something_counts_where_the_request_names_no_identifier() -> None:
    lacking = {route.route_id for route in YARD.capabilities} - NEEDS_NOTHING
    assert feature("missing_unnamed", START) == ones(*lacking)
    assert feature("missing_unnamed", ExecutionState.start("Weigh XY/77-b")) == {}


def test_an_identifier_in_the_request_that_looks_like_an_example_is_one_that_is_there() -> None:
    named = ExecutionState.start("Weigh ITM-205")
    assert set(feature("ready", named)) == {*NEEDS_NOTHING, *ALONE}
    assert set(feature("ready", ExecutionState.start("Weigh XY/77-b"))) == NEEDS_NOTHING


# --- supply -----------------------------------------------------------------------------------------------------------


def test_who_gives_what_a_likely_entry_lacks_is_as_likely_as_that_entry() -> None:
    assert feature("gives_missing", START) == {}
    assert feature("gives_missing", START, stock_weigh=0.0) == ones("stock.find")
    assert feature("gives_missing", START, stock_weigh=-1.0, stock_scrap=-2.0) == {"stock.find": round(math.exp(-1), 6)}
    assert feature("gives_missing", START, stock_move=0.0) == ones("stock.find", "sites.find", "sites.nearest")
    assert feature("gives_missing", START, docks_leave=0.0) == {"docks.list": 0.8}
    assert feature("gives_missing", START, crane_lift=0.0) == {}


def test_a_copy_gives_what_it_lacks_itself_to_nobody() -> None:
    assert "stock.copy" not in feature("gives_missing", START, stock_weigh=0.0)


def test_what_is_there_is_not_wanted_and_who_has_given_gives_no_more() -> None:
    assert feature("gives_missing", FOUND, stock_weigh=0.0) == {}
    state = ran("stock.find", "sites.find")
    assert feature("gives_missing", state, stock_move=0.0) == ones("sites.nearest")


def test_what_has_run_wants_nothing_and_what_failed_wants_all_it_lacks() -> None:
    assert feature("gives_missing", ran("sites.place"), sites_place=0.0) == {}
    assert feature("gives_missing", ran("sites.unlock", error="x: y")) == ones("sites.find", "sites.nearest")
    assert feature("gives_missing", ran("stock.copy", error="x: y")) == ones("stock.find")


def test_supply_of_the_same_provider_is_distinguished() -> None:
    assert feature("gives_missing_here", START, stock_move=0.0) == ones("stock.find")
    assert feature("gives_missing_here", START, sites_place=-1.0) == dict.fromkeys(
        ("sites.find", "sites.nearest"), round(math.exp(-1), 6)
    )
    assert feature("gives_missing_here", START, docks_leave=0.0) == {"docks.list": 0.8}


def test_the_logarithm_of_supply_starts_at_a_hundredth() -> None:
    values = feature("gives_missing_log", START, stock_weigh=math.log(0.03))
    assert values == {"stock.find": round(math.log(4), 6)}


def test_supply_counts_in_full_where_the_request_names_its_provider() -> None:
    state = ExecutionState.start("stock")
    assert {*feature("gives_missing", state, stock_move=-1.0)} == {"stock.find", "sites.find", "sites.nearest"}
    values = feature("gives_missing_fitting", state, stock_move=-1.0)
    assert values.pop("stock.find") == round(math.exp(-1), 6)
    # The names of others' fields hold the word too.
    assert max(values.values()) < 0.1 * math.exp(-1)
    assert feature("gives_missing_fitting", START, stock_move=-1.0) == {}


# --- flow -------------------------------------------------------------------------------------------------------------


def test_who_is_ready_and_takes_what_was_observed() -> None:
    assert feature("takes_observed", START) == {}
    assert feature("takes_observed", FOUND) == ones(*ALONE)
    assert feature("takes_observed", ran("stock.find", "sites.find")) == ones(*ALONE, "sites.place", "sites.unlock")


def test_who_takes_what_came_last() -> None:
    assert feature("takes_latest", ran("sites.find", "stock.find")) == ones(*ALONE, "sites.place")
    assert feature("takes_latest", ran("stock.find", "sites.find")) == ones("sites.place", "sites.unlock")
    assert feature("takes_latest", ran("stock.find", "stock.audit")) == {}
    assert feature("takes_latest", ran("stock.find", "sites.nearest", "sites.find", error="x: y")) == {}


def test_who_takes_what_nobody_has_taken_yet() -> None:
    assert feature("takes_unused", FOUND) == ones(*ALONE)
    assert feature("takes_unused", ran("stock.find", "stock.weigh")) == {}
    assert feature("takes_unused", ran("stock.find", "stock.weigh", error="x: y")) == {}
    assert feature("takes_unused", ran("stock.find", "stock.weigh", "sites.find")) == ones(
        "sites.place", "sites.unlock"
    )
    values = feature("takes_unused_relevant", FOUND, stock_weigh=-1.0, stock_find=0.0)
    assert values == {"stock.weigh": round(math.exp(-0.5), 6)}


def test_the_share_of_what_nobody_has_taken_yet() -> None:
    assert feature("unused_share", FOUND) == ones(*ALONE)
    assert feature("unused_share", ran("stock.find", "sites.find")) == {
        **dict.fromkeys(ALONE, HALF), "sites.unlock": HALF, "sites.place": 1.0
    }  # fmt: skip
    assert feature("unused_share", ran("stock.audit")) == {}


def test_the_share_of_required_fields_that_were_observed_by_name() -> None:
    assert feature("fields_observed", FOUND) == {**ones(*ALONE), "sites.place": HALF, "stock.move": THIRD}
    assert feature("fields_observed", ran("stock.weigh")) == dict.fromkeys(("units.convert", "units.imperial"), HALF)
    assert feature("fields_observed", ran("stock.audit")) == {}


def test_providers_that_were_visited_and_the_one_visited_last() -> None:
    stock = {route.route_id for route in YARD.capabilities if route.provider == "stock"}
    sites = {route.route_id for route in YARD.capabilities if route.provider == "sites"}
    assert feature("same_provider", FOUND) == feature("latest_provider", FOUND) == ones(*stock)
    for error in ("", "x: y"):
        both = ran("stock.find", "sites.find", error=error)
        assert feature("same_provider", both) == ones(*stock, *sites)
        assert feature("latest_provider", both) == ones(*sites)


def test_who_takes_the_quantity_that_came_last_in_its_unit() -> None:
    assert feature("quantity_of_latest", FOUND) == {}
    weighed = ran("stock.find", "stock.weigh")
    assert feature("quantity_of_latest", weighed) == ones("units.convert")
    assert feature("quantity_of_latest", ran("units.convert")) == ones("crane.lift")
    values = feature("quantity_of_latest_relevant", weighed, units_convert=-1.0, crane_lift=0.0)
    assert values == {"units.convert": round(math.exp(-0.5), 6)}


def test_the_share_of_the_meanings_taken_that_came_last() -> None:
    assert feature("meaning_of_latest", FOUND) == {**ones(*ALONE), "sites.place": HALF, "stock.move": HALF}
    assert feature("meaning_of_latest", ran("sites.find")) == {
        "sites.place": HALF,
        "sites.unlock": 1.0,
        "stock.move": HALF,
    }
    assert feature("meaning_of_latest", ran("stock.weigh")) == dict.fromkeys(("units.convert", "units.imperial"), HALF)


# --- conversion -------------------------------------------------------------------------------------------------------


def test_a_unit_that_was_not_observed_is_unmet_where_its_dimension_was() -> None:
    assert feature("unit_unmet", FOUND) == {}
    assert feature("unit_unmet", ran("stock.weigh")) == ones("crane.lift")
    assert feature("unit_unmet", ran("stock.weigh", "units.convert")) == {}
    assert feature("unit_unmet", ran("stock.weigh", "crane.lift")) == {}


def test_who_converts_from_an_observed_unit_is_as_likely_as_the_root_of_who_asks() -> None:
    weighed, wanted = ran("stock.weigh"), {"crane_lift": -1.0}
    root = {"units.convert": round(math.exp(-0.5), 6)}
    assert feature("converts", weighed, **wanted) == feature("converts_latest", weighed, **wanted) == root
    assert feature("converts", FOUND, **wanted) == {}
    assert feature("converts", weighed, units_convert=0.0) == {}
    assert feature("converts", ran("stock.weigh", "units.convert"), **wanted) == {}
    assert feature("converts", silent(weighed, "units.convert"), **wanted) == {}


def test_it_converts_the_latest_only_where_the_latest_is_of_that_dimension() -> None:
    later = ran("stock.weigh", "stock.audit")
    assert feature("converts", later, crane_lift=0.0) == ones("units.convert")
    assert feature("converts_latest", later, crane_lift=0.0) == {}


# --- history and errors -----------------------------------------------------------------------------------------------


def test_what_has_run_is_finished_as_far_as_it_is_likely() -> None:
    assert feature("finished", START) == {}
    assert feature("finished", ran("stock.find", "stock.weigh")) == ones("stock.find", "stock.weigh")
    assert feature("finished", ran("stock.find", "stock.weigh", error="x: y")) == ones("stock.find")
    assert feature("finished", silent(FOUND, "stock.weigh")) == ones("stock.find", "stock.weigh")
    values = feature("finished_relevant", FOUND, stock_find=-1.0, stock_weigh=0.0)
    assert values == {"stock.find": round(math.exp(-1), 6)}


@pytest.mark.parametrize(
    ("error", "kind"), [("service_busy: later", "retry"), ("record_locked: by somebody", "failed")]
)
def test_what_failed_is_to_be_tried_again_or_not_by_its_error(error: str, kind: str) -> None:
    state = ran("stock.find", "stock.move", error=error)
    values = {name: feature(name, state) for name in ("retry", "failed", "resumed")}
    assert values == {"retry": {}, "failed": {}, "resumed": {}, kind: ones("stock.move")}


def test_what_failed_is_resumed_once_something_else_went_well() -> None:
    state = ran("stock.find", "stock.move", error="record_locked: by somebody")
    action = YARD["sites.unlock"]
    corrected = state.observe(Call(action.route_id, {}), Observation("ran", {"keeper": "x"}), action, incomplete=True)
    assert feature("resumed", corrected) == ones("stock.move")
    assert feature("failed", corrected) == feature("retry", corrected) == feature("error_words", corrected) == {}


LOCKED = ran("stock.find", "stock.move", error="record_locked: by somebody")


def test_the_words_of_an_error_and_of_its_corrective_action_bring_entries_up() -> None:
    error, action = feature("error_words", LOCKED), feature("cure_words_here", LOCKED)
    assert set(error) == {"stock.audit", "stock.unlock", "sites.unlock"}
    assert max(error.values()) == 1.0 and min(error.values()) > 0
    assert action == ones("stock.unlock")
    # Both are asked for: the root of their product.
    both = round(math.sqrt(error["stock.unlock"]), 6)
    assert feature("cure_words", LOCKED) == dict.fromkeys(("stock.unlock", "sites.unlock"), both)
    assert feature("error_words_here", LOCKED) == {route: error[route] for route in ("stock.audit", "stock.unlock")}


def test_the_words_of_an_error_say_nothing_of_what_has_run_or_of_one_that_passes() -> None:
    audited = ran("stock.audit", "stock.unlock", error="record_locked: by somebody")
    assert set(feature("error_words", audited)) == {"sites.unlock"}
    for name in GROUPS["error"][3:]:
        assert feature(name, ran("stock.find", "stock.move", error="service_busy: record")) == {}


def test_who_is_ready_and_needs_a_kind_of_identifier_that_the_failed_one_needs() -> None:
    assert feature("shares_identifier", LOCKED) == ones(*ALONE)
    sited = ran("stock.find", "sites.find", "sites.unlock", error="record_locked: by somebody")
    assert feature("shares_identifier", sited) == ones("sites.place")
    assert feature("shares_identifier", ran("stock.audit", error="record_locked: x")) == {}
