"""``lock`` on a toy lock: written, rewritten, released by the owner's step; nothing is scored before."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from conditions.running.plan import Unit, make_plan
from conditions.running.provenance import clean_commit
from conditions.running.runner import Runner
from preregistration import protocol
from preregistration.lock import FILES, Lock, Rewrite
from schemarouter.agents import registry as agents
from schemarouter.cli import lock as locking
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from surface import loader
from tests.cli.program import inside, refused
from tests.toys import CATALOGS, SURFACE, toy_protocol

HERE = {"agent": "reference", "retriever": "typed", "surface": "s" * 64}
CLEAN_COMMIT = clean_commit
SMALL = ("--limit", "1", "--display", "none")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A frozen surface of toy tasks with a lock folder of its own; returns the fingerprints that are here now."""
    here = dict(HERE)
    for name in protocol.FILES.values():
        (tmp_path / name).write_bytes((protocol.FOLDER / name).read_bytes())
    monkeypatch.setattr(protocol, "FOLDER", tmp_path)
    monkeypatch.setattr("gates.identities.locked_fingerprints", lambda surface, **_: dict(here))
    monkeypatch.setattr("schemarouter.experiment.locked_fingerprints", lambda surface, **_: dict(here))
    for module in ("conditions.running.provenance", "schemarouter.experiment"):
        monkeypatch.setattr(f"{module}.clean_commit", lambda: "c0ffee")
    monkeypatch.setattr(locking, "AUDIT", "README.md")
    for module in ("surface.loader", "schemarouter.experiment"):
        monkeypatch.setattr(f"{module}.load_surface", lambda name: type(SURFACE)(name, SURFACE.tasks, SURFACE.strata))
    return here


def lock() -> Lock:
    return Lock.model_validate(json.loads((protocol.FOLDER / FILES["frozen"]).read_bytes()))


def test_a_frozen_lock_is_written_with_commit_day_and_one_digest(toy: dict[str, str]) -> None:
    result = inside("lock", "write", "--surface", "frozen")
    assert result.code == 0 and lock().digest in result.out
    assert (lock().commit, lock().fingerprints) == ("c0ffee", HERE) and lock().date
    before = (protocol.FOLDER / FILES["frozen"]).read_bytes()
    refused(
        inside("lock", "write", "--surface", "frozen"),
        3,
        "lost with its history",
        "schemarouter lock rewrite --surface frozen",
    )
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
    monkeypatch.setattr("conditions.running.provenance._commit", lambda out: ("c0ffee", True))
    with pytest.raises(InvalidRunError, match="uncommitted changes"):
        clean_commit()
    monkeypatch.setattr("conditions.running.provenance._commit", lambda out: (None, None))
    with pytest.raises(InvalidRunError, match="git checkout"):
        clean_commit()


def test_status_shows_lock_rewrite_and_release(toy: dict[str, str]) -> None:
    assert "frozen: not locked" in inside("lock", "status").out
    inside("lock", "write", "--surface", "frozen")
    assert "not released" in inside("lock", "status").out
    old = lock()
    toy["retriever"] = "typed2"
    assert "  differs: retriever" in inside("lock", "status").out
    assert inside("lock", "rewrite", "--reason", "the same, faster").code == 0
    assert inside("lock", "release", "--reason", "the audit is done").code == 0
    printed = inside("lock", "status").out
    assert f"rewrite: the same, faster (instead of the lock of {old.date}, digest {old.digest[:16]})" in printed
    assert "; released" in printed and "release: the audit is done" in printed
    row = inside("lock", "status", "--json").json[2]
    assert (row["released"], row["differing"], row["digest"]) == (True, [], lock().digest)
    rewrite, release = row["history"]
    assert rewrite["superseded"] == {"date": old.date, "commit": old.commit, "digest": old.digest}
    assert (rewrite["kind"], release["kind"], "superseded" in release) == ("rewrite", "release", False)
    refused(inside("lock", "release", "--reason", "again"), 3, "released already")


