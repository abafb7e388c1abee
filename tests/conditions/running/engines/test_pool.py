"""Several processes do what one does, and go on when one of them dies, hangs or is not wanted any more."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pebble import ProcessPool

from conditions.running.engines.base import Engine, InProcess, WorkersLostError
from conditions.running.engines.jobs import NO_LIMITS, Limits
from conditions.running.engines.pool import Pool
from conditions.running.execute import InfrastructureError, execute
from conditions.running.plan import Plan, make_plan
from conditions.running.runner import Runner
from conditions.storage.run_directory import RunLimits
from gates.aggregate import read_complete_run
from gates.exploratory import stamp
from gates.identities import ReferenceData
from schemarouter.agents.base import Action, AgentView, Guide
from schemarouter.errors import SchemaRouterError, UsageError
from schemarouter.records import Ended, encode
from tests.toys import (
    CATALOGS,
    SURFACE,
    changed,
    identities_of,
    read_records,
    reference,
    run_header,
    toy_protocol,
    toy_runner,
)

pytestmark = pytest.mark.slow

TASK = SURFACE.tasks[1].prompt.id
PLAN: Plan = make_plan(toy_protocol(), SURFACE, conditions=["SR-5-STATE-AWARE", "FULL"])
IDENTITIES = identities_of(SURFACE, CATALOGS)
WORLD = ReferenceData(toy_protocol(), SURFACE, CATALOGS, lambda run: IDENTITIES)


@dataclass(frozen=True)
class Faulty:
    """Makes a runner whose agent meets `fault` at its first act of one episode, `times` times over all processes."""

    fault: str
    folder: str
    times: int

    def __call__(self) -> Runner:
        return toy_runner(agent=self.agent)

    def agent(self, guide: Guide) -> Any:
        return _Stricken(self, guide)

    def strikes(self, view: AgentView) -> bool:
        """Whether this act is to fail: each failure leaves a file, which the next process sees."""
        if view.query != SURFACE.prompt(TASK).query or len(view.catalog.capabilities) > 12 or len(view.tools) < 12:
            return False
        for number in range(self.times):
            try:
                (Path(self.folder) / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False


class _Stricken:
    def __init__(self, plan: Faulty, guide: Guide) -> None:
        self._plan = plan
        self._agent = reference(guide)

    def act(self, view: AgentView) -> Action:
        if self._plan.strikes(view):
            FAULTS[self._plan.fault]()
        action: Action = self._agent.act(view)
        return action


def _segfault() -> None:
    ctypes.string_at(0)


def _deaf() -> None:
    """Hang where no timer reaches: the alarm is blocked, as it is in a library that does not return."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()


def _refuse() -> None:
    """A client's connection error around that of the system."""
    raise RuntimeError("no answer:\nrefused") from ConnectionRefusedError("refused")


FAULTS = {
    "segfault": _segfault,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "refuse": _refuse,
    "hang": lambda: threading.Event().wait(),
    "deaf": _deaf,
}


def failing() -> Runner:
    raise UsageError("no such agent; take another.")


def fill(folder: Path, engine: Engine, limits: Limits = NO_LIMITS) -> Path:
    plain = run_header(toy_protocol(), SURFACE, PLAN, IDENTITIES)
    limited = changed(plain, limits=RunLimits(episode_seconds=limits.episode_seconds))
    header = changed(limited, stamp=stamp(toy_protocol(), SURFACE, PLAN, limited))
    execute(folder, header, PLAN, engine, lambda done: None)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("alone") / "run", InProcess(toy_runner()))


def bytes_of(folder: Path) -> set[bytes]:
    return {encode(record) for record in read_records(folder)}


def test_several_processes_write_what_one_writes(tmp_path: Path, alone: Path) -> None:
    folder = fill(tmp_path / "run", Pool(toy_runner, 2))
    assert bytes_of(folder) == bytes_of(alone)
    assert list(read_complete_run(folder, WORLD).aggregate().chunks()) == list(
        read_complete_run(alone, WORLD).aggregate().chunks()
    )


@pytest.mark.parametrize(("fault", "detail"), [("segfault", "SIGSEGV"), ("kill", "SIGKILL"), ("exit", "exit code 7")])
def test_a_worker_that_dies_is_on_record_and_its_episodes_are_run_again(
    fault: str, detail: str, tmp_path: Path, alone: Path
) -> None:
    # Once with the others of its batch, which leaves no record, and once alone.
    folder = fill(tmp_path / "run", Pool(Faulty(fault, str(tmp_path), 2), 2))
    (lost,) = (record for record in read_records(folder) if record.infrastructure)
    assert (lost.task, lost.catalog, lost.condition, lost.attempt) == (TASK, 12, "FULL", 1)
    assert isinstance(lost.events[-1], Ended) and detail in lost.events[-1].detail
    result = read_complete_run(folder, WORLD)
    assert result.infrastructure_attempts == 1
    assert result.rows == read_complete_run(alone, WORLD).rows


def test_an_episode_that_kills_every_worker_ends_the_run_and_the_same_command_goes_on(
    tmp_path: Path, alone: Path
) -> None:
    with pytest.raises(InfrastructureError, match=rf"{TASK}/12/FULL: infrastructure failure .*SIGKILL.*same command"):
        fill(tmp_path / "run", Pool(Faulty("kill", str(tmp_path), 3), 2))
    assert sum(record.infrastructure for record in read_records(tmp_path / "run")) == 2
    folder = fill(tmp_path / "run", Pool(toy_runner, 2))
    assert read_complete_run(folder, WORLD).rows == read_complete_run(alone, WORLD).rows


