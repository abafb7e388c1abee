"""The grid: its plan, resuming after an interruption, attempts, and what is registered runs end to end."""

from __future__ import annotations

import os
import socket
import sys
from collections import UserDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import orjson
import pytest

from conditions.running.engines.base import InProcess
from conditions.running.execute import InfrastructureError, execute, prepare
from conditions.running.plan import WHOLE, Plan, make_plan
from conditions.running.runner import OpeningRankings, Runner
from conditions.storage.run_directory import RUN_FILE, RunHeader
from conditions.storage.run_lock import lock_name
from conditions.storage.shards import shard_name, timing_name
from gates.aggregate import read_complete_run
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Action, AgentView, Guide
from schemarouter.errors import InvalidRunError, UsageError
from schemarouter.files import pretty_json
from schemarouter.records import Ended
from schemarouter.retrieval.spec import Declaration, parse
from schemarouter.state import Call
from tests.toys import (
    CATALOG,
    CATALOGS,
    CORE,
    SPEC,
    SURFACE,
    Listed,
    Scripted,
    changed,
    identities_of,
    read_records,
    reference,
    run_header,
    toy_protocol,
    toy_run,
    toy_runner,
)

SHARD = shard_name(WHOLE)
PROTOCOL = toy_protocol()


def plan_of(**part: Any) -> Plan:
    return make_plan(PROTOCOL, SURFACE, **part)


def header_of(plan: Plan) -> RunHeader:
    return run_header(PROTOCOL, SURFACE, plan, identities_of(SURFACE, CATALOGS))


# --- running and resuming -------------------------------------------------------------------------------------------


class Stop(Exception):  # noqa: N818
    """Stands for control-C."""


def stopping_at(count: int) -> Callable[[int], None]:
    def progress(done: int) -> None:
        if done == count:
            raise Stop

    return progress


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_an_interrupted_run_goes_on_to_the_same_bytes_as_an_uninterrupted_one(tmp_path: Path, torn: int) -> None:
    toy_run(tmp_path / "whole")
    plan, folder = plan_of(), tmp_path / "parts"
    for count in (1, 7, 23):
        with pytest.raises(Stop):
            execute(folder, header_of(plan), plan, InProcess(toy_runner()), stopping_at(count))
        data = (folder / SHARD).read_bytes()
        (folder / SHARD).write_bytes(data[: len(data) - torn])
    counts: list[int] = []
    execute(folder, header_of(plan), plan, InProcess(toy_runner()), counts.append)
    assert (folder / SHARD).read_bytes() == (tmp_path / "whole" / SHARD).read_bytes()
    assert counts == list(range(counts[0], 41)) and counts[0] in (22, 23)


def test_a_finished_run_asked_for_again_runs_nothing(tmp_path: Path) -> None:
    toy_run(tmp_path / "run")
    before = (tmp_path / "run" / SHARD).read_bytes()

    def never(guide: Guide) -> Any:
        raise AssertionError("an episode was run twice")

    toy_run(tmp_path / "run", toy_runner(agent=never))
    assert (tmp_path / "run" / SHARD).read_bytes() == before


def test_wall_times_are_kept_apart_one_line_an_attempt(tmp_path: Path) -> None:
    toy_run(tmp_path / "run", limit=6)
    lines = [orjson.loads(line) for line in (tmp_path / "run" / timing_name(WHOLE)).read_bytes().splitlines()]
    assert [line["episode"] for line in lines] == [unit.episode_id for unit in plan_of(limit=6).units]
    assert b"wall" not in (tmp_path / "run" / SHARD).read_bytes()


