"""An episode that took longer than it may has failed, whatever its code does about it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from conditions.running.engines.jobs import Done, Job, Limits, perform
from conditions.running.engines.timeout import EpisodeTimeLimitError, time_limit
from schemarouter.agents.base import Action, AgentView, Guide
from schemarouter.records import Ended, decode
from tests.conditions.running.engines.test_pool import PLAN
from tests.toys import reference, toy_runner

LIMIT = 0.05
# Longer than any of these tests takes: it is only ever interrupted.
FOREVER = 60.0
FULL = next(unit for unit in PLAN.units if unit.condition == "FULL")


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conditions.running.engines.timeout._REPEAT_SECONDS", LIMIT)


def wait_for_the_alarm() -> None:
    threading.Event().wait(FOREVER)


class Waits:
    """Takes too long where nothing can be raised."""

    def __del__(self) -> None:
        wait_for_the_alarm()


def swallowing() -> None:
    with suppress(BaseException):
        wait_for_the_alarm()


def performed(fault: Callable[[], Any]) -> Done:
    """What comes of an episode whose agent does `fault` before its first act."""

    class Agent:
        def __init__(self, guide: Guide) -> None:
            self._agent = reference(guide)
            self._struck = False

        def act(self, view: AgentView) -> Action:
            if not self._struck:
                self._struck = True
                fault()
            action: Action = self._agent.act(view)
            return action

    return perform(toy_runner(agent=Agent), Job(FULL, 1), Limits(episode_seconds=LIMIT))


def how_it_ended(done: Done) -> tuple[str, str]:
    end = decode(done.record, "x").events[-1]
    assert isinstance(end, Ended)
    return end.reason, end.detail


@pytest.mark.parametrize("fault", [wait_for_the_alarm, swallowing], ids=["raised", "caught"])
def test_an_episode_over_its_limit_is_late_although_its_agent_catches_everything(fault: Callable[[], Any]) -> None:
    done = performed(fault)
    assert how_it_ended(done) == ("time_limit", "the episode took more than 0.05 s")
    assert (done.failure, done.final) == ("", False)


@pytest.mark.parametrize(("seconds", "reason"), [(61, "time_limit"), (60, "completed")])
def test_an_episode_that_no_alarm_reached_is_late_by_the_time_it_took(
    seconds: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0, seconds * 10**9))
    monkeypatch.setattr("conditions.running.engines.jobs.time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    done = perform(toy_runner(), Job(FULL, 1), Limits(episode_seconds=FOREVER))
    assert how_it_ended(done)[0] == reason


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_alarm_that_is_lost_in_a_destructor_comes_again() -> None:
    def late() -> None:
        with time_limit(LIMIT):
            Waits()
            wait_for_the_alarm()

    with pytest.raises(EpisodeTimeLimitError):
        late()


def test_the_alarm_comes_until_the_block_ends_and_not_after() -> None:
    caught = 0
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(LIMIT):
        while caught < 3:
            try:
                wait_for_the_alarm()
            except EpisodeTimeLimitError:
                caught += 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_episode_within_its_limit_is_what_it_would_be_without() -> None:
    runner, job = toy_runner(), Job(FULL, 1)
    assert perform(runner, job, Limits(episode_seconds=FOREVER)).record == perform(runner, job, Limits()).record
