"""``lock`` on a toy lock: written once, amended, released by the owner's step; nothing is scored before."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conditions.running.plan import Unit, make_plan
from conditions.running.runner import Runner
from preregistration import protocol
from preregistration.lock import FILES, Lock
from schemarouter.agents import registry as agents
from schemarouter.cli import lock as locking
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from surface import loader
from tests.cli.program import inside, refused
from tests.toys import CATALOGS, SURFACE, toy_protocol

HERE = {"agent": "reference", "retriever": "typed", "surface": "s" * 64}
SMALL = ("--limit", "1", "--display", "none")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A frozen surface of toy tasks with a lock folder of its own; returns the fingerprints that are here now."""
    here = dict(HERE)
    for name in protocol.FILES.values():
        (tmp_path / name).write_bytes((protocol.FOLDER / name).read_bytes())
    monkeypatch.setattr(protocol, "FOLDER", tmp_path)
    monkeypatch.setattr(locking, "fingerprints_here", lambda surface, **_: dict(here))
    monkeypatch.setattr(locking, "clean_commit", lambda: "c0ffee")
    monkeypatch.setattr(locking, "AUDIT", "README.md")
    monkeypatch.setattr("surface.loader.load_surface", lambda name: type(SURFACE)(name, SURFACE.tasks, SURFACE.strata))
    return here


def lock() -> Lock:
    return Lock.model_validate(json.loads((protocol.FOLDER / FILES["frozen"]).read_bytes()))


def test_a_frozen_lock_is_written_once_with_commit_day_and_one_digest(toy: dict[str, str]) -> None:
    told = inside("lock", "write", "--surface", "frozen")
    assert told.code == 0 and lock().digest in told.out
    assert (lock().commit, lock().fingerprints) == ("c0ffee", HERE) and lock().date
    before = (protocol.FOLDER / FILES["frozen"]).read_bytes()
    refused(inside("lock", "write", "--surface", "frozen"), 3, "written once")
    assert (protocol.FOLDER / FILES["frozen"]).read_bytes() == before


