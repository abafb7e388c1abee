"""One process at a time in a run directory; what a dead one left behind holds nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conditions.running.plan import WHOLE
from conditions.storage import run_lock
from conditions.storage.run_lock import hold, hold_named, lock_name
from schemarouter.errors import InvalidRunError

ROOT = Path(__file__).resolve().parents[3]
# Holds the folder until its stdin closes.
HOLDER = """
import sys
from pathlib import Path
from conditions.storage.run_lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a folder."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=env) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child


def test_a_held_folder_tells_by_whom_and_since_when_and_is_clean_afterwards(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    with hold(tmp_path / "new"):
        told = json.loads((tmp_path / "new" / lock_name(WHOLE)).read_bytes())
    assert (told["pid"], told["host"]) == (os.getpid(), socket.gethostname())
    assert before <= datetime.fromisoformat(told["since"]) <= datetime.now(UTC)
    assert [*(tmp_path / "new").iterdir()] == []


def test_another_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        with pytest.raises(
            InvalidRunError, match=f"in use by process {child.pid} on host .+ since 20.*--out"
        ) as caught:
            hold(tmp_path).__enter__()
        assert str(tmp_path) in str(caught.value) and (tmp_path / lock_name(WHOLE)).exists()
        child.communicate()
    with hold(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def test_who_is_patient_waits_for_the_first_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(tmp_path) as child:
        with pytest.raises(InvalidRunError, match="in use by process"):
            hold_named(tmp_path, lock_name(WHOLE), patience=0.1).__enter__()
        waited: list[float] = []

        def ended_meanwhile(seconds: float) -> None:
            waited.append(seconds)
            child.communicate()

        monkeypatch.setattr("time.sleep", ended_meanwhile)
        with hold_named(tmp_path, lock_name(WHOLE), patience=60):
            assert len(waited) == 1
    assert [*tmp_path.iterdir()] == []


def test_a_killed_process_holds_nothing_though_its_file_stays(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        child.kill()
        child.wait()
    assert (tmp_path / lock_name(WHOLE)).exists()
    with hold(tmp_path):
        assert json.loads((tmp_path / lock_name(WHOLE)).read_bytes())["pid"] == os.getpid()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("error", [InvalidRunError("x"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_whatever_ends_the_block_lets_go(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)), hold(tmp_path):
        raise error
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff"], ids=repr)
def test_a_holder_that_has_not_said_who_it_is_refuses_all_the_same(content: bytes, tmp_path: Path) -> None:
    with hold(tmp_path):
        (tmp_path / lock_name(WHOLE)).write_bytes(content)
        with pytest.raises(InvalidRunError, match="in use by another process"):
            hold(tmp_path).__enter__()


def test_a_file_taken_away_between_opening_and_locking_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    taken: list[bool] = []

    def flock(descriptor: int, operation: int) -> None:
        if not taken:
            taken.append(True)
            (tmp_path / lock_name(WHOLE)).unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold(tmp_path), pytest.raises(InvalidRunError, match=f"process {os.getpid()}"):
        hold(tmp_path).__enter__()
    assert taken


def test_the_lock_of_a_later_holder_is_not_taken_away(tmp_path: Path) -> None:
    with hold(tmp_path):
        (tmp_path / lock_name(WHOLE)).unlink()
        (tmp_path / lock_name(WHOLE)).write_text("another's")
    assert (tmp_path / lock_name(WHOLE)).read_text() == "another's"


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, None])
def test_where_flock_is_not_supported_the_holder_that_the_file_names_counts(
    number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, "not supported")

    if number is None:
        monkeypatch.setattr(run_lock, "fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", flock)
    place = tmp_path / lock_name(WHOLE)
    with hold(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []
    for host, pid, refused in (
        (socket.gethostname(), os.getppid(), True),
        ("another-host", 1, True),
        (socket.gethostname(), _ended_process(), False),
    ):
        place.write_text(json.dumps({"host": host, "pid": pid, "since": "2026-01-01T00:00:00+00:00"}))
        if refused:
            with pytest.raises(InvalidRunError, match=rf"process {pid} on host {host} .* delete .*\.lock-"):
                hold(tmp_path).__enter__()
            assert place.exists()
        else:
            with hold(tmp_path):
                assert json.loads(place.read_bytes())["pid"] == os.getpid()
    place.write_text("torn")
    with hold(tmp_path):
        pass


def _ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_link_in_the_place_of_the_lock_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / lock_name(WHOLE)).symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(InvalidRunError, match="cannot be written"):
        hold(tmp_path / "run").__enter__()
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_folder_in_the_place_of_the_lock_is_one_message(tmp_path: Path) -> None:
    (tmp_path / lock_name(WHOLE)).mkdir()
    with pytest.raises(InvalidRunError, match=lock_name(WHOLE)):
        hold(tmp_path).__enter__()