@pytest.mark.parametrize(
    "name", [*HERE, "catalogs.100", "preregistration/corrective-reretrieval-v2.json#statistics.seed"]
)
def test_whatever_moved_is_rewritten_with_the_old_lock_kept(name: str, toy: dict[str, str]) -> None:
    inside("lock", "write", "--surface", "frozen")
    old = lock()
    toy[name] = "moved"
    result = inside("lock", "rewrite", "--surface", "frozen", "--reason", " it moved ")
    assert (result.code, result.out) == (0, f"{FILES['frozen']} rewritten; digest {lock().digest}.\n")
    (event,) = lock().history
    assert isinstance(event, Rewrite)
    assert (event.superseded, event.commit, event.reason) == (old, "c0ffee", "it moved")
    assert lock().fingerprints == toy and lock().digest != old.digest


def test_each_refusal_of_a_rewrite_leaves_the_lock_as_it_is(
    toy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(inside("lock", "rewrite", "--reason", "x"), 3, "not locked", "schemarouter lock write --surface frozen")
    inside("lock", "write")
    free = inside("lock", "rewrite", "--surface", "development", "--reason", "x")
    refused(free, 3, "free to use", "schemarouter lock write --surface development")
    inside("lock", "write", "--surface", "frozen")
    path = protocol.FOLDER / FILES["frozen"]
    before = path.read_bytes()
    refused(inside("lock", "rewrite", "--reason", " "), 3, "--reason is empty")
    with monkeypatch.context() as patched:
        patched.setattr("conditions.running.provenance.clean_commit", CLEAN_COMMIT)
        patched.setattr("conditions.running.provenance._commit", lambda out: ("c0ffee", True))
        refused(inside("lock", "rewrite", "--reason", "x"), 3, "uncommitted changes")
    assert path.read_bytes() == before
    inside("lock", "release", "--reason", "the audit is done")
    before = path.read_bytes()
    refused(inside("lock", "rewrite", "--reason", "x"), 3, "is released", "only before its release")
    assert path.read_bytes() == before


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
    frozen = {text: loader._grams(text) for text in (query, SURFACE.tasks[0].prompt.query)}
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
        lambda query: query.replace("e", "é"),
        lambda query: query.replace("Nobody", "Nobdy").replace("crane", "carne"),
        lambda query: query.replace("o", "o\u0301") + " Thanks and regards, the crane people.",
    ],
)
def test_a_frozen_request_is_refused_however_it_is_written(change: Callable[[str], str], frozen_request: str) -> None:
    result = inside("retrieve", change(frozen_request), "--retriever", "bm25")
    refused(result, 3, "a frozen task's request", "not locked")


def test_a_few_words_of_a_frozen_request_are_anybodys(frozen_request: str) -> None:
    assert inside("retrieve", "reserve the crane", "--retriever", "bm25").code == 0
    assert inside("retrieve", "", "--retriever", "bm25").code == 2


def test_a_frozen_request_among_the_tasks_of_another_surface_is_refused(frozen_request: str) -> None:
    spec, agent = retrievers.resolve("bm25"), agents.resolve("reference")
    runner = Runner(toy_protocol(), SURFACE, CATALOGS, retriever=spec, agent=agent)
    with pytest.raises(InvalidRunError, match="not locked"):
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
    result = inside("run", "--surface", "frozen", "--out", tmp_path / "out", "--exploratory", *SMALL)
    refused(result, 3, "surface: locked", "here other")
    assert not (tmp_path / "out").exists()


def test_timing_prints_the_seconds_of_each_condition_and_keeps_nothing(
    toy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=0.5)
    monkeypatch.setattr("conditions.running.grid_timing.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr("preregistration.protocol.load_protocol", lambda surface: toy_protocol())
    monkeypatch.setattr("surface.loader.load_catalogs", lambda sizes: CATALOGS)
    monkeypatch.setattr("surface.loader.frozen_queries", dict)
    plan = make_plan(toy_protocol(), SURFACE)
    each = 0.5 * len(plan.units) / len(plan.conditions)
    result = inside("lock", "timing", "--surface", "frozen")
    assert (result.code, result.err) == (0, "")
    lines = [f"{name}: {each:.2f} s" for name in plan.conditions]
    assert result.out.splitlines() == [*lines, f"{len(plan.units)} episodes"]
    assert {path.name for path in protocol.FOLDER.iterdir()} == set(protocol.FILES.values())
