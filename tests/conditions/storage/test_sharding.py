"""Shards: made apart or together, merged in any order, they are the run that one process makes; what does not fit is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import pytest

from conditions.running import execute as executing
from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import Plan, Shard, make_plan, parse_shard
from conditions.storage.merge import merge
from conditions.storage.run_directory import RUN_FILE, RunLimits, read_header
from conditions.storage.run_lock import hold, hold_named
from conditions.storage.shards import ShardLine, ShardWriter, header_line, read_shard, shard_name, timing_name
from gates.aggregate import read_complete_run, write_aggregate
from gates.identities import ReferenceData
from schemarouter.canonical import fingerprint
from schemarouter.errors import InvalidRunError, UsageError
from tests.cli.program import ROOT, environment
from tests.toys import (
    CATALOGS,
    SURFACE,
    changed,
    identities_of,
    run_header,
    toy_protocol,
    toy_run,
    toy_runner,
    write_shard,
)

pytestmark = pytest.mark.slow

PLAN: Plan = make_plan(toy_protocol(), SURFACE)
IDENTITIES = identities_of(SURFACE, CATALOGS)
WORLD = ReferenceData(toy_protocol(), SURFACE, CATALOGS, lambda run: IDENTITIES)


def fill(folder: Path, index: int, count: int, plan: Plan = PLAN) -> Path:
    """Run one shard of the toy grid."""
    header = run_header(toy_protocol(), SURFACE, plan, IDENTITIES)
    execute(folder, header, plan, InProcess(toy_runner()), lambda done: None, shard=Shard(index, count))
    return folder


def result(folder: Path) -> bytes:
    """The bytes of aggregate.json."""
    write_aggregate(folder, read_complete_run(folder, WORLD).aggregate())
    return (folder / "aggregate.json").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole") / "run"
    toy_run(folder)
    return result(folder)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three shards, each in a directory of its own."""
    return [fill(tmp_path / f"part{index}", index, 3) for index in (1, 2, 3)]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_every_unit_is_in_one_shard(count: int) -> None:
    dealt = [unit for index in range(1, count + 1) for unit in Shard(index, count).units(PLAN)]
    assert sorted(unit.episode_id for unit in dealt) == sorted(unit.episode_id for unit in PLAN.units)


def test_every_unit_has_its_place_and_nothing_else_has_one() -> None:
    for part in (
        {},
        {"limit": 17},
        {"repeats": 3},
        {"repeats": 2, "limit": 55},
        {"catalogs": [36], "conditions": ["FULL"]},
    ):
        plan = make_plan(toy_protocol(), SURFACE, **part)
        assert [plan.index(unit) for unit in plan.units] == list(range(len(plan.units)))
        whole = make_plan(toy_protocol(), SURFACE, repeats=4)
        assert all((plan.index(unit) is not None) == (unit in plan.units) for unit in whole.units)
        assert (
            plan.index(whole.units[0]._replace(task="toy-xx-99"))
            is plan.index(whole.units[0]._replace(repeat=0))
            is None
        )
        assert plan.fingerprint == fingerprint([unit.episode_id for unit in plan.units])


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "a/b", "1/3/2", "-1/3", "1.0/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="K/N"):
        parse_shard(text)
    assert parse_shard(" 2/4 ") == Shard(2, 4)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_shards_in_one_directory_are_the_run_of_one_process(
    order: tuple[int, ...], tmp_path: Path, whole: bytes
) -> None:
    for index in order:
        fill(tmp_path / "run", index, 3)
    assert result(tmp_path / "run") == whole


def test_shards_merged_in_any_order_are_the_run_of_one_process(parts: list[Path], tmp_path: Path, whole: bytes) -> None:
    for number, order in enumerate(permutations(parts)):
        out = tmp_path / f"merged{number}"
        assert merge(order, out) == [Shard(1, 3), Shard(2, 3), Shard(3, 3)]
        assert result(out) == whole
        assert (out / timing_name(Shard(2, 3))).exists()


