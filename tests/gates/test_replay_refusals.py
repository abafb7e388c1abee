"""Records of what cannot have happened, one by one: refused with location, event and reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conditions.base import Exposure
from conditions.state_aware import StateAware
from gates.replay import Replay
from schemarouter.errors import InvalidRunError
from schemarouter.records import (
    Decided,
    Ended,
    EpisodeRecord,
    Exposed,
    ModelTurn,
    Observed,
    StateChanged,
)
from schemarouter.state import Call, Observation
from tests.gates.test_replay import (
    AWARE,
    BLOCKED,
    FIND,
    FIND_IT,
    FRUITLESS,
    FULL,
    LIFT,
    LOCATION,
    ORACLE,
    PROTOCOL,
    SHIP,
    SHIP_IT,
    STATIC,
    WIDENED,
    edited,
    refused,
    replay,
)
from tests.toys import (
    CATALOG,
    CHAIN,
    COUNTER,
    RULES,
    SR,
    Broken,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
    position,
    with_events,
)


def test_a_thirteenth_model_turn_is_refused() -> None:
    record = make_episode("FULL", agent=Scripted([FIND_IT] * 20), turns=13).run()
    refused(record, "model turn 13 where 13 comes next (at most 12)")


def test_an_exposure_that_changes_twice_in_a_turn_is_refused() -> None:
    at = position(WIDENED, Exposed, last=True)
    refused(with_events(WIDENED, [*WIDENED.events[: at + 1], *WIDENED.events[at:]]), "changed twice in one turn")


def test_an_unregistered_route_that_is_said_to_have_run_is_refused_with_its_location() -> None:
    record = make_episode("FULL", agent=Scripted([call("ghost.route")]), policy=Broken()).run()
    refused(edited(record, Observed, outcome="ran", payload={}), "ghost.route")


def test_a_call_that_was_allowed_and_is_said_to_have_been_blocked_is_refused() -> None:
    # Else a destructive run could hide: what was blocked has not run.
    record = make_episode("FULL", agent=Scripted([call("aux.purge")]), policy=Broken()).run()
    events = [event for event in record.events if not isinstance(event, StateChanged)]
    refused(edited(with_events(record, events), Observed, outcome="blocked"), "blocked")


def test_a_call_whose_model_turn_was_taken_out_is_refused() -> None:
    # Else the tokens of that turn are gone.
    at = position(FULL, ModelTurn, last=True)
    refused(with_events(FULL, [*FULL.events[:at], *FULL.events[at + 1 :]]), "model turn")


def test_a_model_turn_after_the_task_was_completed_is_refused() -> None:
    # Else a condition could be charged for prompts that nobody sent.
    refused(prompted_again(FULL, 4), "model turn after the task was completed")


def prompted_again(record: EpisodeRecord, turn: int) -> EpisodeRecord:
    """The record with one more prompt before its end, of as many tokens as that prompt would have had."""
    *events, end = record.events
    with pytest.raises(InvalidRunError) as caught:
        replay(with_events(record, [*events, ModelTurn(turn, 1, 1), end]))
    numbers = str(caught.value).partition("where ")[2].split(" are counted")[0]
    schema, total = (int(part) for part in numbers.split(" and "))
    return with_events(record, [*events, ModelTurn(turn, total, schema), replace(end, turn=turn)])


def test_a_progressive_condition_that_widened_after_a_turn_that_ran_is_refused() -> None:
    def widen(before: object, failed: bool) -> Exposure:
        return episode.condition.ask()

    episode = make_episode(SR[1], retriever=Listed([FIND, SHIP]), agent=Scripted([FIND_IT, SHIP_IT]))
    episode.condition._after_turn = widen  # type: ignore[method-assign]
    refused(episode.run(), "widened though no turn failed")


def test_a_state_aware_condition_that_refreshed_though_the_state_stayed_the_same_is_refused() -> None:
    episode = make_episode(
        SR[2], agent=Scripted([FIND_IT, FIND_IT]), retriever=Following([FIND], then={1: [FIND, SHIP]})
    )
    condition = episode.condition

    assert isinstance(condition, StateAware)

    def refresh(before: object, failed: bool) -> Exposure:
        condition.budget = condition.budget.spend()
        return condition._of(condition.retriever.rank(condition.state.retrieval_query(), k=RULES.top_k), "refresh")

    condition._after_turn = refresh  # type: ignore[method-assign]
    refused(episode.run(), "a refresh though the turn left the state as it was")


def test_a_model_turn_after_two_asks_in_vain_is_refused() -> None:
    refused(prompted_again(FRUITLESS, 3), "asked twice with nothing changed")


def test_a_second_prompt_without_an_answer_to_the_first_is_refused() -> None:
    refused(prompted_again(BLOCKED, 3), "before the previous one was over")


@pytest.mark.parametrize(
    "record", [FULL, STATIC, WIDENED, AWARE, ORACLE, FRUITLESS, BLOCKED], ids=lambda r: r.condition
)
def test_no_event_but_a_decision_can_be_left_out_doubled_or_moved(record: EpisodeRecord) -> None:
    # A decision that is missing or late is measured: the call then ran without being allowed.
    events = record.events
    for at in (n for n, event in enumerate(events) if not isinstance(event, Decided)):
        without = [*events[:at], *events[at + 1 :]]
        moved = [[*without[:to], events[at], *without[to:]] for to in range(len(events)) if to != at]
        for changed in (without, [*events[:at], *events[at : at + 1], *events[at:]], *moved):
            # Beside a decision only the decision has moved.
            if [e for e in changed if not isinstance(e, Decided)] != [e for e in events if not isinstance(e, Decided)]:
                refused(with_events(record, changed), "")


def test_a_record_of_another_catalog_is_refused() -> None:
    for record in (FULL, STATIC, WIDENED, AWARE):
        refused(replace(record, catalog=12), "event 0")


def test_a_call_that_was_let_through_and_never_came_back_counts_as_run() -> None:
    # Else a destructive run could hide behind a failure of the code around it.
    record = make_episode("FULL", agent=Scripted([call("aux.purge")]), policy=Broken()).run()
    index = position(record, Decided)
    failed = with_events(record, [*record.events[: index + 1], Ended(1, "exception", "KeyError: 1", ())])
    [execution] = replay(failed).executions
    assert execution.ran and execution.failed and execution.facts.effect == "destructive"
    [execution] = replay(edited(failed, Decided, allowed=False, error="x")).executions
    assert not execution.ran


def cut_off(record: EpisodeRecord, kept: int, turn: int, steps: tuple[str, ...] = ()) -> EpisodeRecord:
    """The record cut after so many events, and ended by an infrastructure failure in a turn."""
    return with_events(record, [*record.events[:kept], Ended(turn, "infrastructure", "MemoryError: full", steps)])


def test_the_infrastructure_may_fail_before_the_next_prompt_is_counted_and_not_later_or_twice() -> None:
    after_turn, between = position(FULL, StateChanged) + 1, "ends in turn {}, the events in turn {}"
    for turn in (1, 2):
        replay(cut_off(FULL, after_turn, turn, ("find",)))
    refused(cut_off(FULL, after_turn, 3, ("find",)), between.format(3, 1))
    refused(cut_off(FULL, position(FULL, ModelTurn) + 1, 2), between.format(2, 1))
    refused(cut_off(FULL, position(FULL, Decided) + 1, 2), between.format(2, 1))
    refused(cut_off(FULL, after_turn - 1, 2, ("find",)), between.format(2, 1))


@pytest.mark.parametrize(("turns", "accepted"), [(11, True), (12, False)])
def test_no_prompt_can_have_failed_beyond_the_last_turn(turns: int, accepted: bool) -> None:
    record = make_episode("FULL", agent=Scripted([FIND_IT] * turns)).run()
    cut = cut_off(record, position(record, StateChanged, last=True) + 1, turns + 1, ("find",))
    if accepted:
        replay(cut)
    else:
        refused(cut, "ends in turn 13, the events in turn 12")


def test_an_episode_without_a_turn_has_not_run_out_of_turns() -> None:
    replay(cut_off(FULL, 1, 0))
    refused(with_events(FULL, [FULL.events[0], Ended(0, "turn_limit", "", ())]), "'turn_limit' contradicts the events")


def test_a_missing_change_is_refused_whatever_ended_the_episode() -> None:
    refreshed = position(AWARE, Exposed, last=True)
    replay(cut_off(AWARE, refreshed + 1, AWARE.events[refreshed].turn, ("find", "ship")))
    refused(cut_off(AWARE, refreshed, AWARE.events[refreshed].turn, ("find", "ship")), "refresh")
    # Asked for tools, it widens, unless the infrastructure fails before it does.
    widened = position(WIDENED, Exposed, last=True)
    replay(cut_off(WIDENED, widened, 1))
    refused(with_events(WIDENED, [*WIDENED.events[:widened], Ended(1, "agent_stopped", "", ())]), "")


def test_calls_are_run_again_and_not_trusted() -> None:
    ran: list[str] = []
    record = make_episode("FULL").run()
    stored = Replay(record, CHAIN, CATALOG, PROTOCOL, COUNTER, LOCATION)
    execute = stored._environment.execute

    def noted(call: Call) -> Observation:
        ran.append(call.route_id)
        return execute(call)

    stored._environment.execute = noted  # type: ignore[method-assign]
    stored.run()
    assert ran == [FIND, SHIP, LIFT]
