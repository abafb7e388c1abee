"""A run directory on disk: append-only shards with a digest chain, that go on after the last whole line."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.store import (
    RUN_FILE,
    RUN_SCHEMA_VERSION,
    ShardLine,
    ShardWriter,
    count_episodes,
    header_line,
    pretty_json,
    read_run,
    read_shard,
    shard_name,
    write_whole,
)
from schemarouter.errors import InvalidRunError
from schemarouter.records import Ended, EpisodeRecord, Exposed
from tests.strategies import LAWS

HEADER = header_line({"surface": "s1"}, {"tasks": ["a"]}, 1, 1)
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
    path = tmp_path / shard_name(1, 1)
    write(path, RECORDS)
    return path


def test_what_is_written_is_read_back_with_its_place(shard: Path) -> None:
    header, *lines = read_shard(shard)
    assert isinstance(header, dict) and header["identities"] == {"surface": "s1"} and header["shard"] == [1, 1]
    assert records_of(shard) == RECORDS
    places = [line.place for line in lines if isinstance(line, ShardLine)]
    assert places == [f"{shard.name}, line {number}" for number in (2, 3, 4)]


def test_lines_are_split_on_line_feeds_alone(shard: Path) -> None:
    assert shard.read_bytes().count(b"\n") == 4
    assert "\u2028" in shard.read_text()


@LAWS
@given(st.data())
def test_a_shard_cut_at_any_byte_goes_on_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / shard_name(1, 1)
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


def test_an_attempt_that_the_machine_ended_is_not_finished(tmp_path: Path) -> None:
    path = tmp_path / shard_name(1, 1)
    write(path, RECORDS[:2])
    with ShardWriter(path, HEADER) as writer:
        assert writer.finished == {"t-en-01/12/FULL"}


def test_another_runs_shard_is_refused_and_left_as_it_is(shard: Path) -> None:
    torn = shard.read_bytes() + b'{"chain":"half'
    shard.write_bytes(torn)
    with pytest.raises(InvalidRunError, match="belongs to another run"):
        ShardWriter(shard, header_line({"surface": "s2"}, {"tasks": ["a"]}, 1, 1))
    assert shard.read_bytes() == torn, "a refused file keeps every byte"


def test_any_changed_byte_is_refused_with_shard_and_line(shard: Path) -> None:
    whole = shard.read_bytes()
    header, first, second, third = whole.splitlines(keepends=True)
    for line, place in ((first, 2), (second, 3), (third, 4)):
        for spot in range(80, len(line) - 2, 17):
            changed = line[:spot] + bytes([line[spot] ^ 1]) + line[spot + 1 :]
            if b"\n" in changed[:-1]:
                continue
            shard.write_bytes(whole.replace(line, changed))
            with pytest.raises(InvalidRunError, match=rf"{shard.name}, line {place}: "):
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
    with pytest.raises(InvalidRunError, match=r"line 4: torn; run the same command again"):
        records_of(shard)


@pytest.mark.parametrize(
    "content", [b"", b'{"header":', b"{}\n", b"[1]\n", b'{"header": 3}\n', b"\xff\n", b'{"header":{}}\n']
)
def test_a_shard_without_a_whole_header_is_refused_at_line_1(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / shard_name(1, 1)
    path.write_bytes(content)
    with pytest.raises(InvalidRunError, match="line 1: "):
        list(read_shard(path))


def test_a_newer_shard_or_run_is_refused_by_name(tmp_path: Path) -> None:
    newer = RUN_SCHEMA_VERSION + 1
    path = tmp_path / shard_name(1, 1)
    path.write_bytes(HEADER.replace(b'"schema_version":1', f'"schema_version":{newer}'.encode()) + b"\n")
    with pytest.raises(InvalidRunError, match=f"schema_version {newer}; this program reads up to {RUN_SCHEMA_VERSION}"):
        list(read_shard(path))
    write_whole(tmp_path / RUN_FILE, pretty_json({"schema_version": newer, "identities": {}, "plan": {}}))
    with pytest.raises(InvalidRunError, match=f"schema_version {newer}; this program reads up to {RUN_SCHEMA_VERSION}"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b'{"schema', "half-written"),
        (b"[]", "an object is expected"),
        (b"{}", "no run header"),
    ],
)
def test_a_run_json_that_is_missing_or_half_written_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(InvalidRunError, match=reason):
        read_run(tmp_path)


def test_a_line_that_is_no_record_line_is_refused_with_its_place(shard: Path) -> None:
    with shard.open("ab") as file:
        file.write(b'{"record":{}}\n')
    with pytest.raises(InvalidRunError, match="line 5: no record line"):
        records_of(shard)


def test_a_live_run_is_counted_without_its_torn_last_line(shard: Path) -> None:
    assert count_episodes(shard.parent) == (2, 1)
    shard.write_bytes(shard.read_bytes()[:-3])
    assert count_episodes(shard.parent) == (1, 1)


def test_a_file_is_moved_in_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two" and [item.name for item in path.parent.iterdir()] == ["file.json"]


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRunError, match="cannot be written"):
        write_whole(tmp_path / "file" / "below.json", b"")
    with pytest.raises(InvalidRunError, match="cannot be written"):
        ShardWriter(tmp_path / "nowhere" / shard_name(1, 1), HEADER)


def test_headers_are_canonical_whatever_the_order_of_their_parts() -> None:
    one = header_line({"a": 1, "b": 2}, {"x": 1}, 1, 2)
    assert one == header_line({"b": 2, "a": 1}, {"x": 1}, 1, 2)
    assert orjson.loads(one)["header"]["schema_version"] == RUN_SCHEMA_VERSION
