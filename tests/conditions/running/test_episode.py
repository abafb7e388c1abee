"""The loop: an episode always ends with a record, whatever happens inside; the policy decides before anything runs."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest

from conditions.running.episode import is_infrastructure
from schemarouter.agents.base import Action, AgentView
from schemarouter.records import (
    Asked,
    Called,
    Decided,
    Ended,
    EpisodeRecord,
    Exposed,
    ModelTurn,
    Observed,
    decode,
    encode,
)
from schemarouter.retrieval.base import Ranking
from schemarouter.state import Call, Observation
from surface.environment import Environment
from tests.toys import (
    CATALOG,
    CHAIN,
    COUNTER,
    CURED,
    DESTROYS,
    SR,
    Broken,
    Following,
    Listed,
    Scripted,
    call,
    make_episode,
)

FIND = call("shop.find_order", order_name="Blue lamp")
SHIP = call("shop.ship_order", order_id="ord-552")


def end(record: EpisodeRecord) -> Ended:
    last = record.events[-1]
    assert isinstance(last, Ended)
    return last


def kinds(record: EpisodeRecord) -> list[str]:
    return [event.type for event in record.events]


class Failing(Environment):
    """An environment whose code fails."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(CHAIN.key, CATALOG, seed_text="x")
        self._error = error

    def execute(self, call: Call) -> Observation:
        raise self._error


class FailingRetriever(Listed):
    """Fails at its n-th ranking."""

    def __init__(self, at: int, error: BaseException, first: tuple[str, ...] = ()) -> None:
        super().__init__(first)
        self._at, self._error = at, error

    def rank(self, query: str, *, k: int) -> Ranking:
        if self.asked + 1 == self._at:
            raise self._error
        return super().rank(query, k=k)


def test_a_whole_episode_is_recorded_in_the_order_in_which_it_happened() -> None:
    record = make_episode("FULL").run()
    turn = ["model_turn", "called", "decided", "observed", "state"]
    assert kinds(record) == ["exposed", *turn * 3, "ended"]
    assert end(record) == Ended(3, "completed", "", ("find", "ship", "lift"))
    assert (record.episode_id, record.attempt) == ("toy-en-01/36/FULL", 1)


def test_a_model_turn_counts_the_tools_shown_at_it_and_the_whole_prompt() -> None:
    record = make_episode("ORACLE").run()
    turns = [event for event in record.events if isinstance(event, ModelTurn)]
    schema = COUNTER.tools(CATALOG, sorted(CHAIN.key.required_routes))
    assert [turn.schema_tokens for turn in turns] == [schema] * 3
    prompts = [turn.input_tokens for turn in turns]
    assert schema < prompts[0] < prompts[1] < prompts[2]


# --- whatever is raised ends as a failed episode --------------------------------------------------------------------


def test_what_an_agent_raises_is_a_failed_episode_with_its_reason() -> None:
    record = make_episode(agent=Scripted([FIND, ValueError("out of context: 9000 tokens")])).run()
    assert end(record) == Ended(2, "exception", "ValueError: out of context: 9000 tokens", ("find",))
    assert decode(encode(record), "here") == record


@pytest.mark.parametrize("condition", SR)
def test_what_a_retriever_raises_at_the_opening_is_a_failed_episode(condition: str) -> None:
    record = make_episode(condition, retriever=FailingRetriever(1, RuntimeError("no index"))).run()
    assert record.events == (Ended(0, "exception", "RuntimeError: no index", ()),)


def test_what_a_retriever_raises_at_a_refresh_keeps_on_record_what_ran_before() -> None:
    retriever = FailingRetriever(2, KeyError("shard"), ("shop.find_order",))
    record = make_episode("SR-5-STATE-AWARE", retriever=retriever).run()
    assert end(record) == Ended(1, "exception", "KeyError: 'shard'", ("find",))
    assert [event.outcome for event in record.events if isinstance(event, Observed)] == ["ran"]


def test_what_a_condition_raises_is_a_failed_episode() -> None:
    episode = make_episode("SR-PROGRESSIVE-STATIC", agent=Scripted([Action("ask")]))
    episode.condition._after_ask = _raise  # type: ignore[method-assign]
    record = episode.run()
    assert (end(record).reason, end(record).detail) == ("exception", "ZeroDivisionError: widened by zero")


def _raise() -> Any:
    raise ZeroDivisionError("widened by zero")


def test_what_the_environment_raises_is_a_failed_episode() -> None:
    record = make_episode(agent=Scripted([FIND]), environment=Failing(IndexError("empty"))).run()
    assert end(record) == Ended(1, "exception", "IndexError: empty", ())
    assert kinds(record)[-3:] == ["called", "decided", "ended"]