def test_another_configuration_is_refused_with_every_difference(tmp_path: Path) -> None:
    toy_run(tmp_path / "run", limit=3)
    other = header_of(plan_of(limit=4))
    identities = changed(other.identities, agent="reference(order=ready,probe=false)", surface="f" * 64)
    provenance = changed(other.provenance, commit="beef", argv=("another", "way", "to", "say", "it"))
    other = changed(other, identities=identities, provenance=provenance)
    with pytest.raises(InvalidRunError) as caught:
        execute(tmp_path / "run", other, plan_of(limit=4), InProcess(toy_runner()), lambda done: None)
    message = str(caught.value)
    for name in ("identities.agent", "identities.surface", "plan.limit", "plan.episodes", "provenance.commit"):
        assert name in message
    assert "'reference(order=ready,probe=true)' there, 'reference(order=ready,probe=false)' now" in message
    assert "argv" not in message and "identities.catalogs" not in message


def test_another_stamp_is_refused_too(tmp_path: Path) -> None:
    toy_run(tmp_path / "run", limit=3)
    with pytest.raises(InvalidRunError, match="another run"):
        prepare(tmp_path / "run", changed(header_of(plan_of(limit=3)), stamp=""))


def test_a_run_json_without_provenance_is_refused_in_words(tmp_path: Path) -> None:
    header = header_of(plan_of(limit=3))
    (tmp_path / RUN_FILE).write_bytes(pretty_json({n: v for n, v in header.as_json().items() if n != "provenance"}))
    with pytest.raises(InvalidRunError, match="provenance"):
        prepare(tmp_path, header)


