"""A log on the disk: each line in one write, synced by group; files written whole, in pieces, or where there is none yet."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from itertools import count
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.plan import WHOLE
from conditions.storage.append_log import Log
from conditions.storage.shards import shard_name, timing_name
from schemarouter.errors import InvalidRunError
from schemarouter.files import write_all, write_new, write_whole
from tests.strategies import LAWS
from tests.toys import toy_run

FULL = OSError(errno.ENOSPC, "No space left on device")
# A deadline against a hang, never waited for when all is well.
PATIENCE = 30.0
real_fsync = os.fsync


class Syncs:
    """Stands for os.fsync: counts the syncs of one file, reports each, and fails on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen = threading.Event()
        self.sizes: list[int] = []
        self.threads: set[str] = set()
        self.error: OSError | None = None

    def __call__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not os.path.samestat(status, self._path.stat()):
            real_fsync(descriptor)
            return
        self.sizes.append(status.st_size)
        self.threads.add(threading.current_thread().name)
        self.seen.set()
        if self.error is not None:
            raise self.error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def syncs(path: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Syncs of the log, whose thread syncs at once."""
    recorder = Syncs(path)
    monkeypatch.setattr("conditions.storage.append_log.GROUP_SECONDS", 1e-4)
    monkeypatch.setattr(os, "fsync", recorder)
    return recorder


@pytest.fixture
def patient(path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Syncs of a log whose thread has no turn before it is closed."""
    monkeypatch.setattr("conditions.storage.append_log.GROUP_SECONDS", PATIENCE)
    return syncs


def syncers(path: Path) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"sync {path.name}"]


def failed(log: Log) -> None:
    """Wait until the thread of a log has given up."""
    for thread in syncers(log.path):
        thread.join(PATIENCE)
        assert not thread.is_alive()


# --- the log --------------------------------------------------------------------------------------------------------


def test_a_line_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(file: FileIO, data: bytes) -> None:
        written.append(data)
        write_all(file, data)

    monkeypatch.setattr("conditions.storage.append_log.write_all", write)
    lines = [b"one\n", "두 줄\u2028\u0085\n".encode(), b"x" * 100_000 + b"\n"]
    with Log(path) as log:
        for number, line in enumerate(lines, start=1):
            log.append(line)
            assert path.read_bytes() == b"".join(lines[:number]), "nothing waits in a buffer"
    assert written == lines


