"""Every measure on small episodes whose counts are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gates.measures import BY_NAME, MEASURES, EpisodeCounts, measure
from gates.recall_events import PART
from gates.replay import Replay
from preregistration.protocol import FILES, load_protocol
from schemarouter.agents.base import Action
from schemarouter.records import EpisodeRecord, ModelTurn, decode, encode
from schemarouter.retrieval.base import Ranking, Retriever
from surface.task import Task
from tests.toys import (
    CATALOG,
    CATALOGS,
    CHAIN,
    COUNTER,
    CURED,
    DESTROYS,
    LARGE,
    RETRIED,
    RULES,
    SR,
    Broken,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
    toy_protocol,
)

STATIC, PROGRESSIVE, AWARE = SR
FIND, SHIP, LIFT, RENEW = "shop.find_order", "shop.ship_order", "crane.lift", "lease.renew"
D = tuple(f"misc.look_{n:02d}" for n in range(30))
# Distractors that the reference agent can never probe: they write.
W = (D[4], D[9], D[14], D[19], D[24], D[29])
FIND_IT, SHIP_IT = call(FIND, order_name="Blue lamp"), call(SHIP, order_id="ord-552")


def counts(record: EpisodeRecord, task: Task = CHAIN) -> EpisodeCounts:
    """The counts of a record as it is read back from disk."""
    stored = decode(encode(record), "shard, line 2")
    timeline = Replay(stored, task, CATALOGS[record.catalog], toy_protocol(), COUNTER, "shard, line 2").run()
    return measure(stored, timeline, task.key, RULES)


def measured(condition: str, retriever: Retriever | None = None, task: Task = CHAIN, **options: Any) -> EpisodeCounts:
    return counts(make_episode(condition, task, retriever=retriever, **options).run(), task)


def recall(found: EpisodeCounts) -> tuple[int, int, int, int]:
    return found.recall_hits, found.recall_events, found.recall_turn_hits, found.recall_turn_events


def sets(found: EpisodeCounts) -> tuple[int, int]:
    return found.recall_set_parts, found.recall_sets


def missed(found: EpisodeCounts) -> tuple[int, int]:
    return found.missed, found.recovered


def split(found: EpisodeCounts) -> tuple[int, int, int, int]:
    return found.missed_evident, found.recovered_evident, found.missed_other, found.recovered_other


# --- next-required recall ---------------------------------------------------------------------------------------------


def test_recall_is_judged_after_each_tool_turn_that_leaves_the_task_incomplete() -> None:
    # Three calls; after the first ship is next, after the second lift; after the third nothing is.
    found = measured(STATIC, Listed([FIND, SHIP, LIFT]))
    assert recall(found) == (2, 2, 2, 2) and sets(found) == (2 * PART, 2)
    assert (found.passed, found.model_turns, found.tool_calls, found.retrieval_calls) == (1, 3, 3, 1)


def test_a_task_done_in_one_turn_has_no_recall_event_at_all() -> None:
    found = measured(STATIC, Listed([FIND]), task=make_one_step())
    assert recall(found) == (0, 0, 0, 0) and sets(found) == (0, 0) and found.passed == 1


def make_one_step() -> Task:
    key = CHAIN.key.model_copy(update={"steps": CHAIN.key.steps[:1]})
    return CHAIN.model_copy(update={"key": key})


def test_an_episode_without_tool_turn_is_one_event_that_counts_in_recall_but_not_after_turns() -> None:
    miss = measured(STATIC, Listed(W))
    assert recall(miss) == (0, 1, 0, 0) and sets(miss) == (0, 1)
    hit = measured(STATIC, Listed([FIND]), agent=Scripted([]))
    assert recall(hit) == (1, 1, 0, 0) and sets(hit) == (PART, 1)


def test_widening_does_not_make_a_hit_only_the_first_five_of_the_ranking_count() -> None:
    # find is ranked sixth: after one ask it is shown and called, and then ship, seventh, is next.
    found = measured(PROGRESSIVE, Listed([*W[:5], FIND, SHIP, LIFT]))
    assert recall(found) == (0, 2, 0, 2) and found.passed == 1
    fruitless = measured(PROGRESSIVE, Listed([*D[:25], FIND, SHIP]))
    assert recall(fruitless) == (0, 1, 0, 0) and fruitless.model_turns == 3


def corrective() -> Following:
    """A state-aware episode: find, ship, a probe that is needed since lift is not shown, lift."""
    return Following(
        [FIND, *W[:4]], then={1: [SHIP, *W[:4]], 2: [D[0], *W[1:5]], 3: [LIFT, *W[:4]]},
    )  # fmt: skip


def test_after_a_refresh_the_new_ranking_is_the_one_in_force() -> None:
    # After find: ship shown, hit. After ship: lift not shown, miss. After the probe: lift shown, hit. Then done.
    found = measured(AWARE, corrective())
    assert recall(found) == (2, 3, 2, 3) and found.passed == 1
    assert (found.model_turns, found.tool_calls, found.retrieval_calls) == (4, 4, 4)


def test_the_mean_per_set_of_ready_steps_counts_a_set_once_however_often_it_is_met() -> None:
    # ship: 1 of 1; lift: 1 of 2. Mean per step: (1 + 1/2) / 2.
    assert sets(measured(AWARE, corrective())) == (PART + PART // 2, 2)


def test_a_failed_turn_is_an_event_and_the_corrective_route_is_then_next() -> None:
    # find, ship (fails: lease expired), then renew is next: not in the five, the episode stalls.
    found = measured(STATIC, Listed([FIND, SHIP, *W]), task=CURED)
    assert recall(found) == (1, 2, 1, 2) and sets(found) == (PART, 2)
    assert (found.failed_executions, found.passed, found.steps_completed) == (1, 0, 1)


@pytest.mark.parametrize("condition", ["FULL", "ORACLE"])
def test_full_and_oracle_take_no_part_in_recall_recovery_and_retrieval_calls(condition: str) -> None:
    found = measured(condition)
    assert recall(found) == (0, 0, 0, 0) and missed(found) == (0, 0) and split(found) == (0, 0, 0, 0)
    assert (found.retrieval_calls, found.equal_budget, found.passed) == (0, 0, 1)


# --- initial-miss recovery --------------------------------------------------------------------------------------------


def test_recovery_has_no_denominator_where_nothing_was_missed() -> None:
    found = measured(STATIC, Listed([FIND, SHIP, LIFT]))
    assert missed(found) == (0, 0) and split(found) == (0, 0, 0, 0) and found.equal_budget == 0


def test_every_missed_route_has_to_come_back_while_it_is_next() -> None:
    assert missed(measured(AWARE, corrective())) == (1, 1)
    never_lift = Following([FIND, *W[:4]], then={1: [SHIP, *W[:4]], 2: W[:5]})
    assert missed(measured(AWARE, never_lift)) == (1, 0)
    # lift is shown beside ship, when ship is next, and gone when it is lift's turn.
    too_early = Following([FIND, *W[:4]], then={1: [SHIP, LIFT, *W[:3]], 2: W[:5]})
    assert missed(measured(AWARE, too_early)) == (1, 0)


def test_a_route_that_comes_back_only_after_the_last_model_turn_is_not_recovered() -> None:
    agent = Scripted([FIND_IT, SHIP_IT])
    found = measured(AWARE, Following([FIND, SHIP, *W[:3]], then={1: [SHIP, *W[:4]], 2: [LIFT, *W[:4]]}), agent=agent)
    assert missed(found) == (1, 1), "the agent is asked once more after its last call, and stops"
    limited = measured(
        AWARE, Following([FIND, SHIP, *W[:3]], then={2: [LIFT, *W[:4]], 1: [SHIP, *W[:4]]}), turns=2
    )  # fmt: skip
    assert missed(limited) == (1, 0)


def test_recovery_is_split_into_evident_routes_and_latent_and_corrective_ones() -> None:
    # In the chain, find and lift are evident, ship is latent.
    assert split(measured(AWARE, corrective())) == (1, 1, 1, 1)
    never_lift = Following([FIND, *W[:4]], then={1: [SHIP, *W[:4]], 2: W[:5]})
    assert split(measured(AWARE, never_lift)) == (1, 0, 1, 1)
    only_ship = measured(AWARE, Following([FIND, LIFT, *W[:3]], then={1: W[:5]}))
    assert split(only_ship) == (0, 0, 1, 0) and missed(only_ship) == (1, 0)


def test_a_corrective_route_that_was_missed_counts_with_the_latent_ones() -> None:
    found = measured(PROGRESSIVE, Listed([FIND, SHIP, *W[:3], RENEW]), task=CURED)
    assert missed(found) == (1, 1) and split(found) == (0, 0, 1, 1)
    assert (found.passed, found.failed_executions) == (1, 1)


def test_progressive_recovers_what_an_ask_or_a_failure_brings_into_view() -> None:
    assert missed(measured(PROGRESSIVE, Listed([*W[:5], FIND, SHIP, LIFT]))) == (1, 1)
    deep = [FIND, *W[:4], *D[:3], *D[5:9], SHIP, *D[10:14], *D[15:19]]
    assert missed(measured(PROGRESSIVE, Listed([*deep, LIFT]))) == (1, 0), "lift is ranked beyond the twenty"


@pytest.mark.parametrize(("index", "held"), [(8, 1), (9, 0)])
def test_equal_budget_cuts_the_opening_ranking_at_the_number_of_candidates_exposed(index: int, held: int) -> None:
    # Exposed: find, four writers; ship; a reader, a fifth writer; lift: nine candidates in all.
    order = [FIND, *W[:4], SHIP, *D[10:14]]
    order.insert(index, LIFT)
    found = measured(AWARE, Following(order, then=corrective().then))
    assert found.unique_candidates == 9
    assert (found.missed, found.recovered, found.equal_budget) == (1, 1, held)


# --- costs ------------------------------------------------------------------------------------------------------------


def test_schema_tokens_are_summed_over_model_turns_and_part_of_the_input_tokens() -> None:
    record = make_episode("ORACLE").run()
    found = counts(record)
    schema = COUNTER.tools(CATALOG, sorted([FIND, SHIP, LIFT]))
    assert (found.schema_tokens, found.model_turns) == (3 * schema, 3)
    assert found.input_tokens == sum(event.input_tokens for event in record.events if isinstance(event, ModelTurn))
    assert found.input_tokens > found.schema_tokens


def test_widening_costs_the_tokens_of_what_is_shown_at_each_turn() -> None:
    order = [*W[:5], FIND, SHIP, LIFT]
    five = COUNTER.tools(CATALOG, sorted(order[:5]))
    ten = COUNTER.tools(CATALOG, sorted(Listed(order).order("")[:10]))
    assert measured(PROGRESSIVE, Listed(order)).schema_tokens == five + 3 * ten


def test_unique_candidates_are_counted_once_over_all_exposures() -> None:
    assert measured(STATIC, Listed(W)).unique_candidates == 5
    assert measured(PROGRESSIVE, Listed([*W, *D, FIND])).unique_candidates == 20
    assert measured("FULL").unique_candidates == LARGE and measured("ORACLE").unique_candidates == 3


def test_asks_are_model_turns_and_no_tool_calls() -> None:
    found = measured(PROGRESSIVE, Listed([*W, *D, FIND]))
    assert (found.model_turns, found.tool_calls, found.retrieval_calls) == (3, 0, 1)


def test_scheduled_failures_are_failed_executions_and_refusals_are_not_executions() -> None:
    assert measured("FULL", task=RETRIED).failed_executions == 2
    refused = measured("FULL", agent=Scripted([call("aux.purge"), call(FIND)]))
    assert (refused.tool_calls, refused.executed, refused.failed_executions) == (2, 0, 0)


def test_state_completion_is_the_share_of_required_steps() -> None:
    found = measured("FULL", agent=Scripted([FIND_IT, SHIP_IT]))
    assert (found.steps_completed, found.steps_required, found.completion_parts) == (2, 3, PART * 2 // 3)
    assert measured("FULL").completion_parts == PART and measured(STATIC, Listed(W)).completion_parts == 0


def test_every_share_inside_an_episode_is_exact() -> None:
    maximum = max(load_protocol(name).episode.max_model_turns for name in FILES)
    assert all(PART % number == 0 for number in range(1, maximum + 1))


# --- execution policy -------------------------------------------------------------------------------------------------


def hostile(condition: str, actions: Sequence[Action], task: Task = CHAIN) -> tuple[int, int, int]:
    found = measured(condition, Listed([FIND]), task, agent=Scripted(actions), policy=Broken())
    return found.executed, found.executed_in_policy, found.unauthorised_destructive


def test_a_destructive_run_is_counted_apart_from_integrity() -> None:
    assert hostile("FULL", [call("aux.purge")]) == (1, 1, 1)
    cancel = call("shop.cancel_order", order_id="ord-552")
    assert hostile("FULL", [FIND_IT, cancel], DESTROYS) == (2, 2, 0), "this very route is authorised"
    assert hostile("FULL", [FIND_IT, cancel], CURED) == (2, 2, 1)


def test_integrity_falls_with_each_call_that_was_not_registered_exposed_or_valid() -> None:
    assert hostile("FULL", [FIND_IT]) == (1, 1, 0)
    assert hostile("FULL", [call("ghost.route"), FIND_IT]) == (2, 1, 0)
    assert hostile(STATIC, [SHIP_IT, FIND_IT]) == (2, 1, 0)
    assert hostile("FULL", [call(FIND), call(FIND, order_name=7), FIND_IT]) == (3, 1, 0)
    assert hostile(STATIC, [call("shop.cancel_order", order_id="x")]) == (1, 0, 1)


def test_nothing_destructive_may_have_run_in_an_episode_that_passes() -> None:
    record = make_episode("FULL", agent=Scripted([call("aux.purge"), FIND_IT, SHIP_IT, LIFT_IT]), policy=Broken()).run()
    found = counts(record)
    assert (found.steps_completed, found.unauthorised_destructive, found.passed) == (3, 1, 0)


LIFT_IT = call(LIFT, shipment_id="shp-31", load=2.5, load_unit="kg")


# --- episodes that failed ---------------------------------------------------------------------------------------------


class Down(Listed):
    """Fails at its n-th ranking."""

    def __init__(self, at: int) -> None:
        super().__init__([FIND, *W[:4]])
        self.at = at

    def rank(self, query: str, *, k: int) -> Ranking:
        if self.asked + 1 == self.at:
            raise RuntimeError("no index")
        return super().rank(query, k=k)


@pytest.mark.parametrize("condition", SR)
def test_an_episode_that_failed_before_anything_was_shown_counts_everywhere_as_missed(condition: str) -> None:
    found = measured(condition, Down(1))
    assert (found.episodes, found.passed, found.model_turns, found.retrieval_calls) == (1, 0, 0, 0)
    assert recall(found) == (0, 1, 0, 0) and missed(found) == (1, 0) and split(found) == (1, 0, 1, 0)


def test_what_ran_before_a_refresh_failed_is_measured() -> None:
    # find ran; the refresh after it failed, so that the opening ranking is still in force, and ship is not in it.
    found = measured(AWARE, Down(2))
    assert (found.executed, found.steps_completed, found.passed) == (1, 1, 0)
    assert recall(found) == (0, 1, 0, 1) and missed(found) == (1, 0)


def test_an_episode_whose_code_failed_after_its_last_step_is_measured_and_not_refused() -> None:
    episode = make_episode("FULL")
    after_turn = episode.condition._after_turn

    def failing(before: Any, failed: bool) -> Any:
        if not episode.environment.progress.incomplete:
            raise RuntimeError("once all was done")
        return after_turn(before, failed)

    episode.condition._after_turn = failing  # type: ignore[method-assign]
    found = counts(episode.run())
    assert (found.episodes, found.steps_completed, found.executed) == (1, 3, 3)


def test_measures_have_names_of_their_own_and_counts_that_exist() -> None:
    assert len(BY_NAME) == len(MEASURES)
    for item in MEASURES:
        assert {item.numerator, item.denominator} <= set(EpisodeCounts.__slots__)