def test_a_folder_of_other_files_is_not_run_into(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InvalidRunError, match="holds other files"):
        toy_run(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_run_of_a_directory_in_use_is_refused_and_the_first_ends_as_alone(tmp_path: Path) -> None:
    toy_run(tmp_path / "alone", limit=6)
    folder, refused = tmp_path / "run", []
    plan = plan_of(limit=6)

    def progress(done: int) -> None:
        with pytest.raises(
            InvalidRunError, match=f"run is in use by process {os.getpid()} on host .* since 20"
        ) as caught:
            toy_run(folder, limit=6)
        refused.append(caught)

    execute(folder, header_of(plan), plan, InProcess(toy_runner()), progress)
    assert len(refused) == 7
    assert (folder / SHARD).read_bytes() == (tmp_path / "alone" / SHARD).read_bytes()
    assert {item.name for item in folder.iterdir()} == {RUN_FILE, SHARD, timing_name(WHOLE)}


def test_what_a_killed_beginner_left_behind_counts_as_no_other_files(tmp_path: Path) -> None:
    (tmp_path / lock_name(WHOLE)).write_text("")
    (tmp_path / f"{lock_name(WHOLE)}.holder").write_text("process 1")
    (tmp_path / f".{RUN_FILE}.half").write_bytes(b"{")
    toy_run(tmp_path, limit=3)
    assert len(read_records(tmp_path)) == 3 and [*tmp_path.glob(".*lock*")] == []


def test_no_lock_is_put_among_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conditions.running.execute.hold", lambda folder, shard: pytest.fail("a lock was made"))
    (tmp_path / ".lockfile").write_text("mine")
    with pytest.raises(InvalidRunError, match="holds other files"):
        toy_run(tmp_path)


# --- attempts -------------------------------------------------------------------------------------------------------


def test_an_infrastructure_failure_stays_on_record_and_its_episode_is_run_again(tmp_path: Path) -> None:
    made = 0

    def agent(guide: Guide) -> Any:
        nonlocal made
        made += 1
        return Scripted([MemoryError("no memory")]) if made in (3, 4, 42) else reference(guide)

    folder = tmp_path / "run"
    world = toy_run(folder, toy_runner(agent=agent))
    records = read_records(folder)
    again = [record.episode_id for record in records if record.infrastructure]
    assert (
        len(again) == 3 and len(set(again)) == 2
    )  # The 42nd agent is that of a second attempt, so it is tried a third time.
    tried = [record.attempt for record in records if record.episode_id == again[-1]]
    assert sorted(tried) == list(range(1, again.count(again[-1]) + 2))
    result = read_complete_run(folder, world)
    assert (result.infrastructure_attempts, len(result.rows)) == (3, 40)


def test_infrastructure_failures_in_a_row_stop_the_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    made = 0

    def agent(guide: Guide) -> Any:
        nonlocal made
        made += 1
        return Scripted([MemoryError("no memory")]) if made in (1, 3, 5, 6, 7) else reference(guide)

    folder, runner = tmp_path / "run", toy_runner(agent=agent)
    with pytest.raises(InfrastructureError, match=r"toy-.*infrastructure failure .*no memory.*3 in a row.*goes on"):
        toy_run(folder, runner)
    assert made == 7
    world = toy_run(folder, runner)
    result = read_complete_run(folder, world)
    assert (result.infrastructure_attempts, len(result.rows)) == (5, 40)


def test_an_endpoint_that_refuses_connections_ends_the_run_with_one_line_and_the_same_command_resumes_it(
    tmp_path: Path,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/chat"

    class Remote:
        def act(self, view: AgentView) -> Action:
            with urlopen(url):
                raise AssertionError("nobody listens there")

    folder = tmp_path / "run"
    with pytest.raises(
        InfrastructureError, match=r"toy-.*infrastructure failure .*efused.*3 in a row.*same command"
    ) as caught:
        toy_run(folder, toy_runner(agent=lambda guide: Remote()))
    assert "\n" not in str(caught.value)
    assert [record.infrastructure for record in read_records(folder)] == [True] * 3
    result = read_complete_run(folder, toy_run(folder))
    assert (result.infrastructure_attempts, len(result.rows)) == (3, 40)


def test_failed_episodes_are_outcomes_and_are_never_run_again(tmp_path: Path) -> None:
    def agent(guide: Guide) -> Any:
        return Scripted([ValueError("broken agent")])

    folder = tmp_path / "run"
    world = toy_run(folder, toy_runner(agent=agent))
    before = (folder / SHARD).read_bytes()
    toy_run(folder)
    assert (folder / SHARD).read_bytes() == before
    rows = read_complete_run(folder, world).rows
    assert len(rows) == 40 and not any(row.counts.passed for row in rows)


def test_code_that_fails_while_an_agent_is_made_is_a_failed_episode_too(tmp_path: Path) -> None:
    def agent(guide: Guide) -> Any:
        raise ValueError("no weights")

    world = toy_run(tmp_path / "run", toy_runner(agent=agent), limit=5)
    assert len(read_complete_run(tmp_path / "run", world).rows) == 5


def ends(folder: Path) -> set[tuple[int, str, str]]:
    return {
        (e.turn, e.reason, e.detail) for record in read_records(folder) if isinstance(e := record.events[-1], Ended)
    }


def test_an_agent_that_cannot_be_made_is_recorded_like_one_whose_turn_fails(tmp_path: Path) -> None:
    # What was shown stays on record: recall is judged on it, whatever became of the agent.
    def unmade(guide: Guide) -> Any:
        raise ValueError("no weights")

    toy_run(tmp_path / "made", toy_runner(agent=unmade), limit=5)
    toy_run(tmp_path / "turn", toy_runner(agent=lambda guide: Scripted([ValueError("no weights")])), limit=5)
    assert ends(tmp_path / "made") == {(1, "exception", "ValueError: no weights")}
    assert (tmp_path / "made" / SHARD).read_bytes() == (tmp_path / "turn" / SHARD).read_bytes()


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("torn")], ids=repr)
def test_an_agent_that_exits_ends_its_episode_and_not_the_run(tmp_path: Path, error: BaseException) -> None:
    def unmade(guide: Guide) -> Any:
        raise error

    for name, agent in (("turn", lambda guide: Scripted([error])), ("made", unmade)):
        world = toy_run(tmp_path / name, toy_runner(agent=agent), limit=5)
        assert ends(tmp_path / name) == {(1, "exception", f"{type(error).__name__}: {error}")}
        assert len(read_complete_run(tmp_path / name, world).rows) == 5