def test_the_release_is_refused_for_a_changed_byte_a_missing_audit_or_without_words(
    toy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(inside("lock", "release", "--reason", "x"), 3, "not locked")
    assert inside("lock", "write", "--surface", "frozen").code == 0
    refused(inside("lock", "release", "--reason", " "), 3, "--reason is empty")
    toy["surface"] = "other"
    refused(inside("lock", "release", "--reason", "x"), 3, "surface: locked", "here other")
    toy["surface"] = HERE["surface"]
    monkeypatch.setattr(locking, "AUDIT", "surface/NO-SUCH-AUDIT.md")
    refused(inside("lock", "release", "--reason", "x"), 3, "NO-SUCH-AUDIT.md is missing or empty")
    assert not lock().released


def test_an_unclean_tree_is_neither_locked_nor_released(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {"commit": "c0ffee", "dirty": True}
    monkeypatch.setattr("schemarouter.cli.world.provenance", lambda: told)
    with pytest.raises(InvalidRunError, match="uncommitted changes"):
        locking.clean_commit()
    told.update(commit=None, dirty=None)
    with pytest.raises(InvalidRunError, match="git checkout"):
        locking.clean_commit()


def test_status_tells_lock_amendment_and_release(toy: dict[str, str]) -> None:
    assert "frozen: not locked" in inside("lock", "status").out
    inside("lock", "write", "--surface", "frozen")
    assert "not released" in inside("lock", "status").out
    toy["retriever"] = "typed2"
    assert "  differs: retriever" in inside("lock", "status").out
    assert inside("lock", "amend", "--reason", "the same, faster").code == 0
    assert inside("lock", "release", "--reason", "the audit is done").code == 0
    told = inside("lock", "status").out
    assert "; released" in told and "amendment: the same, faster" in told and "release: the audit is done" in told
    row = inside("lock", "status", "--json").json[1]
    assert (row["released"], row["differing"], len(row["history"])) == (True, [], 2)
    refused(inside("lock", "release", "--reason", "again"), 3, "released already")


@pytest.mark.parametrize("more", [(), ("--exploratory",)], ids=["plain", "exploratory"])
def test_no_arm_that_retrieves_runs_before_the_release_by_any_door(
    more: tuple[str, ...], toy: dict[str, str], tmp_path: Path
) -> None:
    command = ("run", "--surface", "frozen", "--out", tmp_path / "out", *SMALL, *more)
    refused(inside(*command), 3, "not locked")
    inside("lock", "write", "--surface", "frozen")
    refused(inside(*command), 3, "not released")
    frozen = type(SURFACE)("frozen", SURFACE.tasks, SURFACE.strata)
    spec, agent = retrievers.resolve("bm25"), agents.resolve("reference")
    runner = Runner(toy_protocol(), frozen, CATALOGS, retriever=spec, agent=agent)
    task, size = frozen.tasks[0].prompt.id, min(CATALOGS)
    with pytest.raises(InvalidRunError, match="not released"):
        runner.run(Unit(task, size, "SR-5-STATIC"))
    assert runner.run(Unit(task, size, "FULL")).events
    inside("lock", "release", "--reason", "the audit is done")
    assert runner.run(Unit(task, size, "SR-5-STATIC")).events


@pytest.fixture
def frozen_request(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A request that counts as that of a frozen task, beside one of a toy task."""
    query = "Nobody has asked for this: reserve the crane for Thursday"
    frozen = frozenset(map(loader._letters, (query, SURFACE.tasks[0].prompt.query)))
    monkeypatch.setattr("surface.loader.frozen_queries", lambda: frozen)
    loader.asks_frozen.cache_clear()
    yield query
    loader.asks_frozen.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        str,
        str.upper,
        lambda query: f"  {query.replace(' ', '  ')}\n",
        lambda query: query.replace(":", "").replace("N", "\uff2e"),
        lambda query: f"{{'id': 'x', 'query': '{query}'}}",
        lambda query: query[:-12],
    ],
)
def test_a_frozen_request_is_refused_however_it_is_written(change: Callable[[str], str], frozen_request: str) -> None:
    told = inside("retrieve", change(frozen_request), "--retriever", "bm25")
    refused(told, 3, "a frozen task's request", "not released")


def test_a_few_words_of_a_frozen_request_are_anybodys(frozen_request: str) -> None:
    assert inside("retrieve", "reserve the crane", "--retriever", "bm25").code == 0
    assert inside("retrieve", "", "--retriever", "bm25").code == 0


def test_a_frozen_request_among_the_tasks_of_another_surface_is_refused(frozen_request: str) -> None:
    spec, agent = retrievers.resolve("bm25"), agents.resolve("reference")
    runner = Runner(toy_protocol(), SURFACE, CATALOGS, retriever=spec, agent=agent)
    with pytest.raises(InvalidRunError, match="not released"):
        runner.run(Unit(SURFACE.tasks[0].prompt.id, min(CATALOGS), "SR-5-STATIC"))


def test_no_development_task_asks_what_a_frozen_one_does() -> None:
    asked = [task.prompt.query for task in loader.load_surface("development").tasks]
    assert len(asked) == 90 and not any(map(loader.asks_frozen, asked))


def test_the_development_surface_is_not_released(toy: dict[str, str]) -> None:
    assert inside("lock", "write").code == 0
    refused(inside("lock", "release", "--surface", "development", "--reason", "x"), 3, "free to use")


def test_a_released_surface_is_not_run_when_anything_differs_from_its_lock(toy: dict[str, str], tmp_path: Path) -> None:
    inside("lock", "write", "--surface", "frozen")
    inside("lock", "release", "--reason", "the audit is done")
    toy["surface"] = "other"
    told = inside("run", "--surface", "frozen", "--out", tmp_path / "out", "--exploratory", *SMALL)
    refused(told, 3, "surface: locked", "here other")
    assert not (tmp_path / "out").exists()


def test_timing_tells_the_seconds_of_each_condition_and_keeps_nothing(
    toy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=0.5)
    monkeypatch.setattr("conditions.running.grid_timing.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr("preregistration.protocol.load_protocol", lambda surface: toy_protocol())
    monkeypatch.setattr("surface.loader.load_catalogs", lambda sizes: CATALOGS)
    monkeypatch.setattr("surface.loader.frozen_queries", frozenset)
    plan = make_plan(toy_protocol(), SURFACE)
    each = 0.5 * len(plan.units) / len(plan.conditions)
    told = inside("lock", "timing", "--surface", "frozen")
    assert (told.code, told.err) == (0, "")
    lines = [f"{name}: {each:.2f} s" for name in plan.conditions]
    assert told.out.splitlines() == [*lines, f"{len(plan.units)} episodes"]
    assert {path.name for path in protocol.FOLDER.iterdir()} == set(protocol.FILES.values())
