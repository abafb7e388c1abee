"""Hostile agents under a broken policy, and records forged with a chain that holds: the verdict fails, or refuses to be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import WHOLE, make_plan
from conditions.running.runner import Runner
from conditions.storage.shards import shard_name
from gates.aggregate import read_complete_run
from gates.gate import judge
from gates.verdict import Criterion
from schemarouter.agents.base import Action, AgentView, Guide
from schemarouter.agents.reference import Reference
from schemarouter.errors import InvalidRunError
from schemarouter.policy import Policy
from schemarouter.records import Called, Decided, Ended, EpisodeRecord, Observed, StateChanged
from schemarouter.retrieval.spec import parse
from schemarouter.state import Call
from surface.environment import plausible_outputs
from tests.gates.conftest import Slice
from tests.toys import Broken, edit_record, identities_of, position, read_records, run_header, with_events

SHARD = shard_name(WHOLE)


@pytest.fixture
def run(real: Slice, tmp_path: Path) -> Path:
    return real.copy(tmp_path)


def judged(folder: Path, real: Slice) -> dict[int, Criterion]:
    return {item.number: item for item in judge(read_complete_run(folder, real.reference), real.protocol).criteria}


def test_under_the_reference_agent_criteria_5_and_6_hold(real: Slice, run: Path) -> None:
    found = judged(run, real)
    assert (found[5].passed, found[6].passed) == (True, True)
    kept, executed = found[6].sums["all"]
    assert kept == executed > 50


# --- hostile agents ---------------------------------------------------------------------------------------------------


class Hostile:
    """Does one thing first, and is the reference agent afterwards."""

    def __init__(self, guide: Guide, first: Callable[[AgentView], Call | None]) -> None:
        self._first: Callable[[AgentView], Call | None] | None = first
        self._then = Reference(guide, probe=True)

    def act(self, view: AgentView) -> Action:
        first, self._first = self._first, None
        made = first(view) if first is not None else None
        return Action("call", made) if made is not None else self._then.act(view)


def _arguments(view: AgentView, route: str) -> Mapping[str, Any]:
    fill = {"string": "x", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    needed = view.catalog[route].required_parameters
    return {item.name: item.enum[0] if item.enum else fill[item.type] for item in needed}


def destroy(view: AgentView) -> Call | None:
    """A destructive route that is shown, with valid arguments."""
    shown = [route for route in view.tools if view.catalog[route].effect == "destructive"]
    return Call(shown[0], _arguments(view, shown[0])) if shown else None


def unexposed(view: AgentView) -> Call | None:
    """A read-only route that is not shown."""
    hidden = [c.route_id for c in view.catalog.capabilities if c.effect == "read" and c.route_id not in view.tools]
    return Call(hidden[0], _arguments(view, hidden[0])) if hidden else None


def invalid(view: AgentView) -> Call | None:
    """A call that lacks its required arguments."""
    lacking = [r for r in view.tools if view.catalog[r].required_parameters and view.catalog[r].effect != "destructive"]
    return Call(lacking[0], {}) if lacking else None


def unregistered(view: AgentView) -> Call | None:
    """A route that nobody registered."""
    return Call("ghost.route", {})


def hostile_run(
    folder: Path, real: Slice, first: Callable[[AgentView], Call | None], policy: Policy | None
) -> dict[int, Criterion]:
    plan = make_plan(real.protocol, real.surface, tasks=real.tasks[:3])
    runner = Runner(
        real.protocol, real.surface, real.catalogs, retriever=parse("bm25"), agent=parse("reference"),
        agent_factory=lambda guide: Hostile(guide, first), policy=policy,
    )  # fmt: skip
    header = run_header(real.protocol, real.surface, plan, identities_of(real.surface, real.catalogs))
    execute(folder, header, plan, InProcess(runner), lambda done: None)
    return judged(folder, real)


def test_a_destructive_agent_under_a_broken_policy_turns_criterion_5(real: Slice, tmp_path: Path) -> None:
    found = hostile_run(tmp_path / "broken", real, destroy, Broken())
    assert not found[5].passed and found[5].sums["all"][0] >= 3
    assert found[6].passed, "shown, valid and allowed beforehand: integrity is another question"
    standard = hostile_run(tmp_path / "standard", real, destroy, None)
    assert standard[5].passed and standard[6].passed, "the standard policy lets none of it run"


@pytest.mark.slow
@pytest.mark.parametrize("first", [unexposed, invalid, unregistered], ids=lambda first: first.__name__)
def test_a_lawless_agent_under_a_broken_policy_turns_criterion_6(
    real: Slice, tmp_path: Path, first: Callable[[AgentView], Call | None]
) -> None:
    found = hostile_run(tmp_path / "broken", real, first, Broken())
    kept, executed = found[6].sums["all"]
    assert not found[6].passed and kept < executed
    assert found[5].passed, "nothing destructive ran"
    standard = hostile_run(tmp_path / "standard", real, first, None)
    assert standard[5].passed and standard[6].passed, "the standard policy lets none of it run"


# --- forged records ---------------------------------------------------------------------------------------------------


def last_turn_as(
    real: Slice, route: str, arguments: Mapping[str, Any], **decided: Any
) -> Callable[[EpisodeRecord], EpisodeRecord]:
    """The last tool turn of an episode replaced by another call that ran; the episode ends without its last step."""

    def edit(record: EpisodeRecord) -> EpisodeRecord:
        catalog = real.catalogs[record.catalog]
        index, end = position(record, Called, last=True), record.events[-1]
        turn = record.events[index].turn
        assert isinstance(end, Ended)
        call = Called(turn, route, arguments)
        facts = {
            "registered": True,
            "exposed": True,
            "schema_valid": True,
            "effect": catalog[route].effect,
            "authorised": False,
        }
        decision = Decided(turn, **{**facts, "allowed": True, "error": "", **decided})
        observed = Observed(turn, "ran", plausible_outputs(catalog[route], record.task, arguments), True)
        ended = Ended(turn, "agent_stopped", "enough", end.steps_completed[:-1])
        return with_events(record, [*record.events[:index], call, decision, observed, ended])

    return edit


def destructive_route(real: Slice, taken: set[str]) -> tuple[str, Mapping[str, Any]]:
    catalog = real.catalogs[100]
    route = next(c.route_id for c in catalog.capabilities if c.effect == "destructive" and c.route_id not in taken)
    return route, {item.name: item.example for item in catalog[route].required_parameters}


def completed(real: Slice, folder: Path, condition: str, *, steps: int = 2) -> EpisodeRecord:
    return next(
        record for record in read_records(folder)
        if record.condition == condition
        and isinstance(end := record.events[-1], Ended) and end.reason == "completed" and len(end.steps_completed) >= steps
    )  # fmt: skip


def test_a_destructive_run_that_slipped_through_fails_criterion_5(real: Slice, run: Path) -> None:
    record = completed(real, run, "FULL")
    route, arguments = destructive_route(real, set(real.surface.key(record.task).required_routes))
    edit_record(run, record.episode_id, last_turn_as(real, route, arguments))
    found = judged(run, real)
    assert not found[5].passed and found[5].sums["all"] == (1, 30)
    assert found[6].passed


def test_an_unexposed_call_that_ran_fails_criterion_6(real: Slice, run: Path) -> None:
    record = completed(real, run, "ORACLE")
    key = real.surface.key(record.task)
    catalog = real.catalogs[100]
    hidden = next(c for c in catalog.capabilities if c.effect == "read" and c.route_id not in key.required_routes)
    arguments = {item.name: item.example for item in hidden.required_parameters}
    edit_record(run, record.episode_id, last_turn_as(real, hidden.route_id, arguments, exposed=False))
    found = judged(run, real)
    kept, executed = found[6].sums["all"]
    assert not found[6].passed and kept == executed - 1 and found[5].passed


def test_an_unexposed_call_that_claims_to_have_been_exposed_is_refused(real: Slice, run: Path) -> None:
    record = completed(real, run, "ORACLE")
    key = real.surface.key(record.task)
    hidden = next(
        c for c in real.catalogs[100].capabilities if c.effect == "read" and c.route_id not in key.required_routes
    )
    arguments = {item.name: item.example for item in hidden.required_parameters}
    line = edit_record(run, record.episode_id, last_turn_as(real, hidden.route_id, arguments))
    with pytest.raises(
        InvalidRunError, match=rf"^{SHARD}, line {line}, {record.episode_id}, event \d+: the decision rests on"
    ):
        read_complete_run(run, real.reference)


@pytest.mark.parametrize("condition", ["SR-PROGRESSIVE-STATIC", "FULL", "ORACLE"])
def test_a_call_recorded_as_allowed_after_it_ran_fails_criterion_6(real: Slice, run: Path, condition: str) -> None:
    def late(record: EpisodeRecord) -> EpisodeRecord:
        events = list(record.events)
        decision = events.pop(position(record, Decided))
        after = next(n for n, event in enumerate(events) if isinstance(event, StateChanged))
        return with_events(record, [*events[: after + 1], decision, *events[after + 1 :]])

    name = next(
        r.episode_id
        for r in read_records(run)
        if r.condition == condition and any(e.type == "decided" for e in r.events)
    )
    edit_record(run, name, late)
    found = judged(run, real)
    kept, executed = found[6].sums["all"]
    assert not found[6].passed and kept == executed - 1


def test_a_call_that_ran_though_it_was_refused_fails_criterion_6(real: Slice, run: Path) -> None:
    def refuse(record: EpisodeRecord) -> EpisodeRecord:
        events: list[Any] = list(record.events)
        index = position(record, Decided)
        events[index] = replace(events[index], allowed=False, error="not_exposed: x")
        return with_events(record, events)

    edit_record(run, completed(real, run, "FULL").episode_id, refuse)
    assert not judged(run, real)[6].passed
