"""Replay: whatever the loop records is replayed without complaint, and whatever cannot have happened is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import replay as replaying
from gates.measures import measure
from gates.replay import Replay
from gates.timeline import Timeline
from schemarouter.agents.base import Action
from schemarouter.errors import InvalidRunError
from schemarouter.records import (
    Called,
    Decided,
    Ended,
    EpisodeRecord,
    Event,
    Exposed,
    ModelTurn,
    Observed,
    StateChanged,
    decode,
    encode,
)
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.random import Random
from schemarouter.state import Call, Observation
from surface.environment import Environment
from surface.task import Task
from tests.strategies import LAWS
from tests.toys import (
    CATALOG,
    CATALOGS,
    CHAIN,
    COUNTER,
    CURED,
    RULES,
    SR,
    TASKS,
    Broken,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
    make_task,
    position,
    toy_protocol,
    with_events,
)

PROTOCOL = toy_protocol()
LOCATION = "episodes-00001-of-00001.jsonl, line 2"
FIND, SHIP, LIFT = "shop.find_order", "shop.ship_order", "crane.lift"
FIND_IT, SHIP_IT = call(FIND, order_name="Blue lamp"), call(SHIP, order_id="ord-552")


def replay(record: EpisodeRecord, task: Task = CHAIN) -> Timeline:
    """Replay a record as it is read back from disk."""
    stored = decode(encode(record), LOCATION)
    return Replay(stored, task, CATALOGS[record.catalog], PROTOCOL, COUNTER, LOCATION).run()


def refused(record: EpisodeRecord, reason: str) -> None:
    with pytest.raises(InvalidRunError) as caught:
        replay(record)
    assert str(caught.value).startswith(f"{LOCATION}, {record.episode_id}, event ")
    assert reason in str(caught.value)


def edited(record: EpisodeRecord, kind: type, *, last: bool = False, **change: Any) -> EpisodeRecord:
    """The record with the first or last event of a kind changed."""
    index = position(record, kind, last=last)
    events: list[Event] = list(record.events)
    events[index] = replace(events[index], **change)
    return with_events(record, events)


# --- what the loop records --------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, list[Any]] = {
    "order_name": ["Blue lamp", "x.", 7],
    "order_id": ["ord-552", "ord-1"],
    "shipment_id": ["shp-31"],
    "load": [2.5, 2, "heavy"],
    "load_unit": ["kg", "t", "lb"],
    "carrier": ["rail"],
}
ROUTES = st.sampled_from(
    [FIND, SHIP, LIFT, "lease.renew", "shop.cancel_order", "aux.purge", "misc.look_03", "ghost.route"]
)
CALLS = st.builds(
    lambda route, picks: call(route, **{name: values[picks % len(values)] for name, values in _fitting(route, picks)}),
    ROUTES,
    st.integers(0, 5),
)


def _fitting(route: str, picks: int) -> list[tuple[str, list[Any]]]:
    known = CATALOG.get(route)
    names = list(known.parameters_by_name) if known else ["order_id"]
    return [(name, ARGUMENTS[name]) for name in (names[1:] if picks == 5 else names)]


ACTIONS = st.lists(CALLS | st.sampled_from([Action("ask"), FIND_IT, SHIP_IT, ValueError("agent"), None]), max_size=13)


@LAWS
@given(
    st.sampled_from([*SR, "FULL", "ORACLE"]),
    st.sampled_from(TASKS),
    ACTIONS,
    st.booleans(),
    st.integers(0, 99),
    st.sampled_from([12, 36]),
)
def test_any_episode_of_any_agent_under_any_policy_is_replayed_without_complaint(
    condition: str, task: Task, actions: Sequence[Any], broken: bool, seed: int, size: int
) -> None:
    retriever = Random(entries_of(CATALOGS[size]), seed=seed)
    policy = Broken() if broken else None
    episode = make_episode(condition, task, agent=Scripted(actions), policy=policy, retriever=retriever, size=size)
    record = episode.run()
    timeline = replay(record, task)
    assert timeline.steps_completed == tuple(episode.environment.progress.complete)
    assert len(timeline.model_turns) == sum(isinstance(event, ModelTurn) for event in record.events)
    found = measure(record, timeline, task.key, RULES)
    assert 0 <= found.recall_turn_hits <= found.recall_turn_events <= found.tool_calls
    assert found.recall_hits <= found.recall_events and found.recovered <= found.missed
    assert found.executed_in_policy <= found.executed <= found.tool_calls <= found.model_turns <= 12
    if not broken:
        assert found.executed_in_policy == found.executed and found.unauthorised_destructive == 0


@LAWS
@given(st.sampled_from([*SR, "FULL", "ORACLE"]), st.sampled_from(TASKS), ACTIONS, st.integers(0, 99))
def test_a_failed_attempt_is_replayed_as_far_as_it_goes(
    condition: str, task: Task, actions: Sequence[Any], seed: int
) -> None:
    script = Scripted([*(item for item in actions if isinstance(item, Action)), MemoryError("full")])
    record = make_episode(condition, task, agent=script, retriever=Random(entries_of(CATALOG), seed=seed)).run()
    timeline = replay(record, task)
    assert not record.infrastructure or timeline.incomplete


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_call_in_flight_when_the_infrastructure_failed_may_have_run(after: bool) -> None:
    class Exhausted(Environment):
        def execute(self, call: Call) -> Observation:
            if after:
                super().execute(call)
            raise MemoryError

    environment = Exhausted(CHAIN.key, CATALOG, seed_text=CHAIN.prompt.id)
    record = make_episode("FULL", environment=environment).run()
    end = record.events[-1]
    assert isinstance(end, Ended) and end.steps_completed == (("find",) if after else ())
    replay(record)
    refused(edited(record, Ended, last=True, steps_completed=("ship",)), "the events give []")
    refused(edited(record, Ended, last=True, reason="exception", steps_completed=("find",)), "the events give []")
    refused(edited(edited(record, Ended, steps_completed=("find",)), Decided, allowed=False, error="x"), "give []")


def test_the_order_in_which_a_tool_named_its_fields_does_not_get_a_record_refused() -> None:
    # Keys are sorted in a record; a text that ends in a bracket takes other tokens at the end of an object than inside.
    ship = {**CHAIN.key.steps[1].model_dump(), "outputs": {"shipment_id": "shp-31)", "mass": 2.5}}
    task = make_task(1, [CHAIN.key.steps[0].model_dump(), ship, CHAIN.key.steps[2].model_dump()])
    assert replay(make_episode("FULL", task).run(), task).steps_completed == ("find", "ship", "lift")


def test_a_model_turn_view_holds_what_was_exposed_and_next_when_the_model_was_asked() -> None:
    timeline = replay(make_episode("ORACLE", CURED).run(), CURED)
    assert [[step.id for step in view.ready] for view in timeline.model_turns] == [
        ["find"],
        ["ship"],
        ["renew"],
        ["ship"],
    ]
    assert {view.exposed for view in timeline.model_turns} == {frozenset(CURED.key.required_routes)}
    assert (timeline.incomplete, timeline.ready_at_end) == (False, ())


def test_a_decision_counts_only_while_its_call_is_still_waiting_to_run() -> None:
    record = make_episode("FULL", agent=Scripted([FIND_IT])).run()
    assert [item.allowed_before for item in replay(record).executions] == [True]
    at = position(record, Decided)
    events = [event for event in record.events if not isinstance(event, Decided)]
    late = [*events[: at + 1], record.events[at], *events[at + 1 :]]
    assert isinstance(late[at], Observed)
    [execution] = replay(with_events(record, late)).executions
    assert execution.ran and not execution.allowed_before
    [execution] = replay(with_events(record, events)).executions
    assert execution.ran and not execution.allowed_before, "without a decision nothing was allowed"
    [execution] = replay(edited(record, Decided, allowed=False, error="x")).executions
    assert execution.ran and not execution.allowed_before


# --- what cannot have happened ----------------------------------------------------------------------------------------

FULL = make_episode("FULL").run()
STATIC = make_episode(SR[0], retriever=Listed([FIND, SHIP, *CATALOG.route_ids[12:15]])).run()
ORDER = Listed([*CATALOG.route_ids[12:17], FIND])
WIDENED = make_episode(SR[1], retriever=ORDER, agent=Scripted([Action("ask")])).run()
AWARE = make_episode(SR[2], retriever=Following([FIND], then={1: [SHIP], 2: [LIFT]})).run()
ORACLE = make_episode("ORACLE").run()
FRUITLESS = make_episode(SR[0], agent=Scripted([Action("ask")] * 2)).run()
BLOCKED = make_episode("FULL", agent=Scripted([call("aux.purge")])).run()
GHOST = make_episode("FULL", agent=Scripted([call("ghost.route")]), policy=Broken()).run()
LAMP = {"order_id": "ord-552", "note": "fragile"}
NESTED: list[Any] = []
for _ in range(100):
    NESTED = [NESTED]
NOT_AUTHORISED = "not_authorised: aux.purge was not authorised by the user"
OTHER = CATALOG.route_ids[:5]

CHANGED: dict[str, tuple[EpisodeRecord, str]] = {
    "more schema tokens": (edited(FULL, ModelTurn, schema_tokens=3), "3 schema and"),
    "fewer input tokens": (edited(FULL, ModelTurn, last=True, input_tokens=99), "and 99 input tokens where"),
    "another turn number": (edited(FULL, ModelTurn, last=True, turn=4), "model turn 4 where 3 comes next"),
    "another answer": (edited(FULL, Observed, payload={"order_id": "ord-9"}), "the record says {'order_id': 'ord-9'}"),
    "a failure where it ran": (edited(FULL, Observed, outcome="error"), "(ran), the record says"),
    "an outcome that it was blocked": (edited(FULL, Observed, outcome="blocked"), "event "),
    "complete where it was not": (edited(FULL, Observed, incomplete=False), "incomplete is False"),
    "another state": (edited(FULL, StateChanged, sha256="0" * 64), "hash does not follow"),
    "other omissions": (edited(FULL, StateChanged, omitted={"identifiers": 4}), "left out"),
    "another call": (edited(FULL, Called, arguments={"order_name": "Red"}), "answers"),
    "another route": (edited(FULL, Called, route="misc.look_03"), "the decision rests on"),
    "exposed where it was not": (edited(FULL, Decided, exposed=False), "the decision rests on"),
    "authorised where it was not": (edited(FULL, Decided, authorised=True), "the decision rests on"),
    "harmless where it was destructive": (edited(FULL, Decided, effect="write"), "the decision rests on"),
    "other steps at the end": (edited(FULL, Ended, steps_completed=("find",)), "the outcome says steps ['find']"),
    "stalled where it completed": (edited(FULL, Ended, reason="stalled"), "'stalled' contradicts the events"),
    "completed where it stalled": (edited(STATIC, Ended, reason="completed"), "'completed' contradicts the events"),
    "half the catalog": (edited(FULL, Exposed, routes=CATALOG.route_ids[:18]), "something other than the whole catalog"),
    "more than the required routes": (edited(ORACLE, Exposed, routes=OTHER), "something other than the required routes"),
    "a ranking where there is none": (edited(ORACLE, Exposed, ranking=OTHER), "something other than"),
    "other five than the ranking's": (edited(STATIC, Exposed, routes=OTHER), "not the first 5 of the ranking"),
    "routes that are not registered": (edited(STATIC, Exposed, ranking=("ghost.route",)), "not in catalog 36: ghost.route"),
    "an opening that is none": (edited(STATIC, Exposed, cause="refresh"), "where the opening belongs"),
    "another ranking after widening": (
        edited(WIDENED, Exposed, last=True, ranking=CATALOG.route_ids[:30]), "the frozen ranking changed",
    ),
    "a jump to twenty": (
        edited(WIDENED, Exposed, last=True, routes=tuple(sorted(ORDER.order("")[:20]))), "not the first 10",
    ),
    "a refresh that is a widening": (edited(AWARE, Exposed, last=True, cause="widen"), "does not change its exposure"),
    "no end": (with_events(FULL, FULL.events[:-1]), "the record has no end"),
    "nothing": (with_events(FULL, []), "the record has no end"),
    "two ends": (with_events(FULL, [*FULL.events, FULL.events[-1]]), "events follow the end"),
    "a model turn before the opening": (with_events(FULL, FULL.events[1:]), "before anything was exposed"),
    "an observation of nothing": (with_events(FULL, [*FULL.events[:1], FULL.events[4], FULL.events[-1]]), "without a call"),
    "a decision on nothing": (with_events(FULL, [*FULL.events[:1], FULL.events[3], FULL.events[-1]]), "without a call"),
    "a state of nothing": (with_events(FULL, [*FULL.events[:1], FULL.events[5], FULL.events[-1]]), "without an observation"),
    "a call taken out": (with_events(FULL, [*FULL.events[:2], *FULL.events[6:]]), "event "),
    "a number that is a fraction": (edited(FULL, Observed, payload={**LAMP, "match_count": 1.0}), "answers"),
    "a number that is a truth": (edited(FULL, Observed, payload={**LAMP, "match_count": True}), "answers"),
    "a call of another turn": (edited(FULL, Called, turn=2), "an event of turn 2 in turn 1"),
    "an opening in the first turn": (edited(FULL, Exposed, turn=1), "an event of turn 1 in turn 0"),
    "a later end": (edited(FULL, Ended, turn=4), "ends in turn 4, the events in turn 3"),
    "failed where it completed": (edited(FULL, Ended, reason="exception"), "'exception' contradicts the events"),
    "stalled where it stopped": (edited(BLOCKED, Ended, reason="stalled"), "'stalled' contradicts the events"),
    "stopped where it asked in vain": (edited(FRUITLESS, Ended, reason="agent_stopped"), "contradicts the events"),
    "at the limit where it stopped": (edited(BLOCKED, Ended, reason="turn_limit"), "contradicts the events"),
    "an error though it was allowed": (edited(FULL, Decided, error="x"), "lets the call run and gives the error 'x'"),
    "two decisions": (with_events(BLOCKED, [*BLOCKED.events[:4], *BLOCKED.events[3:]]), "second decision on one call"),
    "another refusal": (edited(BLOCKED, Observed, payload={"status": "blocked", "error": "x"}), "policy says 'not_auth"),
    "another reason of refusal": (edited(BLOCKED, Decided, error="busy: x"), f"the policy says '{NOT_AUTHORISED}'"),
    "blocked without a decision": (with_events(BLOCKED, [*BLOCKED.events[:3], *BLOCKED.events[4:]]), "no decision refused it"),
    "a lawful call that was blocked": (
        edited(edited(FULL, Decided, allowed=False, error="x"), Observed, outcome="blocked"), "lets this call run",
    ),
    "an answer of what is not there": (edited(GHOST, Observed, payload={"status": "error"}), "ghost.route answers"),
    "an answer that no record can hold": (edited(FULL, Observed, payload={**LAMP, "match_count": 2**63}), "64 bits"),
    "arguments too deep": (edited(FULL, Called, arguments={"order_name": NESTED}), "nested deeper than 64 levels"),
    "two calls at once": (with_events(FULL, [*FULL.events[:3], FULL.events[2], *FULL.events[3:]]), "outside a model turn"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_remembered_of_true_records_lets_no_altered_one_through(what: str) -> None:
    for record in (FULL, STATIC, WIDENED, AWARE, ORACLE):
        replay(record)
    refused(*CHANGED[what])


@pytest.mark.parametrize("record", [FULL, STATIC, WIDENED, AWARE, ORACLE, BLOCKED, GHOST], ids=lambda it: it.condition)
def test_a_record_gives_the_same_timeline_with_nothing_remembered_and_with_everything(record: EpisodeRecord) -> None:
    for memory in (replaying._STATES, replaying._MESSAGES):
        memory.clear()
    first = replay(record)
    assert replay(record) == first


@pytest.mark.parametrize("name", CHANGED)
def test_a_record_of_what_cannot_have_happened_is_refused_with_location_event_and_reason(name: str) -> None:
    record, reason = CHANGED[name]
    for untouched in (FULL, STATIC, WIDENED, AWARE, ORACLE, FRUITLESS, BLOCKED, GHOST):
        replay(untouched)
    refused(record, reason)