def test_a_refused_connection_in_a_worker_is_on_record_and_its_episode_is_run_again(
    tmp_path: Path, alone: Path
) -> None:
    folder = fill(tmp_path / "run", Pool(Faulty("refuse", str(tmp_path), 1), 2))
    (lost,) = (record for record in read_records(folder) if record.infrastructure)
    assert isinstance(lost.events[-1], Ended) and "no answer:\nrefused" in lost.events[-1].detail
    assert read_complete_run(folder, WORLD).rows == read_complete_run(alone, WORLD).rows


@pytest.mark.parametrize(("fault", "detail"), [("hang", "took more than 2 s"), ("deaf", "killed after more than 2 s")])
def test_a_worker_that_hangs_is_a_failed_episode_on_record(
    fault: str, detail: str, tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conditions.running.engines.base.GRACE_SECONDS", 2.0)
    monkeypatch.setattr("conditions.running.engines.batches.FIRST", 1)
    monkeypatch.setattr("conditions.running.engines.batches._MAX", 1)
    # Long enough for whatever does not hang, also on a busy machine.
    limits = Limits(episode_seconds=2)
    folder = fill(tmp_path / "run", Pool(Faulty(fault, str(tmp_path), 2 if fault == "deaf" else 1), 2, limits), limits)
    (late,) = (
        record for record in read_records(folder) if isinstance(e := record.events[-1], Ended) and detail in e.detail
    )
    assert (late.task, late.catalog, late.condition) == (TASK, 12, "FULL")
    assert isinstance(late.events[-1], Ended) and late.events[-1].reason == "time_limit"
    result = read_complete_run(folder, WORLD)
    assert len(result.rows) == len(PLAN.units) and result.infrastructure_attempts == 0
    differing = [
        one for one, other in zip(result.rows, read_complete_run(alone, WORLD).rows, strict=True) if one != other
    ]
    assert [(row.task, row.catalog, row.condition, row.counts.passed) for row in differing] == [(TASK, 12, "FULL", 0)]


def test_a_hang_in_this_process_is_a_failed_episode_too(tmp_path: Path) -> None:
    limits = Limits(episode_seconds=2)
    folder = fill(tmp_path / "run", InProcess(Faulty("hang", str(tmp_path), 1)(), limits), limits)
    ends = [record.events[-1] for record in read_records(folder)]
    assert sum(isinstance(end, Ended) and end.reason == "time_limit" for end in ends) == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_a_worker_cannot_begin_is_raised_as_in_this_process(tmp_path: Path) -> None:
    with pytest.raises(SchemaRouterError, match="no such agent; take another"):
        fill(tmp_path / "run", Pool(failing, 2))
    assert multiprocessing.active_children() == []


@dataclass(frozen=True)
class Stillborn:
    """Makes a runner, but for the first `times` processes that try: those die of it before they took any work."""

    folder: str
    times: int

    def __call__(self) -> Runner:
        for number in range(self.times):
            try:
                (Path(self.folder) / f"dead{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return toy_runner()


def test_workers_that_die_before_they_took_any_work_are_replaced_and_nobody_is_blamed(
    tmp_path: Path, alone: Path
) -> None:
    folder = fill(tmp_path / "run", Pool(Stillborn(str(tmp_path), 2), 1))
    assert (tmp_path / "dead1").exists()
    assert bytes_of(folder) == bytes_of(alone)
    assert multiprocessing.active_children() == []


def test_workers_that_always_die_end_the_run_with_one_message_and_nothing_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conditions.running.engines.pool._MAX_BROKEN_POOLS", 1)
    with pytest.raises(WorkersLostError, match=r"before they did any work, 2 times in a row.*same command") as caught:
        fill(tmp_path / "run", Pool(partial(os._exit, 7), 1))
    assert caught.value.exit_code == 3
    assert read_records(tmp_path / "run") == []
    assert multiprocessing.active_children() == []


def test_a_pool_that_breaks_as_work_is_handed_in_is_replaced(
    tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, calls = ProcessPool.schedule, iter(range(1000))

    def refusing(self: ProcessPool, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("Unexpected error within the Pool")
        return schedule(self, *args, **kwargs)

    monkeypatch.setattr(ProcessPool, "schedule", refusing)
    assert bytes_of(fill(tmp_path / "run", Pool(toy_runner, 1))) == bytes_of(alone)


def test_an_interrupted_run_leaves_no_process_and_goes_on(tmp_path: Path, alone: Path) -> None:
    header = run_header(toy_protocol(), SURFACE, PLAN, IDENTITIES)

    def progress(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path / "run", header, PLAN, Pool(toy_runner, 2), progress)
    assert multiprocessing.active_children() == []
    assert bytes_of(fill(tmp_path / "run", Pool(toy_runner, 2))) == bytes_of(alone)


def test_a_worker_that_a_clock_set_forward_has_killed_was_not_late(
    tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool says that time is up as soon as it is asked; nobody has waited as long as the limit is."""
    schedule = ProcessPool.schedule

    def impatient(self: ProcessPool, work: Any, *, args: Any, timeout: float) -> Any:
        alone_in_its_batch = len(args[1]) == 1
        return schedule(self, work, args=args, timeout=None if alone_in_its_batch else 1e-9)

    monkeypatch.setattr(ProcessPool, "schedule", impatient)
    limits = Limits(episode_seconds=600)
    folder = fill(tmp_path / "run", Pool(toy_runner, 1, limits), limits)
    assert bytes_of(folder) == bytes_of(alone)