def test_a_log_says_whether_it_began_empty_and_is_appended_to(path: Path) -> None:
    with Log(path) as log:
        assert log.empty
        log.append(b"one\n")
    with Log(path) as log:
        assert not log.empty
        log.append(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_group_is_synced_though_nothing_more_is_written(path: Path, syncs: Syncs) -> None:
    with Log(path) as log:
        log.append(b"one\n")
        assert syncs.seen.wait(PATIENCE)
        assert syncs.sizes[0] == 4 and syncs.threads == {f"sync {path.name}"}


def test_every_line_that_was_written_is_synced_by_the_thread(path: Path, syncs: Syncs) -> None:
    with Log(path) as log:
        for number in range(1, 6):
            syncs.seen.clear()
            log.append(b"line\n")
            while syncs.seen.wait(PATIENCE) and syncs.sizes[-1] < 5 * number:
                syncs.seen.clear()
            assert syncs.sizes[-1] == 5 * number


def test_closing_syncs_what_no_group_has_and_ends_the_thread(path: Path, patient: Syncs) -> None:
    with Log(path) as log:
        log.append(b"one\n")
        assert syncers(path) and patient.sizes == []
    assert patient.sizes == [4] and patient.threads == {threading.current_thread().name}
    assert syncers(path) == []


def test_syncing_brings_it_to_the_disk_at_once_or_says_why_not(path: Path, patient: Syncs) -> None:
    with Log(path) as log:
        log.append(b"one\n")
        log.sync()
        assert patient.sizes == [4]
        patient.error = OSError(errno.EIO, "Input/output error")
        with pytest.raises(InvalidRunError, match=r"log\.jsonl: cannot be written \(Input/output error\)"):
            log.sync()
        patient.error = None


def test_a_log_that_is_not_durable_has_no_thread_and_is_never_synced(path: Path, syncs: Syncs) -> None:
    with Log(path, durable=False) as log:
        log.append(b"one\n")
        assert syncers(path) == []
    assert syncs.sizes == [] and path.read_bytes() == b"one\n"


def test_a_sync_that_failed_behind_the_scenes_is_raised_at_the_next_line(path: Path, syncs: Syncs) -> None:
    syncs.error = OSError(errno.EIO, "Input/output error")
    log = Log(path)
    log.append(b"one\n")
    failed(log)
    # A second sync of the same pages may well succeed, and means nothing.
    syncs.error = None
    for _ in range(2):
        with pytest.raises(InvalidRunError, match=r"log\.jsonl: cannot be written \(Input/output error\)"):
            log.append(b"two\n")
    with pytest.raises(InvalidRunError, match="Input/output error"):
        log.close()
    assert path.read_bytes() == b"one\n"


def log_that_fails(path: Path, ended: BaseException | None = None) -> None:
    """Write a line, let the thread fail at it, and end the block, by an error of its own if one is given."""
    with Log(path) as log:
        log.append(b"one\n")
        failed(log)
        if ended is not None:
            raise ended


def test_a_sync_that_failed_after_the_last_line_is_raised_at_the_end_and_once(path: Path, syncs: Syncs) -> None:
    syncs.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(InvalidRunError, match="Input/output error") as caught:
        log_that_fails(path)
    assert caught.value.__context__ is None or isinstance(caught.value.__context__, OSError)


def test_what_ended_the_block_is_raised_and_not_the_sync_that_failed_too(path: Path, syncs: Syncs) -> None:
    syncs.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(KeyError, match="first"):
        log_that_fails(path, KeyError("first"))
    assert syncers(path) == []


def taking(space: int) -> Callable[[FileIO, bytes], None]:
    """Stands for write_all on a disk with so much space."""

    def write(file: FileIO, data: bytes) -> None:
        nonlocal space
        taken = data[:space]
        file.write(taken)
        space -= len(taken)
        if len(taken) < len(data):
            raise FULL

    return write


@pytest.mark.parametrize("space", range(0, 13, 3))
def test_the_half_of_a_line_that_a_full_disk_took_is_taken_back(
    space: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b"alpha\nbeta\n"
    with monkeypatch.context() as patch, Log(path) as log:
        patch.setattr("conditions.storage.append_log.write_all", taking(space))
        took = 0
        for line in whole.splitlines(keepends=True):
            if took + len(line) <= space:
                log.append(line)
                took += len(line)
                continue
            with pytest.raises(InvalidRunError, match=r"\(No space left on device\); finished work is kept"):
                log.append(line)
            break
        assert path.read_bytes() == whole[:took]
        patch.setattr("conditions.storage.append_log.write_all", write_all)
        log.append(b"space again\n")
    assert path.read_bytes() == whole[:took] + b"space again\n"


def test_what_a_full_disk_took_and_cannot_give_back_is_one_message(path: Path) -> None:
    # This device takes nothing and cannot be cut either.
    path.symlink_to("/dev/full")
    with Log(path, durable=False) as log, pytest.raises(InvalidRunError, match="No space left on device"):
        log.append(b"alpha\n")


@pytest.mark.parametrize("way", ["removed", "moved", "replaced", "folder removed"])
def test_a_file_that_goes_away_under_the_log_is_refused_at_the_next_line_and_at_the_end(
    way: str, tmp_path: Path
) -> None:
    path = tmp_path / "run" / "log.jsonl"
    path.parent.mkdir()
    log = Log(path)
    log.append(b"one\n")
    if way == "moved":
        path.parent.rename(tmp_path / "moved")
    else:
        path.unlink()
    if way == "replaced":
        path.write_bytes(b"another's\n")
    if way == "folder removed":
        path.parent.rmdir()
    with pytest.raises(InvalidRunError, match=r"log\.jsonl: was moved or removed while it was written to"):
        log.append(b"two\n")
    with pytest.raises(InvalidRunError, match=r"log\.jsonl: was moved or removed"):
        log.close()
    assert syncers(path) == []
    if way == "moved":
        assert (tmp_path / "moved" / path.name).read_bytes() == b"one\n"
    if way == "replaced":
        assert path.read_bytes() == b"another's\n"


def test_a_place_where_no_log_can_be_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRunError, match=r"cannot be written \(Not a directory\)"):
        Log(tmp_path / "file" / "log.jsonl")


def backwards() -> Iterator[float]:
    """The seconds of a clock that is set back an hour whenever it is looked at."""
    return (2e9 - 3600.0 * hour for hour in count())


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_run(tmp_path / "usual", limit=6)
    times = backwards()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(times))
        patch.setattr(time, "time_ns", lambda: int(next(times) * 1e9))
        toy_run(tmp_path / "run", limit=6)
    name = shard_name(WHOLE)
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "usual" / name).read_bytes()
    lines = (tmp_path / "run" / timing_name(WHOLE)).read_bytes().splitlines()
    assert len(lines) == 6 and all(orjson.loads(line)["wall_ms"] > 0 for line in lines)


