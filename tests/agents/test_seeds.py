"""Agents that take a seed: each repeat of the grid gets its own, one after the other; those that take none repeat nothing."""

from __future__ import annotations

import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import Plan, Shard, make_plan, plan_of
from conditions.running.runner import Runner
from conditions.storage.merge import merge
from conditions.storage.shards import count_episodes
from gates.aggregate import CompleteRun, read_complete_run
from gates.identities import ReferenceData
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Action, AgentDeclaration, Guide
from schemarouter.agents.reference import Reference
from schemarouter.errors import InvalidRunError, UsageError
from schemarouter.retrieval.spec import Option, SpecError, parse
from tests.strategies import LAWS
from tests.toys import (
    CATALOGS,
    SMALL,
    SPEC,
    SURFACE,
    Scripted,
    changed,
    edit_record,
    identities_of,
    read_records,
    run_header,
    toy_protocol,
)

TASKS = ["toy-en-01", "toy-en-02"]
REPEATS = 3
PLAN: Plan = make_plan(
    toy_protocol(), SURFACE, tasks=TASKS, catalogs=[SMALL], conditions=["FULL", "ORACLE"], repeats=REPEATS
)
IDENTITIES = changed(identities_of(SURFACE, CATALOGS), agent="moody(seed=5)")
WORLD = ReferenceData(toy_protocol(), SURFACE, CATALOGS, lambda run: IDENTITIES)


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Registers an agent that gives up for some seeds; the seeds that it is built with, in order."""
    built: list[int] = []

    def build(guide: Guide, values: dict[str, Any]) -> Any:
        built.append(values["seed"])
        gives_up = random.Random(values["seed"]).random() < 0.5
        return Scripted([Action("stop", reason="moody")]) if gives_up else Reference(guide, probe=True)

    module = ModuleType("moody_agent")
    module.DECLARATION = AgentDeclaration(  # type: ignore[attr-defined]
        "moody",
        "gives up for some seeds",
        options={"seed": Option(int, "1"), "mood": Option(str, "good")},
        knows_plan=True,
    )
    module.build = build  # type: ignore[attr-defined]
    monkeypatch.setitem(agents.AGENTS, "moody", "moody_agent")
    monkeypatch.setitem(sys.modules, "moody_agent", module)
    return built


def fill(folder: Path, shard: Shard | None = None, plan: Plan = PLAN) -> Path:
    """Run the grid, or a shard of it, with the agent whose seed is 5."""
    header = run_header(toy_protocol(), SURFACE, plan, IDENTITIES)
    runner = Runner(toy_protocol(), SURFACE, CATALOGS, retriever=SPEC, agent=parse("moody(seed=5)"))
    execute(folder, header, plan, InProcess(runner), lambda done: None, shard=shard or Shard(1, 1))
    return folder


# --- the registry ---------------------------------------------------------------------------------------------------


def test_an_agent_takes_a_seed_where_it_declares_one(seeds: list[int]) -> None:
    assert agents.takes_seed("moody") and agents.takes_seed("moody(mood=bad)") and agents.takes_seed(parse("moody"))
    assert not agents.takes_seed("reference")
    with pytest.raises(SpecError, match=r"unknown agent 'mody'\. Did you mean 'moody'"):
        agents.takes_seed("mody")


@LAWS
@given(seed=st.integers(-(2**40), 2**40), repeat=st.integers(1, 10**6))
def test_every_repeat_has_the_next_seed_and_all_else_stays(seed: int, repeat: int) -> None:
    spec = parse(f"moody(mood=good,seed={seed})")
    repeated = agents.seeded(spec, repeat)
    assert repeated.arguments == {"mood": "good", "seed": str(seed + repeat - 1)}
    assert (repeated.name, repeated.nested) == (spec.name, spec.nested)
    assert agents.seeded(repeated, 1) == repeated


@pytest.mark.parametrize("repeat", [1, 2, 7])
def test_an_agent_without_a_seed_is_the_same_in_every_repeat(repeat: int) -> None:
    spec = agents.resolve("reference")
    assert agents.seeded(spec, repeat) == spec


# --- the grid -------------------------------------------------------------------------------------------------------


def test_a_grid_is_repeated_whole_and_names_its_repeats_from_the_second_on() -> None:
    once = make_plan(toy_protocol(), SURFACE, tasks=TASKS, catalogs=[SMALL], conditions=["FULL", "ORACLE"])
    names = [unit.episode_id for unit in once.units]
    assert [unit.episode_id for unit in PLAN.units] == [
        *names, *[f"{name}#2" for name in names], *[f"{name}#3" for name in names],
    ]  # fmt: skip
    assert PLAN.whole == len(PLAN.units) == REPEATS * once.whole
    assert plan_of(PLAN.document(), "run.json") == PLAN and PLAN.fingerprint != once.fingerprint


@pytest.mark.parametrize("repeats", [0, -1])
def test_less_than_one_repeat_is_refused(repeats: int) -> None:
    with pytest.raises(UsageError, match=rf"--repeat is a whole number from 1, got {repeats}"):
        make_plan(toy_protocol(), SURFACE, repeats=repeats)
    with pytest.raises(InvalidRunError, match=rf"the plan has {repeats} repeats"):
        plan_of(changed(PLAN.document(), repeats=repeats), "run.json")


def test_the_agent_of_each_repeat_has_a_seed_of_its_own(seeds: list[int], tmp_path: Path) -> None:
    folder = fill(tmp_path / "run")
    # A task's repeats are run one after the other: what is read of it is read once.
    assert seeds == [5, 5, 6, 6, 7, 7] * 2
    records = read_records(folder)
    assert {record.episode_id for record in records} == {unit.episode_id for unit in PLAN.units}
    assert [record.repeat for record in records] == [1, 1, 2, 2, 3, 3] * 2
    assert [record.task for record in records] == [TASKS[0]] * 6 + [TASKS[1]] * 6
    assert count_episodes(folder).finished == 12


def passed_of(result: CompleteRun) -> dict[tuple[str, str, int], int]:
    return {(row.task, row.condition, row.repeat): row.counts.passed for row in result.rows}


def test_every_repeat_is_a_row_with_what_its_seed_made(seeds: list[int], tmp_path: Path) -> None:
    result = read_complete_run(fill(tmp_path / "run"), WORLD)
    gives_up = {repeat: random.Random(4 + repeat).random() < 0.5 for repeat in (1, 2, 3)}
    assert {*gives_up.values()} == {True, False}, "these seeds would not show which repeat a row is of"
    assert passed_of(result) == {
        (task, name, repeat): int(not gives_up[repeat])
        for task in TASKS for name in ("FULL", "ORACLE") for repeat in (1, 2, 3)
    }  # fmt: skip
    assert [row.repeat for row in result.rows] == [1] * 4 + [2] * 4 + [3] * 4
    assert result.header.stamp.startswith("EXPLORATORY (") and "repeats" in result.header.stamp


def test_shards_of_repeats_merged_and_resumed_are_the_run_of_one_process(seeds: list[int], tmp_path: Path) -> None:
    whole = list(read_complete_run(fill(tmp_path / "whole"), WORLD).aggregate().chunks())
    # Five shards do not end where a repeat does.
    apart = [fill(tmp_path / f"part{index}", Shard(index, 5)) for index in range(1, 6)]
    merge(apart, tmp_path / "merged")
    assert list(read_complete_run(tmp_path / "merged", WORLD).aggregate().chunks()) == whole
    shard = next((tmp_path / "merged").glob("episodes-00004-*"))
    shutil.copytree(tmp_path / "merged", tmp_path / "cut")
    lines = shard.read_bytes().splitlines(keepends=True)
    (tmp_path / "cut" / shard.name).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(InvalidRunError, match=r"not complete: 11 of 12 episodes; missing toy-en-0\d/12/\w+#\d"):
        read_complete_run(tmp_path / "cut", WORLD)
    fill(tmp_path / "cut", Shard(4, 5))
    assert list(read_complete_run(tmp_path / "cut", WORLD).aggregate().chunks()) == whole


def test_a_record_that_says_another_repeat_is_refused(seeds: list[int], tmp_path: Path) -> None:
    folder = fill(tmp_path / "run")
    edit_record(folder, "toy-en-01/12/FULL#2", lambda record: replace(record, repeat=3))
    with pytest.raises(InvalidRunError, match=r"line 6: episode toy-en-01/12/FULL#3 was completed before"):
        read_complete_run(folder, WORLD)
    folder = fill(tmp_path / "other")
    edit_record(folder, "toy-en-01/12/FULL#3", lambda record: replace(record, repeat=4))
    with pytest.raises(InvalidRunError, match=r"episode toy-en-01/12/FULL#4 is not in the grid"):
        read_complete_run(folder, WORLD)
