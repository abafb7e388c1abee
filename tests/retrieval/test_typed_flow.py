"""What the packaged weights make of needs, units, errors and what has run: a depot of eleven endpoints, and the surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from gates.tuning.decision_points import DecisionPoint, all_decision_points
from schemarouter.catalog import Capability, Catalog
from schemarouter.catalog.views import VIEWS, CatalogView, viewed
from schemarouter.retrieval.base import Ranking, entries_of
from schemarouter.retrieval.evidence.flow import INDEX, History
from schemarouter.retrieval.typed import Typed, build_typed
from schemarouter.state import Call, ExecutionState, Observation
from surface.loader import Surface, load_catalogs, load_surface
from tests.toys import CATALOGS, LARGE, SMALL, SURFACE

Field = Mapping[str, Any]
every_view = pytest.mark.parametrize("view", VIEWS)
ITEM = {"name": "item_id", "type": "string", "semantic_id": "item.id"}
SITE = {"name": "location_id", "type": "string", "semantic_id": "location.id"}
ORIGIN = {"name": "origin_location_id", "type": "string", "semantic_id": "location.id"}
NAME = {"name": "name", "type": "string"}
NOTE = {"name": "note", "type": "string"}
MASS = {"name": "mass", "type": "number", "dimension": "mass", "unit": "kg", "semantic_id": "item.mass"}
TONNES = {"name": "load", "type": "number", "dimension": "mass", "unit": "t", "semantic_id": "load.mass"}
MASS_UNIT = {"name": "mass_unit", "type": "string", "enum": ["kg", "g"]}


def endpoint(route: str, about: str, takes: list[Field], gives: list[Field], effect: str = "read") -> Capability:
    provider, _, operation = route.partition(".")
    fields = {"provider": provider, "operation": operation, "description": about, "effect": effect, "outputs": gives}
    return Capability.model_validate({**fields, "parameters": [{"required": True, **item} for item in takes]})


DEPOT = Catalog(
    [
        endpoint("stock.find_item", "Find an item of the depot by its name.", [NAME], [ITEM, NOTE]),
        endpoint("stock.weigh_item", "Weigh an item.", [ITEM], [MASS]),
        endpoint("sites.find_location", "Find a site by its name.", [NAME], [SITE]),
        endpoint("sites.list_holidays", "List the days on which sites are closed.", [NAME], [{**NOTE, "name": "days"}]),
        endpoint(
            "freight.book_pickup",
            "Book the pickup of a consignment.",
            [ORIGIN],
            [{**ITEM, "name": "booking_id", "semantic_id": "booking.id"}],
            "write",
        ),
        endpoint("crane.plan_lift", "Plan the lift of a load.", [TONNES], [{**NOTE, "name": "plan"}]),
        endpoint("units.convert_mass", "Convert a mass to tonnes.", [MASS, MASS_UNIT], [TONNES]),
        endpoint("leases.renew_lease", "Renew the lease of an item.", [ITEM], [{**NOTE, "name": "valid_to"}], "write"),
        endpoint("leases.get_terms", "Read the terms of a lease.", [ITEM], [{**NOTE, "name": "terms"}]),
        endpoint("stock.unlock_record", "Unlock the record of an item.", [ITEM], [{**NOTE, "name": "owner"}], "write"),
        endpoint("stock.move_item", "Move an item to another shelf.", [ITEM], [{**NOTE, "name": "shelf"}], "write"),
    ],
    name="depot",
)


@cache
def depot(view: CatalogView) -> Typed:
    """The retriever as it is shipped, over the depot."""
    return build_typed(entries_of(viewed(DEPOT, view)))


def ran(query: str, *routes: str, error: str = "", view: CatalogView = "full") -> ExecutionState:
    """The state after these routes gave all they register; the last one failed where an error is given."""
    state = ExecutionState.start(query)
    catalog = viewed(DEPOT, view)
    for route in routes:
        item = catalog[route]
        values = {output.name: 2.5 if output.type == "number" else f"{output.name}-1" for output in item.outputs}
        seen = Observation("ran", values)
        if error and route == routes[-1]:
            seen = Observation("error", {"status": "error", "error": error})
        state = state.observe(Call(route, {}), seen, item, incomplete=True)
    return state


def ranked(state: ExecutionState, view: CatalogView = "full") -> Ranking:
    return depot(view).rank(state.retrieval_query(), k=99)


@every_view
def test_a_missing_identifier_brings_its_giver_up(view: CatalogView) -> None:
    query = "Book the pickup of the consignment"
    opening = ranked(ExecutionState.start(query), view)
    givers = {"sites.find_location"}
    assert opening.ids[0] in givers and "freight.book_pickup" in opening.ids[:5]
    others = set(opening.ids) - givers
    assert all(opening.parts["sites.find_location"]["supply"] > opening.parts[entry]["supply"] for entry in others)


@every_view
def test_once_the_identifier_is_there_its_taker_comes_first_and_the_giver_falls(view: CatalogView) -> None:
    query = "Book the pickup of the consignment"
    opening = ranked(ExecutionState.start(query), view)
    later = ranked(ran(query, "sites.find_location", view=view), view)
    assert later.ids[0] == "freight.book_pickup"
    assert later.ids.index("sites.find_location") > opening.ids.index("sites.find_location")
    needs = [ranking.parts["freight.book_pickup"]["needs"] for ranking in (opening, later)]
    assert needs[1] > needs[0]


def test_without_meanings_a_name_that_ends_in_another_is_given_by_it() -> None:
    contracts = depot("names-only").contracts
    giver, taker = contracts.position["sites.find_location"], contracts.position["freight.book_pickup"]
    kind = contracts.kind_index["origin_location_id"]
    assert (giver, kind) in set(zip(contracts.gives.entry.tolist(), contracts.gives.what.tolist(), strict=True))
    assert (taker, kind) in set(zip(contracts.needs.entry.tolist(), contracts.needs.what.tolist(), strict=True))
    query = "Something for the consignment"
    before = ranked(ExecutionState.start(query), "names-only").parts["freight.book_pickup"]["needs"]
    after = ranked(ran(query, "sites.find_location", view="names-only"), "names-only")
    assert after.parts["freight.book_pickup"]["needs"] > before


def test_a_unit_mismatch_brings_the_converter_up() -> None:
    query = "Plan the lift of the blue pump"
    before = ranked(ran(query, "stock.find_item"))
    after = ranked(ran(query, "stock.find_item", "stock.weigh_item"))
    assert after.ids[0] == "units.convert_mass"
    assert after.parts["units.convert_mass"]["conversion"] > before.parts["units.convert_mass"]["conversion"] == 0.0
    assert after.parts["crane.plan_lift"]["conversion"] < 0


def test_once_it_is_converted_the_converter_falls_and_the_taker_comes_first() -> None:
    query = "Plan the lift of the blue pump"
    done = ranked(ran(query, "stock.find_item", "stock.weigh_item", "units.convert_mass"))
    assert done.ids[0] == "crane.plan_lift"
    assert done.parts["crane.plan_lift"]["conversion"] == 0.0
    assert done.parts["units.convert_mass"]["conversion"] == 0.0


@every_view
@pytest.mark.parametrize("error", ["upstream_timeout: slow", "service_busy", "gateway_unavailable: 503"])
def test_a_transient_error_brings_the_same_route_back(view: CatalogView, error: str) -> None:
    state = ran("Move the blue pump", "stock.find_item", "stock.move_item", error=error, view=view)
    assert ranked(state, view).ids[0] == "stock.move_item"


@every_view
@pytest.mark.parametrize(
    ("error", "action"),
    [("lease_expired: renew it", "leases.renew_lease"), ("record_locked: by somebody", "stock.unlock_record")],
)
def test_a_lasting_error_brings_its_corrective_action_up(view: CatalogView, error: str, action: str) -> None:
    query = "Move the blue pump"
    before = ranked(ran(query, "stock.find_item", view=view), view)
    after = ranked(ran(query, "stock.find_item", "stock.move_item", error=error, view=view), view)
    assert after.ids[0] == action
    assert after.parts[action]["error"] > before.parts[action]["error"] == 0.0


@every_view
def test_after_the_corrective_action_the_route_that_failed_comes_back(view: CatalogView) -> None:
    state = ran("Move the blue pump", "stock.find_item", "stock.move_item", error="lease_expired: x", view=view)
    action = viewed(DEPOT, view)["leases.renew_lease"]
    state = state.observe(Call(action.route_id, {}), Observation("ran", {"valid_to": "x"}), action, incomplete=True)
    assert ranked(state, view).ids[0] == "stock.move_item"


@every_view
def test_executed_and_finished_routes_do_not_win_again(view: CatalogView) -> None:
    query = "Find the item named blue pump and weigh it, then move the item"
    for done in (["stock.find_item"], ["stock.find_item", "stock.weigh_item"]):
        found = ranked(ran(query, *done, view=view), view)
        following = "stock.weigh_item" if len(done) == 1 else "stock.move_item"
        ranks = {route: found.ids.index(route) for route in (*done, following)}
        assert ranks[following] < min(ranks[route] for route in done), ranks


def features(state: ExecutionState, *names: str) -> dict[str, set[str]]:
    """By feature, the routes of the depot at which it is not 0, where no route is likely by itself."""
    made = depot("full")
    table = made.features(state.original_query, state, np.full(len(made.ids), -30.0))
    return {name: {made.ids[index] for index in np.flatnonzero(table[:, INDEX[name]] > 1e-3)} for name in names}


def test_a_route_that_failed_is_marked_by_what_its_error_calls_for() -> None:
    kinds = ("finished", "retry", "failed", "resumed")
    done, last = {"stock.find_item"}, {"stock.move_item"}
    busy = ran("Move it", "stock.find_item", "stock.move_item", error="service_busy")
    assert features(busy, *kinds) == {"finished": done, "retry": last, "failed": set(), "resumed": set()}
    locked = ran("Move it", "stock.find_item", "stock.move_item", error="record_locked")
    assert features(locked, *kinds) == {"finished": done, "retry": set(), "failed": last, "resumed": set()}
    item = DEPOT["stock.unlock_record"]
    corrected = locked.observe(Call(item.route_id, {}), Observation("ran", {"owner": "x"}), item, incomplete=True)
    assert features(corrected, *kinds) == {
        "finished": {*done, "stock.unlock_record"}, "retry": set(), "failed": set(), "resumed": last
    }  # fmt: skip


def test_a_route_that_failed_is_wanted_and_so_is_who_gives_what_it_lacks() -> None:
    state = ran("Something", "freight.book_pickup", error="record_locked")
    assert features(state, "gives_missing") == {"gives_missing": {"sites.find_location"}}
    assert features(ran("Something", "leases.get_terms"), "gives_missing") == {"gives_missing": set()}


def later_decision_points(surface: Surface, catalog: Catalog) -> list[DecisionPoint]:
    """The decision points after something has run."""
    return [point for point in all_decision_points(surface, catalog, "full") if point.turn]


def finished(retriever: Typed, point: DecisionPoint) -> set[str]:
    """Routes that have given all their outputs and are not to be called again."""
    history = History.of(point.state, retriever.contracts)
    return {retriever.ids[index] for index in history.finished.nonzero()[0]} - set(point.coming)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_on_the_toy_tasks_what_comes_next_stands_before_all_that_is_finished(size: int) -> None:
    retriever = build_typed(entries_of(CATALOGS[size]))
    for point in later_decision_points(SURFACE, CATALOGS[size]):
        ids = retriever.rank(point.query, k=99).ids
        assert all(ids.index(point.coming[0]) < ids.index(route) for route in finished(retriever, point))


@pytest.mark.slow
def test_on_the_development_surface_a_finished_route_seldom_comes_first() -> None:
    whole, catalog = load_surface("development"), load_catalogs([100])[100]
    found = later_decision_points(whole, catalog)
    retriever = build_typed(entries_of(catalog))
    first = [point for point in found if retriever.rank(point.query, k=1).ids[0] in finished(retriever, point)]
    # A plan may call one route twice for two objects, so the weights do not rule out what has run.
    assert len(first) <= 0.1 * len(found)