def test_an_interruption_while_an_agent_is_made_stays_an_interruption(tmp_path: Path) -> None:
    def interrupted(guide: Guide) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        toy_run(tmp_path / "run", toy_runner(agent=interrupted), limit=5)
    assert read_records(tmp_path / "run") == []


def test_an_unknown_agent_is_refused_at_once_and_not_as_failed_episodes() -> None:
    with pytest.raises(UsageError, match="unknown agent 'referense'"):
        Runner(PROTOCOL, SURFACE, CATALOGS, retriever=SPEC, agent=parse("referense"))


class Meddling:
    """The reference agent, which spoils whatever it holds before each turn."""

    def __init__(self, guide: Guide) -> None:
        self._agent = reference(guide)
        self._made: list[Any] = []

    def act(self, view: AgentView) -> Action:
        action = self._agent.act(view)
        for held in (*self._made, *(turn.call.arguments for turn in view.history)):
            held["order_id"] = "ord-666"
        for turn in view.history:
            turn.observation.payload.clear()  # type: ignore[attr-defined]
            turn.observation.payload["order_id"] = ["ord-666"]  # type: ignore[index]
        if action.call is not None:
            self._made.append(action.call.arguments)
        return action


def test_what_an_agent_does_to_what_it_holds_changes_neither_record_nor_condition(tmp_path: Path) -> None:
    retriever = partial(Listed, CORE)
    toy_run(tmp_path / "honest", toy_runner(retriever))
    world = toy_run(tmp_path / "meddling", toy_runner(retriever, agent=Meddling))
    assert (tmp_path / "meddling" / SHARD).read_bytes() == (tmp_path / "honest" / SHARD).read_bytes()
    assert sum(row.counts.passed for row in read_complete_run(tmp_path / "meddling", world).rows) > 20


def test_arguments_that_read_differently_each_time_are_run_and_recorded_as_they_were_read_first(tmp_path: Path) -> None:
    class Shifting(UserDict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            self.data[name] += "!"
            return self.data[name]

    def agent(guide: Guide) -> Any:
        return Scripted([Action("call", Call("shop.find_order", Shifting(order_name="Blue lamp")))])

    world = toy_run(tmp_path / "run", toy_runner(agent=agent), conditions=["FULL"])
    assert len(read_complete_run(tmp_path / "run", world).rows) == 8


# --- one ranking for all conditions, and registries -----------------------------------------------------------------------


def test_the_arms_of_a_task_open_with_one_and_the_same_ranking() -> None:
    listed = Listed()
    remembered = OpeningRankings(listed)
    assert remembered.rank("q", k=30) is remembered.rank("q", k=30)
    assert (listed.asked, len(remembered.rank("q", k=5).ids), listed.asked) == (1, 5, 2)


def test_a_toy_agent_is_one_module_and_one_line_and_runs_to_its_aggregate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("toy_agent")
    module.DECLARATION = Declaration("lazy", "stops at once")  # type: ignore[attr-defined]
    module.build = lambda guide, values: Scripted([Action("stop", reason="lazy")])  # type: ignore[attr-defined]
    monkeypatch.setitem(agents.AGENTS, "lazy", "toy_agent")
    monkeypatch.setitem(sys.modules, "toy_agent", module)
    runner = Runner(PROTOCOL, SURFACE, CATALOGS, retriever=SPEC, agent=parse("lazy"))
    world = toy_run(tmp_path / "run", runner)
    result = read_complete_run(tmp_path / "run", world)
    assert len(result.rows) == 40 and {row.counts.tool_calls for row in result.rows} == {0}


def test_a_runner_asks_the_real_retriever_of_its_spec() -> None:
    retriever = toy_runner().retriever(36)
    assert retriever.rank("x", k=36).ids != CATALOG.route_ids
    assert toy_runner().retriever(36).rank("x", k=9) == retriever.rank("x", k=9)