def test_what_a_policy_raises_is_a_failed_episode_and_nothing_runs() -> None:
    class Torn:
        def decide(self, call: Call, facts: object) -> Any:
            raise OverflowError("policy")

    record = make_episode(agent=Scripted([FIND]), policy=Torn()).run()
    assert end(record) == Ended(1, "exception", "OverflowError: policy", ())


# Text that UTF-8 cannot hold is not put into a record; errors about such text are raised all the same.
@pytest.mark.parametrize(
    "error", [ValueError("bad \ud800 surrogate"), ValueError("\x00" * 9000), Exception()], ids=repr
)
def test_whatever_an_error_says_its_record_can_be_written_and_read(error: Exception) -> None:
    record = make_episode(agent=Scripted([error])).run()
    assert end(record).reason == "exception" and len(end(record).detail) <= 500
    assert decode(encode(record), "here") == record


def test_an_error_that_cannot_say_what_it_is_still_ends_as_a_failed_episode() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise TypeError("no text")

    assert end(make_episode(agent=Scripted([Mute()])).run()).reason == "exception"


class Sneaky(dict[str, Any]):
    """Not a plain dict inside a call."""


MALFORMED: Mapping[str, Any] = {
    "a set as a value": call("shop.find_order", order_name={1, 2}),
    "a number that JSON does not have": call("shop.find_order", order_name=float("nan")),
    "an integer beyond 64 bits": call("shop.find_order", order_name=2**70),
    "bytes": call("shop.find_order", order_name=b"Blue lamp"),
    "a lone surrogate": call("shop.find_order", order_name="\ud800"),
    "a subclass of dict inside": call("shop.find_order", order_name=Sneaky()),
    "keys that are numbers": Action("call", Call("shop.find_order", {1: "x"})),  # type: ignore[dict-item]
    "arguments that are a list": Action("call", Call("shop.find_order", ["Blue lamp"])),  # type: ignore[arg-type]
    "arguments that are nothing": Action("call", Call("shop.find_order", None)),  # type: ignore[arg-type]
    "a route that is a number": Action("call", Call(5, {})),  # type: ignore[arg-type]
    "a route that is nothing": Action("call", Call(None, {})),  # type: ignore[arg-type]
    "a route that is a list": Action("call", Call(["shop.find_order"], {})),  # type: ignore[arg-type]
    "a call without a call": Action("call"),
    "an action of no kind": Action("dance"),  # type: ignore[arg-type]
    "nothing": None,
    "a string": "REQUEST_MORE_TOOLS",
}


@pytest.mark.parametrize("action", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_call_is_a_failed_episode_whose_record_can_be_read(action: Any) -> None:
    record = make_episode(agent=Scripted([action])).run()
    assert end(record).reason == "exception" and end(record).detail
    assert decode(encode(record), "here") == record


@pytest.mark.parametrize("reason", ["\ud800", 7, None, "x" * 5000], ids=repr)
def test_whatever_reason_an_agent_gives_for_stopping_its_record_can_be_written_and_read(reason: Any) -> None:
    record = make_episode(agent=Scripted([Action("stop", reason=reason)])).run()
    assert end(record).reason in ("agent_stopped", "exception")
    assert decode(encode(record), "here") == record


# --- infrastructure failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EIO, "io"),
        ConnectionResetError(errno.ECONNRESET, ""),
    ],
)
def test_memory_disk_and_network_are_infrastructure_wherever_they_strike(error: Exception) -> None:
    assert is_infrastructure(error)
    assert end(make_episode(agent=Scripted([error])).run()).reason == "infrastructure"
    assert end(make_episode(agent=Scripted([FIND]), environment=Failing(error)).run()).reason == "infrastructure"
    record = make_episode("SR-5-STATIC", retriever=FailingRetriever(1, error)).run()
    assert end(record).reason == "infrastructure" and record.infrastructure


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        OSError("no number"),
        RecursionError("deep"),
    ],
)
def test_a_missing_file_a_refused_permission_and_deep_recursion_are_somebodys_code(error: Exception) -> None:
    record = make_episode(agent=Scripted([error])).run()
    assert end(record).reason == "exception" and not record.infrastructure


def test_an_interrupt_is_no_outcome_and_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        make_episode(agent=Scripted([KeyboardInterrupt()])).run()


# --- turns and asks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 12])
def test_the_turn_limit_ends_the_episode_and_asks_count_as_model_turns(limit: int) -> None:
    forever = Scripted([FIND, Action("ask")] * 20)
    record = make_episode("SR-5-STATIC", agent=forever, turns=limit).run()
    assert end(record).reason == "turn_limit" and end(record).turn == limit
    assert sum(isinstance(event, ModelTurn) for event in record.events) == limit == forever.step
    assert sum(isinstance(event, Called) for event in record.events) == (limit + 1) // 2