def test_a_merge_that_was_cut_short_goes_on(parts: list[Path], tmp_path: Path, whole: bytes) -> None:
    merge(parts, tmp_path / "merged")
    (tmp_path / "merged" / shard_name(Shard(2, 3))).unlink()
    merge(parts[1:2], tmp_path / "merged")
    assert result(tmp_path / "merged") == whole


def test_one_shard_given_twice_is_one(parts: list[Path], tmp_path: Path, whole: bytes) -> None:
    merge([*parts, parts[0]], tmp_path / "merged")
    assert result(tmp_path / "merged") == whole


def test_a_missing_shard_is_named_by_merge_and_aggregate_alike(parts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidRunError, match=r"shards missing: 2/3 \(1 of 3\)"):
        merge([parts[0], parts[2]], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    shutil.copy(parts[2] / shard_name(Shard(3, 3)), parts[0])
    with pytest.raises(InvalidRunError, match=r"shards missing: 1 of 3, the first episodes-00002-of-00003\.jsonl.*2/3"):
        read_complete_run(parts[0], WORLD)


def rewrite(folder: Path, **changes: object) -> None:
    (folder / RUN_FILE).write_bytes(changed(read_header(folder), **changes).to_bytes())


@pytest.mark.parametrize("part", ["identities", "provenance", "plan"])
def test_runs_that_differ_are_refused_line_by_line(part: str, parts: list[Path], tmp_path: Path) -> None:
    name = {"identities": "agent", "provenance": "commit", "plan": "fingerprint"}[part]
    rewrite(parts[1], **{part: changed(getattr(read_header(parts[1]), part), **{name: "other"})})
    with pytest.raises(
        InvalidRunError, match=rf"part2 is of another run than .*part1.*\n  {part}\.{name}: .* 'other' here"
    ):
        merge(parts, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_the_command_line_of_a_shard_is_its_own(parts: list[Path], tmp_path: Path) -> None:
    rewrite(parts[1], provenance=changed(read_header(parts[1]).provenance, argv=("run", "--shard", "2/3")))
    assert len(merge(parts, tmp_path / "merged")) == 3


def _cut(data: bytes) -> bytes:
    return data[: data.rfind(b"\n", 0, -1) + 1]


def _doubled(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[-1]


def _flipped(data: bytes) -> bytes:
    index = data.rfind(b"completed")
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


def _torn(data: bytes) -> bytes:
    return data[:-7]


@pytest.mark.parametrize(
    ("change", "reason"),
    [(_doubled, "the digest chain is broken"), (_flipped, "the digest chain is broken"), (_torn, "torn")],
)
def test_a_damaged_shard_is_refused_before_anything_is_written(
    change: Callable[[bytes], bytes], reason: str, parts: list[Path], tmp_path: Path
) -> None:
    path = parts[1] / shard_name(Shard(2, 3))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InvalidRunError, match=rf"episodes-00002-of-00003\.jsonl, line \d+: {reason}"):
        merge(parts, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_two_versions_of_a_shard_are_refused(parts: list[Path], tmp_path: Path) -> None:
    shutil.copytree(parts[1], tmp_path / "again")
    path = tmp_path / "again" / shard_name(Shard(2, 3))
    records = [line.record for line in read_shard(path) if isinstance(line, ShardLine)]
    path.unlink()
    with ShardWriter(path, header_line(read_header(tmp_path / "again"), Shard(2, 3))) as writer:
        for record in reversed(records):
            writer.append(record)
    with pytest.raises(InvalidRunError, match="two versions of one shard"):
        merge([*parts, tmp_path / "again"], tmp_path / "merged")


@pytest.mark.parametrize("first", [0, 1])
def test_a_shard_that_has_gone_on_takes_the_place_of_where_it_was(
    first: int, parts: list[Path], tmp_path: Path, whole: bytes
) -> None:
    shutil.copytree(parts[1], tmp_path / "before")
    path = tmp_path / "before" / shard_name(Shard(2, 3))
    path.write_bytes(_cut(_cut(path.read_bytes())))
    given = [tmp_path / "before", *parts] if first == 0 else [*parts, tmp_path / "before"]
    merge(given, tmp_path / "merged")
    assert result(tmp_path / "merged") == whole
    # Also where it was is what the directory held until now.
    merged = tmp_path / "merged" / shard_name(Shard(2, 3))
    merged.write_bytes(path.read_bytes())
    merge(parts, tmp_path / "merged")
    assert result(tmp_path / "merged") == whole


def test_a_directory_whose_shard_somebody_works_on_is_not_merged_into(parts: list[Path], tmp_path: Path) -> None:
    merge(parts, tmp_path / "merged")
    with hold(tmp_path / "merged", Shard(2, 3)), pytest.raises(InvalidRunError, match="is in use by process"):
        merge(parts, tmp_path / "merged")


def test_a_merge_that_was_killed_before_its_first_file_goes_on(parts: list[Path], tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / f".{RUN_FILE}.abc").write_text("{")
    (tmp_path / "merged" / ".lock-00001-of-00003").write_text("")
    merge(parts, tmp_path / "merged")
    assert result(tmp_path / "merged") == whole


def test_shards_under_other_limits_do_not_come_together_by_being_copied(tmp_path: Path) -> None:
    fill(tmp_path / "one", 1, 2)
    header = run_header(toy_protocol(), SURFACE, PLAN, IDENTITIES)
    limited = changed(header, limits=RunLimits(episode_seconds=5.0))
    execute(tmp_path / "two", limited, PLAN, InProcess(toy_runner()), lambda done: None, shard=Shard(2, 2))
    shutil.copy(tmp_path / "two" / shard_name(Shard(2, 2)), tmp_path / "one")
    with pytest.raises(
        InvalidRunError, match=r"00002-of-00002\.jsonl, line 1: the shard's limits are not those of run\.json"
    ):
        read_complete_run(tmp_path / "one", WORLD)


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-40], lambda data: data + b"{}"])
def test_a_shard_that_another_process_changes_meanwhile_ends_the_run(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "run" / shard_name(Shard(1, 1))

    def progress(done: int) -> None:
        if done == 5:
            with path.open("r+b") as file:
                changed = change(file.read())
                file.seek(0)
                file.truncate()
                file.write(changed)

    header = run_header(toy_protocol(), SURFACE, PLAN, IDENTITIES)
    with pytest.raises(InvalidRunError, match="another process wrote to it or truncated it meanwhile"):
        execute(tmp_path / "run", header, PLAN, InProcess(toy_runner()), progress)


def test_swapped_shards_are_refused_by_their_headers(parts: list[Path], tmp_path: Path) -> None:
    one, two = parts[0] / shard_name(Shard(1, 3)), parts[1] / shard_name(Shard(2, 3))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.raises(InvalidRunError, match=r"00001-of-00003\.jsonl, line 1: the header is of shard \[2, 3\]"):
        merge(parts, tmp_path / "merged")


def test_episodes_of_another_shard_are_refused_though_header_and_chain_hold(tmp_path: Path) -> None:
    for index in (1, 2):
        fill(tmp_path / "run", index, 2)
    # The records of the second shard under the header of the first, with a chain that holds.
    donor = fill(tmp_path / "donor", 2, 2)
    write_shard(tmp_path / "run", donor, Shard(1, 2), Shard(2, 2))
    with pytest.raises(InvalidRunError, match=r"00001-of-00002\.jsonl, line 2: episode .* belongs to shard 2 of 2"):
        read_complete_run(tmp_path / "run", WORLD)


def test_a_directory_is_divided_one_way_only(tmp_path: Path) -> None:
    fill(tmp_path / "run", 1, 2)
    with pytest.raises(InvalidRunError, match=r"divided into other shards \(episodes-00001-of-00002\.jsonl\).*1/3"):
        fill(tmp_path / "run", 1, 3)


@pytest.mark.parametrize("began", [1, 2])
def test_of_two_divisions_that_begin_at_once_one_is_refused(
    began: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins while this one is about to look, or to begin its own file."""
    ended: list[str] = []

    @contextmanager
    def meanwhile(folder: Path, name: str, **options: float) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(executing, "hold_named", hold_named)
            if began == 1:
                fill(folder, 1, 3)
            with hold_named(folder, name, **options):
                if began == 2:
                    patch.setattr(executing, "_HEADER_LOCK_SECONDS", 0.0)
                    with pytest.raises(InvalidRunError, match="in use by") as refused:
                        fill(folder, 1, 3)
                    ended.append(str(refused.value))
                yield

    monkeypatch.setattr(executing, "hold_named", meanwhile)
    if began == 1:
        with pytest.raises(InvalidRunError, match=r"divided into other shards \(episodes-00001-of-00003\.jsonl\).*1/2"):
            fill(tmp_path / "run", 1, 2)
    else:
        fill(tmp_path / "run", 1, 2)
        assert len(ended) == 1
    assert len([*(tmp_path / "run").glob("episodes-*")]) == 1


MERGED = """
import resource, sys
from pathlib import Path
from conditions.storage.merge import merge
resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
out, *folders = map(Path, sys.argv[1:])
print(len(merge(folders, out)))
"""


def test_more_shards_are_merged_than_files_may_be_open_at_first(whole: bytes, tmp_path: Path) -> None:
    folders = [fill(tmp_path / f"part{index}", index, 25) for index in range(1, 26)]
    command = [sys.executable, "-c", MERGED, *map(str, [tmp_path / "merged", *folders])]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    assert (ended.stdout, ended.stderr) == ("25\n", "")
    assert result(tmp_path / "merged") == whole


def test_more_shards_than_the_system_allows_files_are_refused_before_anything_is_written(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poor:
        RLIMIT_NOFILE, RLIM_INFINITY = 7, -1

        @staticmethod
        def getrlimit(which: int) -> tuple[int, int]:
            return 40, 50

    monkeypatch.setattr("conditions.storage.merge.resource", Poor)
    with pytest.raises(InvalidRunError, match=r"3 shards are locked at once.*50 files only.*ulimit -Hn"):
        merge(parts, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_file_that_is_named_like_a_shard_and_is_none_is_refused(parts: list[Path], tmp_path: Path) -> None:
    (parts[0] / "episodes-1-of-3.jsonl").write_text("")
    with pytest.raises(InvalidRunError, match=r"episodes-1-of-3\.jsonl: not the name of a shard"):
        merge(parts, tmp_path / "merged")


def test_two_processes_may_work_on_two_shards_and_not_on_one(tmp_path: Path) -> None:
    fill(tmp_path / "run", 1, 2)
    with hold(tmp_path / "run", Shard(1, 2)):
        fill(tmp_path / "run", 2, 2)
        with pytest.raises(InvalidRunError, match=r"is in use by process .*\.lock-00001-of-00002"):
            fill(tmp_path / "run", 1, 2)


def test_the_one_that_comes_second_takes_up_the_header_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen an empty folder; the second finds a header where it is about to put its own."""
    fill(tmp_path / "run", 1, 2)
    before = (tmp_path / "run" / RUN_FILE).read_bytes()
    monkeypatch.setattr("conditions.running.execute.holds_a_run", lambda folder: False)
    fill(tmp_path / "run", 2, 2)
    assert (tmp_path / "run" / RUN_FILE).read_bytes() == before
    with pytest.raises(InvalidRunError, match="holds another run"):
        fill(tmp_path / "run", 2, 2, make_plan(toy_protocol(), SURFACE, limit=3))


def test_a_merge_into_other_files_is_refused(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(InvalidRunError, match="holds other files"):
        merge(parts, tmp_path / "mine")
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
