"""One process at a time in a run directory; what a dead one left behind holds nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conditions.running.plan import WHOLE
from conditions.storage.run_lock import hold, hold_named, lock_name
from schemarouter.errors import InvalidRunError

ROOT = Path(__file__).resolve().parents[3]
NAME = lock_name(WHOLE)
# Holds the folder until its stdin closes; on a file system whose flock fails with an error, if one is named.
HOLDER = """
import fcntl, os, sys
from pathlib import Path
from conditions.storage.run_lock import hold

def flock(descriptor, operation):
    raise OSError(int(sys.argv[2]), "not supported")

if sys.argv[2] != "0":
    fcntl.flock = flock
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path, number: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a folder."""
    command = [sys.executable, "-c", HOLDER, str(folder), str(number)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=env) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child


def holder_text(folder: Path) -> str:
    """Who holds a folder, as the file beside the lock says."""
    return (folder / f"{NAME}.holder").read_text()


def without_flock(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Be on a file system whose flock fails with an error."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, "not supported")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_held_folder_names_by_whom_and_since_when_and_is_clean_afterwards(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    with hold(tmp_path / "new"):
        by, since = holder_text(tmp_path / "new").split(" since ")
    assert by == f"process {os.getpid()} on host {socket.gethostname()}"
    assert before <= datetime.fromisoformat(since) <= datetime.now(UTC)
    assert [*(tmp_path / "new").iterdir()] == []


def test_another_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        with pytest.raises(
            InvalidRunError, match=f"in use by process {child.pid} on host .+ since 20.*--out"
        ) as caught:
            hold(tmp_path).__enter__()
        assert str(tmp_path) in str(caught.value) and "delete" not in str(caught.value)
        child.communicate()
    with hold(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("number", [0, errno.ENOTSUP])
def test_who_is_patient_waits_for_the_first_to_end(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number:
        without_flock(monkeypatch, number)
    with holder(tmp_path, number) as child:
        with pytest.raises(InvalidRunError, match="in use by process"):
            hold_named(tmp_path, NAME, timeout=0.1).__enter__()
        waited: list[float] = []

        def ended_meanwhile(seconds: float) -> None:
            waited.append(seconds)
            child.communicate()

        monkeypatch.setattr("time.sleep", ended_meanwhile)
        with hold_named(tmp_path, NAME, timeout=60):
            assert len(waited) == 1
    assert [*tmp_path.iterdir()] == []


def test_a_killed_process_holds_nothing_though_its_files_stay(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        child.kill()
        child.wait()
    assert f"process {child.pid} " in holder_text(tmp_path)
    with hold(tmp_path):
        assert f"process {os.getpid()} " in holder_text(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("error", [InvalidRunError("x"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_whatever_ends_the_block_lets_go(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)), hold(tmp_path):
        raise error
    with hold(tmp_path):
        pass


def test_a_holder_that_has_not_said_who_it_is_refuses_all_the_same(tmp_path: Path) -> None:
    with hold(tmp_path):
        for spoil in (lambda path: path.write_bytes(b""), Path.unlink, os.mkfifo):
            spoil(tmp_path / f"{NAME}.holder")
            with pytest.raises(InvalidRunError, match="in use by another process"):
                hold(tmp_path).__enter__()


def test_a_lock_that_was_opened_before_it_was_taken_away_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    first = hold(tmp_path)
    first.__enter__()

    def flock(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        first.__exit__(None, None, None)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_named(tmp_path, NAME, timeout=60), pytest.raises(InvalidRunError, match=f"process {os.getpid()}"):
        hold(tmp_path).__enter__()


def test_the_lock_of_a_later_holder_is_not_taken_away(tmp_path: Path) -> None:
    with hold(tmp_path):
        (tmp_path / NAME).unlink()
        later = holder(tmp_path)
        child = later.__enter__()
    with pytest.raises(InvalidRunError, match=f"process {child.pid}"):
        hold(tmp_path).__enter__()
    later.__exit__(None, None, None)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK], ids=errno.errorcode.get)
def test_where_there_is_no_flock_a_living_process_holds_and_a_killed_one_does_not(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_flock(monkeypatch, number)
    with holder(tmp_path, number) as child:
        with pytest.raises(
            InvalidRunError, match=rf"in use by process {child.pid} on .* delete .*/{re.escape(NAME)}\.marker"
        ):
            hold(tmp_path).__enter__()
        child.kill()
        child.wait()
    with hold_named(tmp_path, NAME, timeout=60):
        assert f"process {os.getpid()} " in holder_text(tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("end", ["", ".holder"])
def test_nothing_is_written_through_a_link(end: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f"{NAME}{end}").symlink_to(tmp_path / "thesis.txt")
    if end:
        with hold(tmp_path / "run"):
            pass
    else:
        with pytest.raises(InvalidRunError, match="cannot be written"):
            hold(tmp_path / "run").__enter__()
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", [NAME, f"{NAME}.holder"])
def test_a_folder_instead_of_a_file_is_one_message_and_holds_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    for _ in range(2):
        with pytest.raises(InvalidRunError, match=f"{re.escape(name)}: cannot be written"):
            hold(tmp_path).__enter__()
    (tmp_path / name).rmdir()
    with hold(tmp_path):
        pass


def test_a_folder_that_cannot_be_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidRunError, match=f"{re.escape(NAME)}: cannot be written"):
        hold(tmp_path / "file" / "run").__enter__()
