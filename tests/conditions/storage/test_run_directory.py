"""A run directory on disk: append-only shards with a digest chain, that go on after the last whole line."""

from __future__ import annotations

import errno
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.running.plan import WHOLE, Shard, make_plan
from conditions.storage.run_directory import RUN_FILE, RUN_SCHEMA_VERSION, RunHeader, ShardHeader, read_header
from conditions.storage.shards import (
    ProgressCounts,
    ShardLine,
    ShardWriter,
    count_episodes,
    header_line,
    join_line,
    next_chain,
    read_shard,
    shard_name,
)
from schemarouter.canonical import sha256_hex
from schemarouter.errors import InvalidRunError
from schemarouter.files import pretty_json, write_whole
from schemarouter.records import Ended, EpisodeRecord, Exposed, encode
from tests.strategies import LAWS
from tests.toys import CATALOGS, SURFACE, changed, identities_of, run_header, toy_protocol

IDENTITIES = changed(identities_of(SURFACE, CATALOGS), surface="s1")
RUN = run_header(toy_protocol(), SURFACE, make_plan(toy_protocol(), SURFACE), IDENTITIES)
HEADER = header_line(RUN)
SHOWN = Exposed(0, "open", ("a.b",), (), False, False)
RECORDS = [
    EpisodeRecord(1, "t-en-01", 12, "FULL", 1, (SHOWN, Ended(1, "stalled", "한 줄\u2028", ()))),
    EpisodeRecord(1, "t-en-02", 12, "FULL", 1, (Ended(0, "infrastructure", "MemoryError: ", ()),)),
    EpisodeRecord(1, "t-en-02", 12, "FULL", 2, (Ended(4, "completed", "", ("x", "y")),)),
]


def write(path: Path, records: list[EpisodeRecord]) -> bytes:
    with ShardWriter(path, HEADER) as writer:
        for record in records:
            writer.append(record)
    return path.read_bytes()


def records_of(path: Path) -> list[EpisodeRecord]:
    return [line.record for line in read_shard(path) if isinstance(line, ShardLine)]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / shard_name(WHOLE)
    write(path, RECORDS)
    return path


def test_what_is_written_is_read_back_with_its_place(shard: Path) -> None:
    header, *lines = read_shard(shard)
    assert isinstance(header, ShardHeader) and header.identities == IDENTITIES and header.shard == (1, 1)
    assert records_of(shard) == RECORDS
    locations = [line.location for line in lines if isinstance(line, ShardLine)]
    assert locations == [f"{shard.name}, line {number}" for number in (2, 3, 4)]


def test_lines_are_split_on_line_feeds_alone(shard: Path) -> None:
    assert shard.read_bytes().count(b"\n") == 4
    assert "\u2028" in shard.read_text()


@LAWS
@given(st.data())
def test_a_shard_cut_at_any_byte_goes_on_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / shard_name(WHOLE)
    whole = write(path, RECORDS)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = max(0, whole[:cut].count(b"\n") - 1)
    with ShardWriter(path, HEADER) as writer:
        assert sum(writer.attempts.values()) == kept
        for record in RECORDS[kept:]:
            writer.append(record)
    assert path.read_bytes() == whole


def test_a_writer_knows_what_is_finished_and_how_often_each_was_tried(shard: Path) -> None:
    with ShardWriter(shard, HEADER) as writer:
        assert writer.finished == {"t-en-01/12/FULL", "t-en-02/12/FULL"}
        assert writer.attempts == {"t-en-01/12/FULL": 1, "t-en-02/12/FULL": 2}


def test_an_infrastructure_failure_finishes_nothing(tmp_path: Path) -> None:
    path = tmp_path / shard_name(WHOLE)
    write(path, RECORDS[:2])
    with ShardWriter(path, HEADER) as writer:
        assert writer.finished == {"t-en-01/12/FULL"}


def test_another_runs_shard_is_refused_and_left_as_it_is(shard: Path) -> None:
    torn = shard.read_bytes() + b'{"chain":"half'
    shard.write_bytes(torn)
    with pytest.raises(InvalidRunError, match="belongs to another run"):
        ShardWriter(shard, header_line(changed(RUN, identities=changed(IDENTITIES, surface="s2"))))
    assert shard.read_bytes() == torn, "a refused file keeps every byte"


