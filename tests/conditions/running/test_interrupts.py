"""An interrupt ends a run even where Python loses what its handler raised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from conditions.running.interrupts import blocked_interrupts, noted_interrupts
from conditions.running.plan import Unit
from conditions.running.runner import Runner
from schemarouter.records import EpisodeRecord
from tests.toys import read_records, toy_run


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    """Whoever runs the tests may have left interrupts ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class _Thing:
    """Something that can be referred to weakly."""


def lose_an_interrupt() -> None:
    """Be interrupted in a callback, where what is raised is only printed."""
    thing = _Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    assert reference() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lost_interrupt_ends_the_run_after_the_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, begun = Runner.run, []

    def interrupted(self: Runner, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        begun.append(unit)
        record = run(self, unit, attempt=attempt)
        if len(begun) == 3:
            lose_an_interrupt()
        return record

    monkeypatch.setattr(Runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toy_run(tmp_path / "run", limit=9)
    assert len(begun) == 3 and len(read_records(tmp_path / "run")) == 3


def test_handlers_are_as_before_and_what_was_not_lost_is_raised_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noted_interrupts() as check:
        check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_is_started_while_interrupts_are_blocked_gets_none() -> None:
    code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set()))"
    with blocked_interrupts():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