# --- whole files ----------------------------------------------------------------------------------------------------


class Scant(FileIO):
    """A file that takes three bytes at once."""

    def write(self, data: object) -> int:
        return super().write(bytes(data)[:3])  # type: ignore[call-overload]


@LAWS
@given(data=st.binary(max_size=40))
def test_all_of_it_is_written_though_a_file_takes_little_at_once(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("scant") / "file"
    with Scant(path, "w") as file:
        write_all(file, data)
    assert path.read_bytes() == data


def test_a_new_file_is_written_where_there_is_none(path: Path) -> None:
    assert write_new(path, b"mine\n") is True
    assert path.read_bytes() == b"mine\n" and path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_another_process_put_there_stays(path: Path) -> None:
    path.write_bytes(b"another's\n")
    assert write_new(path, b"mine\n") is False
    assert path.read_bytes() == b"another's\n" and list(path.parent.iterdir()) == [path]


def test_of_many_that_write_one_new_file_one_is_first(path: Path) -> None:
    start, first = threading.Barrier(8), []

    def write(number: int) -> None:
        start.wait(PATIENCE)
        if write_new(path, b"%d" % number):
            first.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(first) == 1 and path.read_bytes() == b"%d" % first[0]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK], ids=errno.errorcode.get)
def test_where_there_are_no_links_a_new_file_is_moved_in(
    number: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    assert write_new(path, b"mine\n") is True
    assert path.read_bytes() == b"mine\n" and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("where", ["os.fsync", "schemarouter.files.write_all"])
def test_a_new_file_that_a_full_disk_does_not_take_leaves_nothing(
    where: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(where, failing)
    with pytest.raises(InvalidRunError, match=r"log\.jsonl: cannot be written \(No space left on device\)"):
        write_new(path, b"mine\n")
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "pieces",
    [[], [b""], [b"a", b"b", b"c"], [b"x" * 1000] * 3000, [b"y" * (3 << 20), b"z"]],
    ids=["none", "empty", "three", "many", "large"],
)
def test_pieces_are_written_as_they_are_and_in_few_writes(
    pieces: list[bytes], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def write(file: FileIO, data: bytes) -> None:
        sizes.append(len(data))
        write_all(file, data)

    monkeypatch.setattr("schemarouter.files.write_all", write)
    write_whole(path, iter(pieces))
    assert path.read_bytes() == b"".join(pieces)
    assert len(sizes) <= 1 + sum(sizes) // (1 << 20) and list(path.parent.iterdir()) == [path]


def test_pieces_that_end_in_an_error_leave_the_file_that_was_there(path: Path) -> None:
    path.write_bytes(b"before")

    def pieces() -> Iterator[bytes]:
        yield b"x" * (2 << 20)
        raise KeyError("row 7")

    with pytest.raises(KeyError, match="row 7"):
        write_whole(path, pieces())
    assert path.read_bytes() == b"before" and list(path.parent.iterdir()) == [path]