def test_any_changed_byte_is_refused_with_shard_and_line(shard: Path) -> None:
    whole = shard.read_bytes()
    header, first, second, third = whole.splitlines(keepends=True)
    for line, number in ((first, 2), (second, 3), (third, 4)):
        for spot in range(80, len(line) - 2, 17):
            changed = line[:spot] + bytes([line[spot] ^ 1]) + line[spot + 1 :]
            if b"\n" in changed[:-1]:
                continue
            shard.write_bytes(whole.replace(line, changed))
            with pytest.raises(InvalidRunError, match=rf"{shard.name}, line {number}: "):
                records_of(shard)
    shard.write_bytes(whole.replace(header, header.replace(b"s1", b"s3")))
    with pytest.raises(InvalidRunError, match="line 2: the digest chain is broken"):
        records_of(shard)


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (0, 0, 1, 2), (1, 2), (0, 2)])
def test_lines_moved_doubled_or_taken_out_break_the_chain(shard: Path, order: tuple[int, ...]) -> None:
    header, *lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(header + b"".join(lines[n] for n in order))
    with pytest.raises(InvalidRunError, match=r"line [234]: the digest chain is broken"):
        records_of(shard)


def test_a_torn_last_line_is_refused_with_the_remedy(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(InvalidRunError, match=r"line 4: torn; run the same run command again"):
        records_of(shard)


@pytest.mark.parametrize(
    "content", [b"", b'{"header":', b"{}\n", b"[1]\n", b'{"header": 3}\n', b"\xff\n", b'{"header":{}}\n']
)
def test_a_shard_without_a_whole_header_is_refused_at_line_1(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / shard_name(WHOLE)
    path.write_bytes(content)
    with pytest.raises(InvalidRunError, match="line 1: "):
        list(read_shard(path))


def test_a_newer_shard_or_run_is_refused_by_name(tmp_path: Path) -> None:
    newer = RUN_SCHEMA_VERSION + 1
    path = tmp_path / shard_name(WHOLE)
    path.write_bytes(HEADER.replace(b'"schema_version":1', f'"schema_version":{newer}'.encode()) + b"\n")
    with pytest.raises(InvalidRunError, match=f"schema_version {newer}; this program reads up to {RUN_SCHEMA_VERSION}"):
        list(read_shard(path))
    write_whole(tmp_path / RUN_FILE, pretty_json({"schema_version": newer, "identities": {}, "plan": {}}))
    with pytest.raises(InvalidRunError, match=f"schema_version {newer}; this program reads up to {RUN_SCHEMA_VERSION}"):
        read_header(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b'{"schema', "half-written"),
        (b"[]", "no run header"),
        (b"{}", "no run header"),
    ],
)
def test_a_run_json_that_is_missing_or_half_written_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(InvalidRunError, match=reason):
        read_header(tmp_path)


def test_a_line_that_is_no_record_line_is_refused_with_its_place(shard: Path) -> None:
    with shard.open("ab") as file:
        file.write(b'{"record":{}}\n')
    with pytest.raises(InvalidRunError, match="line 5: not a record line"):
        records_of(shard)


def test_a_live_run_is_counted_without_its_torn_last_line(shard: Path) -> None:
    assert count_episodes(shard.parent) == ProgressCounts(2, 1)
    shard.write_bytes(shard.read_bytes()[:-3])
    assert count_episodes(shard.parent) == ProgressCounts(1, 1)


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRunError, match="cannot be written"):
        write_whole(tmp_path / "file" / "below.json", b"")
    with pytest.raises(InvalidRunError, match="cannot be written"):
        ShardWriter(tmp_path / "nowhere" / shard_name(WHOLE), HEADER)


def test_headers_are_canonical_whatever_the_order_of_their_parts() -> None:
    parts = RUN.as_json()
    one = header_line(RUN, Shard(1, 2))
    assert one == header_line(RunHeader.model_validate(dict(reversed(parts.items()))), Shard(1, 2))
    assert orjson.loads(one)["header"]["schema_version"] == RUN_SCHEMA_VERSION


# --- bytes that say the same otherwise --------------------------------------------------------------------------------

