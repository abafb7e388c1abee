"""A plan is a partial order: what is ready decides, and the order in which a key is written decides nothing anywhere."""

from __future__ import annotations

from math import comb
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conditions.registry import CONDITIONS
from gates.measures import EpisodeCounts, measure
from gates.recall_events import PART
from gates.replay import Replay
from schemarouter.agents.base import Order
from schemarouter.agents.reference import Reference
from schemarouter.records import EpisodeRecord, decode, encode
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.random import Random
from surface.environment import Environment, PlanGuide
from surface.loader import load_catalogs, load_surface
from surface.task import Task, TaskKey
from tests.strategies import LAWS
from tests.toys import (
    CATALOG,
    CATALOGS,
    CHAIN,
    COUNTER,
    CURED,
    LARGE,
    RULES,
    TASKS,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
    make_task,
    toy_protocol,
)

FIND, SHIP, LIFT, RENEW = "shop.find_order", "shop.ship_order", "crane.lift", "lease.renew"
LOOK, PURGE = "misc.look_03", "aux.purge"
_LOOK = {"id": "look", "route": LOOK, "role": "evident", "arguments": {}}
_AGAIN = {**_LOOK, "id": "again"}
_PURGE = {"id": "purge", "route": PURGE, "role": "evident", "arguments": {}}
_CURED = [step.model_dump() for step in CURED.key.steps]
# find -> ship (needs a lease first), and beside it two calls of one route and a purge after the first of them, as words say.
BRANCHED = make_task(
    7,
    [*_CURED, _LOOK, _AGAIN, {**_PURGE, "after": ["look"], "because": "once you have looked"}],
    "Blue lamp; purge once you have looked",
    faults=[CURED.key.faults[0].model_dump()],
    authorised=[PURGE],
)
FILLER = tuple(f"misc.look_{number:02d}" for number in (4, 9, 14, 19, 24))


def run(condition: str, task: Task, *, order: Order = "ready", **options: Any) -> EpisodeRecord:
    options.setdefault("agent", lambda guide: Reference(guide, order=order))
    return make_episode(condition, task, **options).run()


def counts(record: EpisodeRecord, task: Task, order: Order = "ready") -> EpisodeCounts:
    stored = decode(encode(record), "shard, line 2")
    timeline = Replay(stored, task, CATALOGS[record.catalog], toy_protocol(), COUNTER, "line 2", order=order).run()
    return measure(stored, timeline, task.key, RULES)


def with_steps(task: Task, steps: Any) -> Task:
    key = TaskKey.model_validate({**task.key.model_dump(), "steps": [step.model_dump() for step in steps]})
    return task.model_copy(update={"key": key})


def in_one_order(task: Task) -> Task:
    """The task with every step but the cures after the one that is written before it."""
    steps: list[Any] = []
    before: tuple[str, ...] = ()
    for step in task.key.steps:
        after = () if step.role == "corrective" else (*step.after, *before)
        steps.append(step.model_copy(update={"after": after, "because": "in this order" if after else None}))
        before = before if step.role == "corrective" else (step.id,)
    return with_steps(task, steps)


