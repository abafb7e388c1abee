"""Other processes that judge records: the same bytes come out, the first fault is told, and a lost process is no verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conditions.running.plan import WHOLE
from conditions.storage.shards import RawLine, read_lines, shard_name
from gates import parallel_replay
from gates.aggregate import aggregate
from gates.parallel_replay import Case, Judge, Judged
from preregistration.protocol import load_protocol
from schemarouter.errors import InvalidRunError
from schemarouter.records import Ended, EpisodeRecord, ModelTurn
from surface.loader import load_surface
from tests.cli.program import ROOT, environment
from tests.gates.conftest import Slice, late_bench
from tests.toys import edit_record, position, read_records, with_events

pytestmark = pytest.mark.slow

Edit = Callable[[EpisodeRecord], EpisodeRecord]


@pytest.fixture
def run(real: Slice, tmp_path: Path) -> Path:
    return real.copy(tmp_path)


def wrong_tokens(record: EpisodeRecord) -> EpisodeRecord:
    events: list[Any] = list(record.events)
    place = position(record, ModelTurn)
    events[place] = replace(events[place], input_tokens=1)
    return with_events(record, events)


def outside_the_grid(record: EpisodeRecord) -> EpisodeRecord:
    return replace(record, task="nowhere")


def second_attempt(record: EpisodeRecord) -> EpisodeRecord:
    return replace(record, attempt=2)


def damaged(folder: Path, place: int, edit: Edit) -> int:
    return edit_record(folder, read_records(folder)[place].episode_id, edit)


def told_by(folder: Path, world: Any, workers: int = 1) -> str:
    with pytest.raises(InvalidRunError) as caught:
        aggregate(folder, world, workers=workers)
    return str(caught.value)


@pytest.mark.parametrize("at_home", [0, 7, 2_000])
def test_several_processes_give_the_bytes_and_the_refusals_of_one(
    real: Slice, run: Path, at_home: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gates.parallel_replay._AT_HOME", at_home)
    assert list(aggregate(run, real.world, workers=2).chunks()) == list(aggregate(run, real.world).chunks())
    damaged(run, 20, wrong_tokens)
    assert "input tokens where" in told_by(run, real.world, 2)
    assert told_by(run, real.world, 2) == told_by(run, real.world)


@pytest.mark.parametrize("later", [outside_the_grid, second_attempt, wrong_tokens])
@pytest.mark.parametrize("sooner", [wrong_tokens, second_attempt])
@pytest.mark.parametrize("places", [(0, 1), (2, 3), (3, 29), (5, 6), (27, 28)])
def test_of_two_faults_the_first_is_told_wherever_records_are_judged(
    real: Slice, run: Path, places: tuple[int, int], sooner: Edit, later: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = places
    damaged(run, second, later)
    line = damaged(run, first, sooner)
    here = told_by(run, real.world)
    assert f"line {line}" in here
    monkeypatch.setattr("gates.aggregate.bench", late_bench)
    monkeypatch.setattr("gates.parallel_replay._BATCH", 4)
    assert told_by(run, real.world) == here


def test_a_broken_chain_is_told_after_what_stands_before_it(
    real: Slice, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = damaged(run, 1, wrong_tokens)
    shard = run / shard_name(WHOLE)
    lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(b"".join([*lines[:9], lines[9].replace(b'"turn":1', b'"turn":2', 1), *lines[10:]]))
    monkeypatch.setattr("gates.aggregate.bench", late_bench)
    assert f"line {line}" in told_by(run, real.world)


def test_no_more_is_out_than_the_processes_need(real: Slice, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.parallel_replay._BATCH", 2)
    monkeypatch.setattr("gates.parallel_replay._BATCHES_A_WORKER", 2)
    lines = [line for line in read_lines(run / shard_name(WHOLE)) if isinstance(line, RawLine)]
    judge = Judge(real.protocol, real.surface, real.catalogs, timed=False)
    given: list[Case] = []
    with late_bench(judge, 2) as made:
        for place, line in enumerate(lines):
            given += [case for case, _ in made.take(Case(line, place))]
            # Two batches for each of two processes, and one that is being filled or waited for.
            assert place + 1 - len(given) <= 2 * (2 * 2) + 2
        given += [case for case, _ in made.rest()]
    assert [case.place for case in given] == list(range(len(lines)))


class Dying(Judge):
    """Ends its process at the first record that it is given."""

    def __call__(self, line: RawLine) -> Judged:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def dying() -> Judge:
    return Dying(load_protocol("development"), load_surface("development"), {}, timed=False)


def stillborn() -> Judge:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def unable() -> Judge:
    raise InvalidRunError("no such thing; take another")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (dying, "ended by itself; nothing was written.*fewer --workers"),
        (stillborn, "ended by itself; nothing was written"),
        (unable, "no such thing; take another"),
    ],
)
def test_a_process_that_cannot_judge_is_told_with_a_remedy(
    real: Slice, run: Path, make: Callable[[], Judge], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gates.parallel_replay._AT_HOME", 0)
    monkeypatch.setattr("gates.parallel_replay.Recipe", lambda *_: make)
    with pytest.raises(InvalidRunError, match=told):
        aggregate(run, real.world, workers=2)


def test_a_process_with_other_code_judges_nothing(real: Slice, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gates.parallel_replay._AT_HOME", 0)
    monkeypatch.setattr("gates.parallel_replay.whole_fingerprint", lambda: "other")
    with pytest.raises(InvalidRunError, match="has other code"):
        aggregate(run, real.world, workers=2)


ORPHANED = """
import os, signal
from pathlib import Path
from gates.parallel_replay import Judge, Case, bench
from gates import parallel_replay
from preregistration.protocol import load_protocol
from surface.loader import load_surface

parallel_replay._AT_HOME = 0
parallel_replay._BATCH = 1
if __name__ == "__main__":
    with bench(Judge(load_protocol("development"), load_surface("development"), {}, False), 2) as made:
        for _ in range(2):
            made._pool.submit(os.getpid).result()
        print("at work", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_the_one_that_began_them(tmp_path: Path) -> None:
    script = tmp_path / "orphaned.py"
    script.write_text(ORPHANED)
    # They hold its output too: it ends when the last of them has.
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, env=environment(), cwd=ROOT, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "at work\n")


def test_an_attempt_that_the_machine_ended_is_followed_by_the_next_one(
    real: Slice, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parallel_replay._BATCH > 1
    monkeypatch.setattr("gates.aggregate.bench", late_bench)

    def failed(record: EpisodeRecord) -> EpisodeRecord:
        return with_events(record, [*record.events[:1], Ended(0, "infrastructure", "no memory", ())])

    damaged(run, 4, failed)
    assert "not terminal: 29 of 30" in told_by(run, real.world)