ALSO: dict[str, Callable[[bytes], bytes]] = {
    "white space": lambda record: record.replace(b'"attempt":1', b'"attempt": 1'),
    "a key twice": lambda record: record.replace(b'"attempt":1', b'"attempt":7,"attempt":1'),
    "a key twice within": lambda record: record.replace(b'"can_ask":false', b'"can_ask":true,"can_ask":false'),
    "another order": lambda record: record.replace(b'"attempt":1,"catalog":12', b'"catalog":12,"attempt":1'),
    "an escape": lambda record: record.replace("한".encode(), b"\\ud55c"),
    "white space at the end": lambda record: record + b" ",
}


def rewritten(path: Path, header: bytes, change: Callable[[bytes], bytes] = bytes) -> None:
    """The shard with another header and its records changed, under a chain that holds."""
    chain, lines = sha256_hex(header), [header + b"\n"]
    for record in RECORDS:
        data = change(encode(record))
        chain = next_chain(chain, data)
        lines.append(join_line(chain, data))
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("name", ALSO)
def test_a_record_that_is_written_otherwise_is_refused_though_the_chain_holds(name: str, shard: Path) -> None:
    whole = shard.read_bytes()
    rewritten(shard, HEADER)
    assert shard.read_bytes() == whole
    rewritten(shard, HEADER, ALSO[name])
    assert shard.read_bytes() != whole
    with pytest.raises(InvalidRunError, match=r"line 2: the record is not canonical JSON"):
        records_of(shard)
    with pytest.raises(InvalidRunError, match=r"line 2: the record is not canonical JSON"):
        ShardWriter(shard, HEADER)


