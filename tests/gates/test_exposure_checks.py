"""Exposures: a record whose exposures its condition cannot have made is refused, with location, event and reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gates.replay import Replay
from schemarouter.agents.base import Action
from schemarouter.errors import InvalidRunError
from schemarouter.records import Called, EpisodeRecord, Event, Exposed, ModelTurn, decode, encode
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.random import Random
from surface.task import Task
from tests.toys import (
    CATALOG,
    CATALOGS,
    CHAIN,
    COUNTER,
    CURED,
    RULES,
    SR,
    Broken,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
    toy_protocol,
    with_events,
)

STATIC, PROGRESSIVE, AWARE = SR
LOCATION = "shard, line 2"
FIND, SHIP, LIFT, RENEW = "shop.find_order", "shop.ship_order", "crane.lift", "lease.renew"
W = tuple(f"misc.look_{n:02d}" for n in (4, 9, 14, 19, 24, 29))

ASKED = make_episode(PROGRESSIVE, retriever=Listed([*W[:5], FIND, SHIP, LIFT])).run()
FAILED = make_episode(PROGRESSIVE, CURED, retriever=Listed([FIND, SHIP, *W[:3], RENEW])).run()
REFRESHED = make_episode(
    AWARE, retriever=Following([FIND, *W[:4]], then={1: [SHIP, *W[:4]], 2: [LIFT, *W[:4]]})
).run()  # fmt: skip
SHORT = make_episode(
    AWARE, agent=Scripted([call(FIND, order_name="Blue lamp")]), retriever=Following([FIND], then={1: [SHIP]}), turns=1
).run()  # fmt: skip
FIXED = {name: make_episode(name, agent=Scripted([Action("ask")])).run() for name in ("FULL", "ORACLE", STATIC)}


def replay(record: EpisodeRecord, task: Task = CHAIN) -> None:
    stored = decode(encode(record), LOCATION)
    Replay(stored, task, CATALOGS[record.catalog], toy_protocol(), COUNTER, LOCATION).run()


def refused(record: EpisodeRecord, reason: str, task: Task = CHAIN) -> None:
    with pytest.raises(InvalidRunError) as caught:
        replay(record, task)
    assert str(caught.value).startswith(f"{LOCATION}, {record.episode_id}, event ")
    assert reason in str(caught.value)


def exposures(record: EpisodeRecord) -> list[int]:
    return [n for n, event in enumerate(record.events) if isinstance(event, Exposed)]


def shown_as(record: EpisodeRecord, number: int, **change: Any) -> EpisodeRecord:
    """The record with one exposure changed, and the tokens of the prompts that showed it counted anew."""
    events: list[Event] = list(record.events)
    at = exposures(record)[number]
    exposed = replace(events[at], **change)
    events[at] = exposed
    assert isinstance(exposed, Exposed)
    for index, event in enumerate(events[at:], at):
        if isinstance(event, Exposed) and index > at:
            break
        if isinstance(event, ModelTurn):
            schema = COUNTER.tools(CATALOG, exposed.routes)
            events[index] = replace(
                event, schema_tokens=schema, input_tokens=event.input_tokens - event.schema_tokens + schema
            )
    return with_events(record, events)


def opened(record: EpisodeRecord, number: int = 0) -> Exposed:
    event = record.events[exposures(record)[number]]
    assert isinstance(event, Exposed)
    return event


def test_the_records_that_are_forged_here_are_sound() -> None:
    for record, task in ((ASKED, CHAIN), (FAILED, CURED), (REFRESHED, CHAIN), (SHORT, CHAIN)):
        replay(record, task)
        replay(shown_as(record, 0), task)
        assert len(exposures(record)) > 1
    for record in FIXED.values():
        replay(record)


# --- a route too many, a tool too few ---------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [ASKED, REFRESHED, FIXED[STATIC]], ids=lambda record: record.condition)
@pytest.mark.parametrize(
    "change",
    [lambda first: (*first, LIFT), lambda first: first[:4], lambda first: first[::-1], lambda first: ()],
    ids=["one-more", "one-less", "other-order", "none"],
)
def test_other_routes_than_the_best_of_the_ranking_are_refused(
    record: EpisodeRecord, change: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> None:
    refused(shown_as(record, 0, routes=change(opened(record).routes)), "not the first 5 of the ranking")


@pytest.mark.parametrize("name", ["FULL", "ORACLE"])
def test_a_fixed_condition_that_shows_one_route_less_or_more_is_refused(name: str) -> None:
    routes = opened(FIXED[name]).routes
    refused(shown_as(FIXED[name], 0, routes=routes[1:]), f"{name} shows something other")
    refused(shown_as(FIXED["ORACLE"], 0, routes=tuple(sorted({*routes, *W}))), "ORACLE shows something other")


def test_a_ranking_deeper_than_asked_for_or_with_a_route_twice_is_refused() -> None:
    ranking = opened(REFRESHED, 1).ranking
    refused(shown_as(REFRESHED, 1, ranking=(*ranking, LIFT)), "a ranking of 6 routes where 'refresh' asks for 5")
    first = opened(REFRESHED).ranking
    longer = (*first, *(route for route in CATALOG.route_ids if route not in first))
    refused(shown_as(REFRESHED, 0, ranking=longer), "a ranking of 36 routes where 'open' asks for 30")
    refused(shown_as(REFRESHED, 0, ranking=(*first[:-1], first[0])), "the ranking holds a route twice")


# --- changes that were not expected, and expected changes that are missing --------------------------------------------


def without(record: EpisodeRecord, number: int) -> EpisodeRecord:
    """The record without one exposure, the prompts after it counted with what was shown before."""
    index = exposures(record)[number]
    left_out = with_events(record, [*record.events[:index], *record.events[index + 1 :]])
    return shown_as(left_out, number - 1)


def test_a_widening_that_was_left_out_is_refused() -> None:
    missing_change = "SR-PROGRESSIVE-STATIC changes its exposure here by 'widen', and that change is missing"
    refused(without(ASKED, 1), missing_change)
    refused(without(FAILED, 1), missing_change, CURED)


def test_a_refresh_that_was_left_out_is_refused_also_where_the_episode_ends() -> None:
    # Else a condition could keep the ranking that recall is judged on.
    missing_change = "SR-5-STATE-AWARE changes its exposure here by 'refresh', and that change is missing"
    refused(without(REFRESHED, 1), missing_change)
    refused(without(SHORT, 1), missing_change)


def test_a_change_in_the_middle_of_a_turn_is_refused() -> None:
    for record, task, reason in ((FAILED, CURED, "widened though"), (REFRESHED, CHAIN, "a refresh though")):
        index = exposures(record)[1]
        called = max(n for n, event in enumerate(record.events[:index]) if isinstance(event, Called))
        events = [event for n, event in enumerate(record.events) if n != index]
        refused(with_events(record, [*events[: called + 1], record.events[index], *events[called + 1 :]]), reason, task)


def test_a_refresh_after_the_task_was_completed_is_refused() -> None:
    refresh = replace(opened(REFRESHED, 2), turn=3)
    refused(with_events(REFRESHED, [*REFRESHED.events[:-1], refresh, REFRESHED.events[-1]]), "or the task complete")


def test_a_refresh_after_an_ask_is_refused() -> None:
    record = make_episode(AWARE, agent=Scripted([Action("ask")]), retriever=Listed([FIND])).run()
    refresh = replace(opened(record), turn=1, cause="refresh", ranking=opened(record).ranking[:5])
    refused(with_events(record, [*record.events[:3], refresh, *record.events[3:]]), "a refresh though")


@pytest.mark.parametrize("name", FIXED)
def test_a_condition_that_never_changes_and_did_is_refused(name: str) -> None:
    for cause in ("widen", "refresh"):
        again = replace(opened(FIXED[name]), turn=1, cause=cause)
        refused(with_events(FIXED[name], [*FIXED[name].events[:3], again, *FIXED[name].events[3:]]), name)


# --- beyond the budget and the last stage ------------------------------------------------------------------------------


def test_a_sixth_refresh_is_refused() -> None:
    episode = make_episode(
        SR[2], retriever=Random(entries_of(CATALOG), seed=1), agent=Scripted(_looks()), policy=Broken()
    )
    episode.condition.rules = RULES.model_copy(update={"refresh_budget": 6})
    refused(allowed_until_its_last(episode.run()), "6 refreshes where 5 are allowed")


def _looks() -> list[Action]:
    return [call(f"misc.look_{n:02d}") for n in (3, 7, 11, 15, 19, 23, 27)]


def test_a_widening_beyond_the_last_stage_is_refused() -> None:
    episode = make_episode(SR[1], agent=Scripted([Action("ask")] * 3))
    episode.condition.rules = RULES.model_copy(update={"progressive_stages": (5, 10, 20, 30)})
    refused(allowed_until_its_last(episode.run()), "widened beyond its last stage")


def allowed_until_its_last(record: EpisodeRecord) -> EpisodeRecord:
    """The record with nothing to be said against it before its last exposure: depth and flags are the protocol's."""
    events = list(record.events)
    *_, (before, shown), _ = [(n, event) for n, event in enumerate(events) if isinstance(event, Exposed)]
    events[before] = replace(shown, can_ask=False, can_turn=False)
    opening = events[0]
    assert isinstance(opening, Exposed)
    events[0] = replace(opening, ranking=opening.ranking[: RULES.ranking_depth])
    return with_events(record, events)


# --- the flags by which an agent knows whether asking or a tool turn can change the exposure --------------------------


@pytest.mark.parametrize("flag", ["can_ask", "can_turn"])
def test_an_exposure_that_says_wrongly_whether_it_can_change_is_refused(flag: str) -> None:
    # An agent would ask and probe where it is no use, or not where it is.
    for record in (ASKED, REFRESHED, *FIXED.values()):
        for number in range(len(exposures(record))):
            wrong = not getattr(opened(record, number), flag)
            refused(shown_as(record, number, **{flag: wrong}), f"under {record.condition} it is ")