@LAWS
@given(
    task=st.sampled_from([*TASKS, BRANCHED]),
    condition=st.sampled_from(sorted(CONDITIONS)),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_permuting_the_steps_of_a_key_changes_no_byte(task: Task, condition: str, seed: int, data: Any) -> None:
    permuted = with_steps(task, data.draw(st.permutations(task.key.steps)))
    records = [run(condition, item, retriever=Random(entries_of(CATALOG), seed=seed)) for item in (task, permuted)]
    assert encode(records[0]) == encode(records[1])
    assert counts(records[0], task) == counts(records[1], permuted)


@LAWS
@given(data=st.data())
def test_permuting_the_steps_of_a_development_key_changes_nothing_on_its_way(data: Any) -> None:
    task = data.draw(st.sampled_from(load_surface("development").tasks))
    permuted = with_steps(task, data.draw(st.permutations(task.key.steps)))
    catalog = load_catalogs([100])[100]
    walked = []
    for item in (task, permuted):
        environment, seen = Environment(item.key, catalog, seed_text=item.prompt.id), []
        guide = PlanGuide(environment.progress, catalog)
        while calls := guide.next_calls():
            seen.append((calls, environment.execute(calls[0].call)))
        walked.append((seen, environment.progress.complete, guide.literals()))
    assert walked[0] == walked[1]


@LAWS
@given(
    task=st.sampled_from([*TASKS, BRANCHED]),
    condition=st.sampled_from(sorted(CONDITIONS)),
    seed=st.integers(0, 5),
)
def test_in_one_order_every_figure_is_that_of_the_order_as_written(task: Task, condition: str, seed: int) -> None:
    total, retriever = in_one_order(task), Random(entries_of(CATALOG), seed=seed)
    ready, written = (run(condition, total, order=order, retriever=retriever) for order in ("ready", "written"))
    assert encode(ready) == encode(written)
    assert counts(ready, total) == counts(written, total, "written")


def test_the_agent_calls_a_cure_first_and_then_the_lowest_route() -> None:
    record = run("FULL", BRANCHED)
    called = [event.route for event in record.events if event.type == "called"]
    # Of two like steps the first call completes the lower id, `again`; aux.purge is ready after `look`.
    assert called == [LOOK, LOOK, PURGE, FIND, SHIP, RENEW, SHIP]
    assert [event.route for event in run("FULL", BRANCHED, order="written").events if event.type == "called"] == [
        FIND, SHIP, RENEW, SHIP, LOOK, LOOK, PURGE,
    ]  # fmt: skip


def test_a_hit_is_any_ready_route_and_shares_and_chance_count_all() -> None:
    two = make_task(8, [_LOOK, _PURGE, CHAIN.key.steps[0].model_dump()], "Blue lamp", authorised=[PURGE])
    # look is called at first; then find and purge are ready, and only find is among the five. Then purge alone, a miss.
    found = counts(run("SR-5-STATIC", two, retriever=Listed([LOOK, FIND, *FILLER])), two)
    assert (found.recall_hits, found.recall_events, found.ready_routes) == (1, 2, 3)
    assert found.recall_share_parts == PART // 2 and (found.recall_single_hits, found.recall_single_events) == (0, 1)
    assert (found.recall_set_parts, found.recall_sets) == (PART, 2)
    drawn = comb(LARGE, 5)
    expected = sum((drawn - comb(LARGE - ready, 5)) * PART // drawn for ready in (2, 1))
    assert found.chance_parts == expected > 0


def test_a_cure_counts_once_and_only_a_ready_cure_among_the_five_is_a_hit() -> None:
    for first, hit in (([FIND, SHIP, RENEW], 1), ([FIND, SHIP, *FILLER], 0)):
        found = counts(run("SR-5-STATIC", CURED, retriever=Listed(first)), CURED)
        assert (found.cure_hits, found.cure_events) == (hit, 1)
    asked = Scripted([call(FIND, order_name="Blue lamp"), *[call(SHIP, order_id="ord-552")] * 3])
    found = counts(run("SR-5-STATIC", CURED, agent=asked, retriever=Listed([FIND, SHIP, RENEW])), CURED)
    assert found.cure_events == 1 and found.recall_events == 4


def test_a_route_counts_as_recovered_where_it_was_shown_while_ready_or_completed_early() -> None:
    # purge is to come after look; called before, it completes, breaks the stated order and was exposed all the same.
    early = Scripted([call(PURGE), call(LOOK), call(LOOK)])
    task = make_task(
        9, [_LOOK, _AGAIN, {**_PURGE, "after": ["look"], "because": "then"}], "Blue lamp, then", authorised=[PURGE]
    )
    found = counts(run("SR-5-STATIC", task, agent=early, retriever=Listed([PURGE, *FILLER])), task)
    assert (found.order_violations, found.passed, found.missed, found.recovered) == (1, 0, 1, 0)


def test_required_routes_that_a_refresh_took_away_are_counted() -> None:

    task = make_task(8, [_LOOK, _PURGE, CHAIN.key.steps[0].model_dump()], "Blue lamp", authorised=[PURGE])
    kept = Following([LOOK, FIND, PURGE, *FILLER], then={1: [LOOK, FIND, PURGE], 2: [LOOK, FIND, PURGE]})
    gone = Following([LOOK, FIND, PURGE, *FILLER], then=dict.fromkeys(range(1, 9), FILLER))
    for retriever, away in ((kept, 0), (gone, 2)):
        found = counts(run("SR-5-STATE-AWARE", task, retriever=retriever), task)
        assert (found.shown_required, found.taken_away) == (3, away)