def test_a_task_completed_at_the_last_turn_is_completed() -> None:
    assert end(make_episode("FULL", turns=3).run()).reason == "completed"
    assert end(make_episode("FULL", turns=2).run()).reason == "turn_limit"


@pytest.mark.parametrize("condition", ["SR-5-STATIC", "SR-5-STATE-AWARE", "FULL", "ORACLE"])
def test_asking_twice_in_vain_is_stalled(condition: str) -> None:
    agent = Scripted([Action("ask")] * 5)
    record = make_episode(condition, agent=agent).run()
    assert (end(record).reason, agent.step) == ("stalled", 2)
    assert kinds(record) == ["exposed", "model_turn", "asked", "model_turn", "asked", "ended"]


def test_asks_that_widen_are_not_in_vain() -> None:
    agent = Scripted([Action("ask")] * 9)
    record = make_episode("SR-PROGRESSIVE-STATIC", agent=agent).run()
    assert (end(record).reason, agent.step) == ("stalled", 4)
    exposures = [event for event in record.events if isinstance(event, Exposed)]
    assert [(len(item.routes), item.cause) for item in exposures] == [(5, "open"), (10, "widen"), (20, "widen")]


def test_stalled_and_stopped_agents_end_the_episode_as_what_they_say() -> None:
    assert end(make_episode(agent=Scripted([Action("stop", reason="stalled")])).run()).reason == "stalled"
    assert end(make_episode(agent=Scripted([Action("stop", reason="tired")])).run()).reason == "agent_stopped"


def test_an_ask_grows_the_prompt_and_is_no_tool_turn() -> None:
    record = make_episode("SR-PROGRESSIVE-STATIC", agent=Scripted([Action("ask")])).run()
    first, second = (event for event in record.events if isinstance(event, ModelTurn))
    assert second.input_tokens - second.schema_tokens > first.input_tokens - first.schema_tokens
    assert Asked(1) in record.events and "called" not in kinds(record)


# --- policy before execution ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (call("ghost.route"), "unregistered_route"),
        (call("crane.lift"), "not_exposed"),
        (call("shop.find_order"), "invalid_arguments"),
        (call("shop.find_order", order_name=3), "invalid_arguments"),
        (call("aux.purge"), "not_authorised"),
    ],
)
def test_what_the_policy_refuses_never_reaches_the_environment(action: Action, error: str) -> None:
    retriever = Listed(["shop.find_order", "aux.purge", *CATALOG.route_ids[10:20]])
    episode = make_episode("SR-5-STATIC", agent=Scripted([action]), retriever=retriever)
    episode.environment = Failing(AssertionError("it ran"))
    record = episode.run()
    decided = next(event for event in record.events if isinstance(event, Decided))
    observed = next(event for event in record.events if isinstance(event, Observed))
    assert not decided.allowed and decided.error.startswith(error)
    assert (observed.outcome, observed.payload) == ("blocked", {"status": "blocked", "error": decided.error})
    assert end(record).reason == "agent_stopped"


def test_a_destructive_route_runs_only_where_the_task_authorises_that_very_route() -> None:
    cancel = call("shop.cancel_order", order_id="ord-552")
    outcomes = {}
    for task in (CURED, DESTROYS):
        record = make_episode(task=task, agent=Scripted([FIND, cancel])).run()
        outcomes[task.prompt.id] = [event.outcome for event in record.events if isinstance(event, Observed)]
    assert outcomes == {"toy-en-02": ["ran", "blocked"], "toy-en-04": ["ran", "ran"]}


def test_a_route_that_was_refreshed_away_is_not_exposed_any_more() -> None:
    retriever = Following(["shop.find_order", "misc.look_00"], then={1: CATALOG.route_ids[25:30]})
    record = make_episode("SR-5-STATE-AWARE", agent=Scripted([FIND, FIND]), retriever=retriever).run()
    assert [event.exposed for event in record.events if isinstance(event, Decided)] == [True, False]


def test_an_unregistered_route_cannot_run_even_under_a_broken_policy() -> None:
    record = make_episode(agent=Scripted([call("ghost.route")]), policy=Broken()).run()
    decided = next(event for event in record.events if isinstance(event, Decided))
    observed = next(event for event in record.events if isinstance(event, Observed))
    assert decided.allowed and not decided.registered and observed.outcome == "error"


def test_an_agent_sees_the_query_the_tools_and_what_happened_and_nothing_else() -> None:
    views: list[AgentView] = []
    make_episode("SR-5-STATIC", agent=Scripted([FIND], views=views), retriever=Listed(["shop.find_order"])).run()
    assert [view.query for view in views] == [CHAIN.prompt.query] * 2
    assert [len(view.history) for view in views] == [0, 1]
    assert views[0].tools == views[1].tools and len(views[0].tools) == 5
    assert set(AgentView.__slots__) == {"query", "tools", "can_ask", "can_turn", "history", "catalog"}