HEADERS: dict[str, tuple[bytes, bytes, str]] = {
    "version 0": (b'"schema_version":1', b'"schema_version":0', "schema_version 0; this program reads up to 1"),
    "version -1": (b'"schema_version":1', b'"schema_version":-1', "schema_version -1"),
    "version true": (
        b'"schema_version":1',
        b'"schema_version":true',
        "schema_version: Input should be a valid integer",
    ),
    "no plan": (b'"plan"', b'"plam"', r"plan: Field required.*plam: Extra inputs"),
    "one part more": (b'"shard"', b'"sent":1,"shard"', "sent: Extra inputs"),
    "another shard": (b"[1,1]", b"[1,2]", r"the header is of shard \[1, 2\]"),
    "shard 0": (b"[1,1]", b"[0,1]", r"of shard \[0, 1\]"),
    "shard true": (b"[1,1]", b"[true,1]", r"shard\.0: Input should be a valid integer"),
    "three numbers": (b"[1,1]", b"[1,1,1]", "shard: Tuple should have at most 2 items"),
    "white space": (b'"plan"', b' "plan"', "the header is not canonical JSON"),
    "a key twice": (b'"plan"', b'"plan":{},"plan"', "the header is not canonical JSON"),
    "a part beside it": (b'{"header":', b'{"a":1,"header":', "the header is not canonical JSON"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_this_program_does_not_write_is_refused_though_the_chain_holds(name: str, shard: Path) -> None:
    before, after, message = HEADERS[name]
    rewritten(shard, HEADER.replace(before, after, 1))
    with pytest.raises(InvalidRunError, match=f"^{shard.name}, line 1: .*{message}"):
        records_of(shard)


@pytest.mark.parametrize("name", [(1, 2), (2, 2), (2, 1)])
def test_a_shard_under_another_name_is_refused(name: tuple[int, int], shard: Path) -> None:
    other = shard.rename(shard.with_name(shard_name(Shard(*name))))
    with pytest.raises(InvalidRunError, match=r"the header is of shard \[1, 1\], but the file is named"):
        records_of(other)


WRITTEN = RUN.as_json()
ORIGIN = WRITTEN["provenance"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({**WRITTEN, "schema_version": 0}, "schema_version 0; this program reads up to 1, and none below 1"),
        ({**WRITTEN, "schema_version": -3}, "schema_version -3"),
        ({**WRITTEN, "schema_version": True}, "schema_version: Input should be a valid integer"),
        ({**WRITTEN, "schema_version": 1.0}, "schema_version: Input should be a valid integer"),
        ({**WRITTEN, "verdict": "pass"}, "verdict: Extra inputs"),
        ({**WRITTEN, "provenance": {**ORIGIN, "host": "h"}}, r"provenance\.host: Extra inputs"),
        ({**WRITTEN, "provenance": {**ORIGIN, "dirty": 0}}, r"provenance\.dirty: Input should be a valid boolean"),
        ({**WRITTEN, "provenance": {**ORIGIN, "commit": ["c"]}}, r"provenance\.commit: Input should be a valid string"),
        ({**WRITTEN, "identities": {**WRITTEN["identities"], "agent": None}}, r"identities\.agent: Input should be"),
        ({**WRITTEN, "plan": {**WRITTEN["plan"], "catalogs": 5}}, r"plan\.catalogs: Input should be"),
        ({**WRITTEN, "limits": {}}, r"limits\.episode_seconds: Field required"),
        *(
            (
                {**WRITTEN, "provenance": {n: v for n, v in ORIGIN.items() if n != name}},
                rf"provenance\.{name}: Field required",
            )
            for name in ORIGIN
        ),
    ],
)
def test_a_run_json_of_other_parts_is_refused(run: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_whole(tmp_path / RUN_FILE, RUN.to_bytes())
    assert read_header(tmp_path) == RUN
    write_whole(tmp_path / RUN_FILE, pretty_json(run))
    with pytest.raises(InvalidRunError, match=message):
        read_header(tmp_path)


# --- disks that do not take it ----------------------------------------------------------------------------------------

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["os.fsync", "os.open", "os.replace", "schemarouter.files.write_all"])
@pytest.mark.parametrize(
    ("error", "raised"), [(FULL, InvalidRunError), (KeyboardInterrupt(), KeyboardInterrupt)], ids=repr
)
def test_a_file_that_could_not_be_written_leaves_nothing_and_the_one_before_it(
    where: str, error: BaseException, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdict.json"
    write_whole(path, b"before")

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(where, failing)
    with pytest.raises(raised):
        write_whole(path, b"after")
    assert [item.name for item in tmp_path.iterdir()] == ["verdict.json"] and path.read_bytes() == b"before"


class Filling:
    """Takes `space` bytes and no more."""

    def __init__(self, space: int) -> None:
        self.space = space

    def __call__(self, file: FileIO, data: bytes) -> None:
        taken = data[: self.space]
        file.write(taken)
        self.space -= len(taken)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("space", [0, 30, 200, 330, 500, 700])
def test_what_a_full_disk_took_half_of_is_taken_back_and_raised_once(
    space: int, tmp_path: Path, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "full" / shard_name(WHOLE)
    path.parent.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("conditions.storage.append_log.write_all", Filling(space))
        with pytest.raises(InvalidRunError, match=r"cannot be written \(No space left on device\)") as caught:
            write(path, RECORDS)
    assert caught.value.__context__ is None or isinstance(caught.value.__context__, OSError)
    left = path.read_bytes()
    assert shard.read_bytes().startswith(left) and (not left or left.endswith(b"\n"))
    with ShardWriter(path, HEADER) as writer:
        for record in RECORDS[sum(writer.attempts.values()) :]:
            writer.append(record)
    assert path.read_bytes() == shard.read_bytes()


def test_what_ends_a_run_is_raised_and_not_that_the_shard_could_not_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int) -> None:
        raise FULL

    monkeypatch.setattr("os.fsync", failing)
    path = tmp_path / shard_name(WHOLE)
    with pytest.raises(KeyError, match="first"), ShardWriter(path, HEADER):
        raise KeyError("first")
    with pytest.raises(InvalidRunError, match="finished work is kept"), ShardWriter(path, HEADER):
        pass


@pytest.mark.parametrize("damage", [lambda line: b"\0" * len(line), lambda line: line[: len(line) // 2] + b"\n"])
def test_a_damaged_line_has_a_remedy_that_helps(damage: Callable[[bytes], bytes], shard: Path) -> None:
    whole = shard.read_bytes()
    lines = whole.splitlines(keepends=True)
    shard.write_bytes(b"".join([*lines[:2], damage(lines[2]), *lines[3:]]))
    with pytest.raises(InvalidRunError, match=r"line [34]: .*or keep the ([23]) lines before \(head -n \1 "):
        records_of(shard)
    shard.write_bytes(b"".join(lines[:2]))
    with ShardWriter(shard, HEADER) as writer:
        for record in RECORDS[1:]:
            writer.append(record)
    assert shard.read_bytes() == whole
