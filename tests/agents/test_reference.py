"""The confirmatory agent: it calls what is next when it is shown, else asks, else probes, else stalls; never wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.registry import CONDITIONS
from schemarouter.agents.base import Action, AgentView, NextCall, Order, SeenValue, Turn
from schemarouter.agents.reference import Reference
from schemarouter.records import Asked, Called, Ended, Exposed, Observed
from schemarouter.retrieval.base import Ranking, ordered
from schemarouter.state import Call, Observation
from tests.strategies import LAWS
from tests.toys import CATALOG, CATALOGS, SMALL, TASKS, call, make_episode

NEXT = Call("crane.lift", {"shipment_id": "shp-31"})
NAME = SeenValue("Blue lamp", CATALOG["shop.find_order"].parameters_by_name["order_name"])
ORDER = Turn(Call("shop.find_order", {}), Observation("ran", {"order_id": "ord-552", "note": "fragile"}))
# misc.look_00 and _08 take an order name, _01 an order id, _02 a shipment id, _03 nothing; _04 writes.
PROBES = tuple(f"misc.look_{n:02d}" for n in (0, 1, 2, 3, 4, 8))


class ScriptedGuide:
    """A guide that returns what a test gives it."""

    def __init__(self, next_call: Call | None = NEXT, literals: Sequence[SeenValue] = (NAME,)) -> None:
        self._next, self._literals = next_call, literals

    def next_calls(self, order: Order = "ready") -> Sequence[NextCall]:
        return [] if self._next is None else [NextCall("next", self._next)]

    def literals(self) -> Sequence[SeenValue]:
        return self._literals


def act(
    tools: Sequence[str],
    *,
    ask: bool = False,
    turn: bool = True,
    history: Sequence[Turn] = (),
    guide: ScriptedGuide | None = None,
    probe: bool = True,
) -> Action:
    view = AgentView("q", tools, ask, turn, history, CATALOG)
    return Reference(guide or ScriptedGuide(), probe=probe).act(view)


def probed(tools: Sequence[str], **options: object) -> str | None:
    action = act(tools, **options)  # type: ignore[arg-type]
    return action.call.route_id if action.call is not None else None


@pytest.mark.parametrize("ask", [True, False])
@pytest.mark.parametrize("turn", [True, False])
def test_the_next_required_route_is_called_correctly_whenever_it_is_shown(ask: bool, turn: bool) -> None:
    assert act(["crane.lift", *PROBES], ask=ask, turn=turn) == Action("call", NEXT)


def test_it_asks_before_it_probes_and_only_where_asking_helps() -> None:
    assert act(PROBES, ask=True) == Action("ask")
    assert act(PROBES, ask=False).kind == "call"


def test_it_stalls_where_neither_an_ask_nor_a_turn_can_change_what_is_shown() -> None:
    assert act(PROBES, turn=False) == Action("stop", reason="stalled")


def test_it_stops_when_nothing_is_left_to_do() -> None:
    assert act(PROBES, ask=True, guide=ScriptedGuide(None)) == Action("stop", reason="no step is ready")


def test_a_probe_is_the_first_exposed_read_only_route_by_route_id_that_values_seen_can_fill() -> None:
    assert act(PROBES) == call("misc.look_00", order_name="Blue lamp")
    assert act(tuple(reversed(PROBES))) == call("misc.look_00", order_name="Blue lamp")


def test_a_probe_was_not_called_before_whether_it_ran_or_failed() -> None:
    ran = Turn(Call("misc.look_00", {}), Observation("ran", {}))
    failed = Turn(Call("misc.look_03", {}), Observation("error", {"status": "error", "error": "busy"}))
    assert probed(PROBES, history=[ran]) == "misc.look_03"
    assert probed(PROBES, history=[ran, failed]) == "misc.look_08"


def test_a_probe_never_writes_or_destroys() -> None:
    assert probed(["misc.look_04", "misc.look_09", "aux.purge", "lease.renew"], history=[ORDER]) is None


def test_a_probe_may_use_what_was_observed_and_prefers_it_to_literals() -> None:
    assert probed(["misc.look_01"]) is None
    assert act(["misc.look_01"], history=[ORDER]) == call("misc.look_01", order_id="ord-552")
    other = Turn(Call("shop.find_order", {}), Observation("ran", {"order_id": "ord-9"}))
    assert act(["misc.look_01"], history=[ORDER, other]) == call("misc.look_01", order_id="ord-9")


def test_nothing_is_taken_from_a_failed_turn_or_from_an_unregistered_field() -> None:
    failed = Turn(ORDER.call, Observation("error", {"order_id": "ord-1", "status": "error", "error": "busy"}))
    alien = Turn(Call("misc.look_00", {}), Observation("ran", {"order_id": "ord-1"}))
    assert probed(["misc.look_01"], history=[failed, alien]) is None


def test_without_probe_it_stalls_instead() -> None:
    assert act(PROBES, probe=False) == Action("stop", reason="stalled")
    assert act(["crane.lift"], probe=False) == Action("call", NEXT)
    assert act(PROBES, ask=True, probe=False) == Action("ask")


class Shuffled:
    """Any order at all, another for every query."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def rank(self, query: str, *, k: int) -> Ranking:
        scores = {r: hash((self._seed, len(query), n)) % 97 for n, r in enumerate(CATALOGS[SMALL].route_ids)}
        return Ranking(ordered([(route, float(score)) for route, score in scores.items()], k))


@LAWS
@given(st.sampled_from(sorted(CONDITIONS)), st.sampled_from(TASKS), st.integers(0, 9999), st.booleans())
def test_it_makes_no_wrong_choice_under_any_condition_and_any_retriever(
    condition: str, task: object, seed: int, probe: bool
) -> None:
    episode = make_episode(
        condition,
        task,  # type: ignore[arg-type]
        agent=lambda guide: Reference(guide, probe=probe),
        retriever=Shuffled(seed),
        size=SMALL,
    )
    record = episode.run()
    exposed: Exposed | None = None
    plan = {step.route for step in episode.environment.progress.key.steps}
    called: list[str] = []
    for event, after in zip(record.events, record.events[1:], strict=False):
        if isinstance(event, Exposed):
            exposed = event
        assert exposed is not None
        if isinstance(event, Asked):
            assert exposed.can_ask and isinstance(after, Exposed), "no ask that cannot help"
        if isinstance(event, Called):
            capability = CATALOG[event.route]
            assert event.route in exposed.routes and not capability.argument_errors(event.arguments)
            if event.route not in plan:
                assert probe and exposed.can_turn and not exposed.can_ask
                assert capability.effect == "read" and event.route not in called
            called.append(event.route)
        if isinstance(event, Observed):
            assert event.outcome != "blocked"
    end = record.events[-1]
    assert isinstance(end, Ended) and end.reason in ("completed", "stalled")
