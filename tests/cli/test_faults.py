"""Killed, interrupted, disk full: the same command resumes to the same result, and nothing is left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pebble
import pytest

from conditions.running.plan import WHOLE, Shard, Unit
from conditions.running.runner import Runner
from conditions.storage.run_directory import RUN_FILE
from conditions.storage.shards import ProgressCounts, count_episodes, join_line, shard_name, split_line, timing_name
from schemarouter.agents.reference import Reference
from schemarouter.records import EpisodeRecord, decode, encode
from tests.cli.conftest import Copies
from tests.cli.processes import PATIENCE_MS, PROGRAM, Family, started, wait_for
from tests.cli.program import EPISODES, SHARD_FILE, SMALL, aggregated, copied, files, inside, outside, refused

pytestmark = pytest.mark.slow

TWO = ("--workers", "2")
# Enough for workers to be at work when the first tenth is reported.
MANY = ("--retriever", "bm25", "--catalog", "100", "--limit", "120", "--display", "plain")
FIRST = "12/120 episodes\n"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """aggregate.json of the run that nothing befell."""
    folder = tmp_path_factory.mktemp("many") / "run"
    assert inside("run", "--out", folder, *MANY).code == 0
    return aggregated(folder)


def goes_on(folder: Path, *command: str) -> bytes:
    """Run the same command again, in a process that reads the same code as the one before; the aggregate."""
    again = outside("run", "--out", folder, *command)
    assert again.code == 0, again.err
    return aggregated(folder)


# --- killed and interrupted -----------------------------------------------------------------------------------------

# Syncs at once, and never comes back from the sync of a shard that holds three episodes: it is written and not on the disk.
UNSYNCED = """
import os, runpy, sys, threading
import conditions.storage.append_log
conditions.storage.append_log.GROUP_SECONDS = 1e-4
real = os.fsync
def fsync(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if "/episodes-" in path and open(path, "rb").read().count(b"\\n") > 3:
        print("unsynced", file=sys.stderr, flush=True)
        threading.Event().wait()
    real(descriptor)
os.fsync = fsync
runpy.run_module("schemarouter", run_name="__main__", alter_sys=True)
"""


def test_a_kill_between_write_and_sync_loses_nothing_that_the_system_holds(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started("run", "--out", out, *SMALL, program=UNSYNCED) as family:
        assert family.next_line() == "unsynced\n"
        family.child.kill()
        family.ended()
    kept = (out / SHARD_FILE).read_bytes()
    assert inside("status", out, "--json").json["finished"] >= 3
    assert (small / SHARD_FILE).read_bytes().startswith(kept)
    assert goes_on(out, *SMALL) == aggregated(copied(small, tmp_path / "whole"))


def counted(folder: Path) -> int:
    finished: int = inside("status", folder, "--json").json["finished"]
    return finished


def test_ctrl_c_twice_ends_all_processes_and_the_run_goes_on(tmp_path: Path, many: bytes) -> None:
    out = tmp_path / "out"
    with started("run", "--out", out, *MANY, *TWO) as family:
        assert family.next_line() == FIRST
        workers = family.others()
        assert len(workers) >= 2
        family.interrupt()
        # The second one comes while the first is stopping the workers.
        assert any(wait_for(pid) for pid in workers)
        family.interrupt()
        said = family.ended()
        assert family.left() == []
    assert family.child.returncode in (130, -signal.SIGINT)
    assert said.splitlines()[-1] == "interrupted; finished work is kept." and "Traceback" not in said
    assert 12 <= counted(out) < 120
    assert goes_on(out, *MANY) == many


def test_an_interruption_while_workers_are_stopped_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = pebble.ProcessPool.stop

    def stopped(self: pebble.ProcessPool) -> None:
        signal.raise_signal(signal.SIGINT)
        stop(self)  # type: ignore[no-untyped-call]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pebble.ProcessPool, "stop", stopped)
    monkeypatch.setattr("conditions.running.engines.pool._PoolWorkers.wait", interrupted)
    result = inside("run", "--out", tmp_path / "out", *SMALL, *TWO)
    assert (result.code, result.err) == (130, "interrupted; finished work is kept.\n")
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_whose_parent_is_killed_end_by_themselves_and_the_run_goes_on(tmp_path: Path, many: bytes) -> None:
    out = tmp_path / "out"
    with started("run", "--out", out, *MANY, *TWO) as family:
        assert family.next_line() == FIRST
        assert len(family.others()) >= 2
        family.child.kill()
        family.child.wait()
        assert family.left() == []
    assert counted(out) >= 12
    assert goes_on(out, *MANY) == many


# --- no space, no right, no folder ----------------------------------------------------------------------------------


def limit_files(size: int) -> None:
    """Files of this process and its children cannot grow beyond that, which is an error and does not kill."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


SCANT = "import tests.cli.test_faults as it; it.limit_files({size}); {program}"


def out_of_room(family: Family, name: str) -> None:
    """Assert that a child was refused disk space with one message."""
    said = family.ended()
    assert (family.child.returncode, said.count("error: "), "Traceback" in said) == (3, 1, False), said
    assert said.startswith("error: ") and f"{name}: cannot be written (File too large); finished work is kept." in said
    assert family.left() == []


def test_a_shard_of_several_workers_for_which_there_is_no_room_stays_valid_and_goes_on(
    small: Path, tmp_path: Path
) -> None:
    out, size = tmp_path / "out", 41_001
    with started("run", "--out", out, *SMALL, *TWO, program=SCANT.format(size=size, program=PROGRAM)) as family:
        out_of_room(family, SHARD_FILE)
    data = (out / SHARD_FILE).read_bytes()
    assert data.endswith(b"\n") and len(data) <= size
    assert 0 < counted(out) == data.count(b"\n") - 1 < EPISODES
    assert goes_on(out, *SMALL) == aggregated(copied(small, tmp_path / "whole"))


READ_ONLY = OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize("command", ["run", "aggregate", "gate", "merge"])
def test_a_disk_that_is_read_only_is_one_message_and_left_as_it_is(
    command: str, copy: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = copy(lines=7 if command == "run" else None), os.open
    target = tmp_path / "merged"
    elsewhere = (folder, "--out", target)
    arguments = {"run": ("--out", folder, *SMALL), "merge": elsewhere, "gate": elsewhere}.get(command, (folder,))
    before = files(folder)

    def open_(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise READ_ONLY
        return opened(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_)
        refused(inside(command, *arguments), 3, tmp_path, "Read-only file system")
        assert inside("status", folder).code == 0
    assert files(folder) == before
    assert not target.exists() or not files(target)


def _removed(out: Path) -> None:
    shutil.rmtree(out)


def _moved(out: Path) -> None:
    out.rename(out.with_name("moved"))


@pytest.mark.parametrize("away", [_removed, _moved])
@pytest.mark.parametrize("after", [5, EPISODES])
def test_a_directory_that_goes_away_while_it_is_written_is_one_message(
    away: Callable[[Path], None], after: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run, begun = tmp_path / "out", Runner.run, []

    def running(self: Runner, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        begun.append(unit)
        if len(begun) == after:
            away(out)
        return run(self, unit, attempt=attempt)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", running)
        refused(inside("run", "--out", out, *SMALL), 3, out, "was moved or removed")
    if away is _moved:
        assert counted(tmp_path / "moved") == after - 1
        (tmp_path / "moved").rename(out)
    assert inside("run", "--out", out, *SMALL).code == 0
    assert (out / SHARD_FILE).read_bytes() == (small / SHARD_FILE).read_bytes()


# --- damaged shards, as the commands report them --------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two shards of the small run, in two directories; nobody writes to them."""
    folders = [tmp_path_factory.mktemp("halves") / f"half{index}" for index in (1, 2)]
    for index, folder in enumerate(folders, start=1):
        assert inside("run", "--out", folder, *SMALL, "--shard", f"{index}/2").code == 0
    return folders[0], folders[1]


FIRST_HALF, SECOND_HALF = (shard_name(Shard(index, 2)) for index in (1, 2))


@pytest.fixture
def parts(halves: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the two halves."""
    one, two = (copied(half, tmp_path / half.name) for half in halves)
    return one, two


Change = Callable[[list[bytes]], list[bytes]]
_FLIPPED = bytes([ord("m") ^ 1])
CHANGES: dict[str, tuple[Change, str]] = {
    "torn": (lambda x: [*x[:-1], x[-1][:-9]], "line 11: torn"),
    "flipped": (lambda x: [*x[:4], x[4].replace(b"model_turn", _FLIPPED + b"odel_turn", 1), *x[5:]], "line 5: the digest chain"),
    "doubled": (lambda x: [*x, x[-1]], "line 12: the digest chain"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_merge_refuses_a_damaged_shard_with_its_line_and_makes_nothing(
    name: str, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    change, words = CHANGES[name]
    shard = parts[1] / SECOND_HALF
    shard.write_bytes(b"".join(change(shard.read_bytes().splitlines(keepends=True))))
    refused(inside("merge", *parts, "--out", tmp_path / "merged"), 3, SECOND_HALF, words)
    assert not (tmp_path / "merged").exists()


def test_merge_refuses_what_is_missing_swapped_or_of_another_run(parts: tuple[Path, Path], tmp_path: Path) -> None:
    out, other = tmp_path / "merged", tmp_path / "other"
    refused(inside("merge", parts[0], "--out", out), 3, "shards missing: 2/2 (1 of 2)")
    refused(inside("gate", parts[0]), 3, "shards missing: 1 of 2", SECOND_HALF, "--shard 2/2")
    refused(inside("merge", tmp_path / "nowhere", "--out", out), 3, "does not exist")
    command = ("--retriever", "random(seed=2)", *SMALL[2:], "--shard", "2/2")
    assert inside("run", "--out", other, *command).code == 0
    refused(
        inside("merge", parts[0], other, "--out", out), 3, "of another run", "identities.retriever", "random(seed=2)"
    )
    # The shard of another run under this run's header: its own first line gives it away.
    shutil.copy(other / SECOND_HALF, parts[1])
    refused(inside("merge", *parts, "--out", out), 3, f"{SECOND_HALF}, line 1", "of another run", "random(seed=2)")
    shutil.copy(parts[0] / FIRST_HALF, parts[1] / SECOND_HALF)
    refused(inside("merge", *parts, "--out", out), 3, f"{SECOND_HALF}, line 1: the header is of shard [1, 2]")
    assert not out.exists()


def test_lines_of_another_run_in_a_shard_are_refused_by_run_and_merge(
    parts: tuple[Path, Path], small: Path, tmp_path: Path
) -> None:
    shard = parts[0] / FIRST_HALF
    stranger = (small / SHARD_FILE).read_bytes().splitlines(keepends=True)[1]
    shard.write_bytes(shard.read_bytes() + stranger)
    words = (f"{FIRST_HALF}, line 12", "the digest chain is broken")
    refused(inside("run", "--out", parts[0], *SMALL, "--shard", "1/2"), 3, *words)
    refused(inside("merge", *parts, "--out", tmp_path / "merged"), 3, *words)
    assert not (tmp_path / "merged").exists()


def test_a_shard_with_a_torn_line_is_cut_and_goes_on(parts: tuple[Path, Path], halves: tuple[Path, Path]) -> None:
    shard, timing = parts[1] / SECOND_HALF, parts[1] / timing_name(Shard(2, 2))
    shard.write_bytes(shard.read_bytes()[:-9])
    lines = timing.read_bytes().count(b"\n")
    assert counted(parts[1]) == 9
    assert inside("run", "--out", parts[1], *SMALL, "--shard", "2/2").code == 0
    assert shard.read_bytes() == (halves[1] / SECOND_HALF).read_bytes()
    assert timing.read_bytes().count(b"\n") == lines + 1


# --- texts with other line ends -------------------------------------------------------------------------------------

SEPARATORS = "one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1c"


def test_line_separators_in_texts_end_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ValueError(SEPARATORS)

    monkeypatch.setattr(Reference, "act", failing)
    apart = [tmp_path / "one", tmp_path / "two"]
    for index, folder in enumerate(apart, start=1):
        command = ("--retriever", "bm25", "--limit", "6", "--display", "none", "--shard", f"{index}/2")
        for _ in range(2):
            assert inside("run", "--out", folder, *command).code == 0
        data = (folder / shard_name(Shard(index, 2))).read_bytes()
        assert "\u2028".encode() in data and "\u0085".encode() in data and data.count(b"\n") == 4
        assert counted(folder) == 3
    assert inside("merge", *apart, "--out", tmp_path / "merged").code == 0
    assert counted(tmp_path / "merged") == 6
    assert b'"counted": 6' in aggregated(tmp_path / "merged")
    shown = inside("show", tmp_path / "merged", "dev-de-01/100/SR-5-STATIC")
    assert shown.code == 0 and "ValueError: one" in shown.out


# --- a run that is being written ------------------------------------------------------------------------------------

THREADS, READS = 8, 1_250


def _short(line: bytes) -> bytes:
    """The line of a record with all events left out: little to read, and of the same episode."""
    chain, record = split_line(line, "here", 2)
    return join_line(chain, encode(replace(decode(record, "here"), events=())))


def test_counts_of_a_run_that_is_being_written_never_fail_fall_or_run_ahead(small: Path, tmp_path: Path) -> None:
    header, *long = (small / SHARD_FILE).read_bytes().splitlines(keepends=True)
    lines = [_short(line) for line in long]
    path = tmp_path / SHARD_FILE
    path.write_bytes(header)
    begun = done = 0
    reads, failures = threading.Semaphore(0), []

    def read() -> None:
        finished_before = 0
        try:
            for _ in range(READS):
                finished_before = max(finished_before, done)
                counts = count_episodes(tmp_path)
                assert finished_before <= counts.finished <= begun and counts == ProgressCounts(counts.finished, 0)
                finished_before = counts.finished
                reads.release()
        except BaseException as error:
            failures.append(error)
            reads.release(THREADS * READS)

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    with path.open("ab", buffering=0) as file:
        for line in lines:
            # Every line is torn once, cut off, and written whole, with reads in between.
            for part in (line[: len(line) // 2], None, line):
                begun += part is line
                if part is None:
                    file.truncate(file.seek(0, os.SEEK_END) - len(line) // 2)
                else:
                    file.write(part)
                for _ in range(READS * THREADS // (4 * len(lines))):
                    assert reads.acquire(timeout=PATIENCE_MS / 1000)
            done += 1
    for thread in threads:
        thread.join()
    assert failures == []
    assert count_episodes(tmp_path).finished == len(lines) == EPISODES


def test_a_status_sees_a_run_before_its_first_shard(small: Path, tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_bytes((small / RUN_FILE).read_bytes())
    assert counted(tmp_path) == 0
    (tmp_path / shard_name(WHOLE)).write_bytes(b"")
    assert counted(tmp_path) == 0
