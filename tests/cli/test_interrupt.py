"""Ctrl-C keeps what was done; the same command resumes to the same result."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conditions.running.plan import Unit
from conditions.running.runner import Runner
from schemarouter.records import EpisodeRecord
from tests.cli.conftest import Copies
from tests.cli.program import EPISODES, ROOT, SHARD_FILE, SMALL, aggregated, copied, environment, inside, outside

pytestmark = pytest.mark.slow

MANY = 200
COMMAND = ("--retriever", "bm25", "--catalog", "100", "--limit", str(MANY), "--display", "plain")
# A child of a shell's background job would ignore SIGINT, and this test with it.
PROGRAM = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('schemarouter', run_name='__main__', alter_sys=True)"
)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interruption_is_130_keeps_what_was_done_and_the_next_run_completes_it(
    sent: signal.Signals, workers: str, tmp_path: Path
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    command = [sys.executable, "-c", PROGRAM, "run", "--out", str(out), *COMMAND, "--workers", workers]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    ) as child:
        assert child.stderr is not None
        first = child.stderr.readline().decode()
        child.send_signal(sent)
        stdout, rest = child.communicate()
    assert first.endswith(f"/{MANY} episodes\n")
    assert (child.returncode, stdout) == (130, b"")
    assert b"Traceback" not in rest and rest.endswith(b"interrupted; finished work is kept.\n")
    counts = inside("status", out, "--json").json
    assert int(first.split("/")[0]) <= counts["finished"] < MANY
    assert not counts["complete"]
    kept = (out / SHARD_FILE).read_bytes()
    # Outside too: this process may have read the code long before the child did.
    assert outside("run", "--out", out, *COMMAND).code == 0
    assert (out / SHARD_FILE).read_bytes().startswith(kept)
    assert inside("run", "--out", other, *COMMAND).code == 0
    assert aggregated(out) == aggregated(other)


@pytest.mark.parametrize("after", [0, 1, 7])
def test_an_interrupted_episode_leaves_no_line(
    after: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Unit] = []
    run = Runner.run

    def interrupted(self: Runner, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        begun.append(unit)
        if len(begun) > after:
            raise KeyboardInterrupt
        return run(self, unit, attempt=attempt)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", interrupted)
        assert inside("run", "--out", tmp_path / "out", *SMALL).code == 130
    assert inside("status", tmp_path / "out", "--json").json["finished"] == after
    assert inside("run", "--out", tmp_path / "out", *SMALL).code == 0
    assert aggregated(tmp_path / "out") == aggregated(copied(small, tmp_path / "whole"))


def test_an_interruption_says_that_what_was_done_is_kept(copy: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> EpisodeRecord:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "run", interrupted)
    result = inside("run", "--out", copy(lines=EPISODES - 1), *SMALL)
    assert (result.code, result.stdout, result.err) == (130, b"", "interrupted; finished work is kept.\n")


def test_a_failure_of_the_machine_is_exit_3_on_record_and_run_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = copied(small, tmp_path / "whole")

    def full(*_: object, **__: object) -> None:
        raise MemoryError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr("surface.environment.Environment.execute", full)
        failed = inside("run", "--out", tmp_path / "out", *SMALL)
    assert failed.code == 3
    assert failed.err.startswith("error: dev-de-01/100/") and "MemoryError" in failed.err
    counts = inside("status", tmp_path / "out", "--json").json
    assert counts["infrastructure_attempts"] == 3
    assert "3 attempts" in inside("status", tmp_path / "out").out
    assert inside("gate", tmp_path / "out").code == 3
    assert inside("run", "--out", tmp_path / "out", *SMALL).code == 0
    expected = aggregated(whole).replace(b'"infrastructure_attempts": 0', b'"infrastructure_attempts": 3')
    assert aggregated(tmp_path / "out") == expected
