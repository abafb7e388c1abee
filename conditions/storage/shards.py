r"""Append-only files of episodes.

A shard's first line is its header; every further line holds a record and the chain digest up to it: SHA-256 over the
digest before and the record's bytes. Lines are split on ``\n`` alone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from conditions.running.plan import WHOLE, Shard
from conditions.storage.append_log import Closing, Log
from conditions.storage.run_directory import RUN_SCHEMA_VERSION, RunHeader, ShardHeader
from schemarouter.canonical import canonical_json, sha256_hex
from schemarouter.errors import InvalidRunError
from schemarouter.files import parse_document
from schemarouter.records import EpisodeRecord, decode, encode

SHARD_GLOB = "episodes-*.jsonl"
# In the bytes of every record of an infrastructure failure, and in hardly any other record.
INFRASTRUCTURE_MARK = b'"reason":"infrastructure"'
_NAME = re.compile(r"episodes-([0-9]{5})-of-([0-9]{5})\.jsonl")
_CHUNK = 1 << 16


def shard_name(shard: Shard) -> str:
    """File name of a shard."""
    return f"episodes-{shard.label}.jsonl"


def shard_of(name: str) -> Shard | None:
    """The shard with this file name, or None where no shard has it."""
    found = _NAME.fullmatch(name)
    shard = Shard(int(found[1]), int(found[2])) if found else None
    return shard if shard is not None and 1 <= shard.index <= shard.count and shard_name(shard) == name else None


def shards_in(folder: Path) -> list[Shard]:
    """The shards of a run directory. Raises InvalidRunError for a file whose name only resembles a shard's."""
    found = []
    for path in sorted(folder.glob(SHARD_GLOB)):
        shard = shard_of(path.name)
        if shard is None:
            raise InvalidRunError(
                f"{path}: not the name of a shard, such as {shard_name(Shard(1, 1))}; rename or remove it."
            )
        found.append(shard)
    return found


def timing_name(shard: Shard) -> str:
    """File name of the wall times of a shard."""
    return f"timing-{shard.label}.jsonl"


def header_line(run: RunHeader, shard: Shard = WHOLE) -> bytes:
    """The first line of a shard of the run with this header, without its line end."""
    header = ShardHeader(
        schema_version=RUN_SCHEMA_VERSION,
        identities=run.identities,
        plan=run.plan,
        limits=run.limits,
        shard=(shard.index, shard.count),
    )
    return canonical_json({"header": header.as_json()})


def next_chain(chain: str, record: bytes) -> str:
    """The chain digest after a record."""
    return hashlib.sha256(chain.encode() + record).hexdigest()


@dataclass(frozen=True, slots=True)
class ShardLine:
    """One record of a shard, its location (lines counted from 1), and the chain digest up to it."""

    record: EpisodeRecord
    location: str
    chain: str


def _location(name: str, number: int) -> str:
    return f"{name}, line {number}"


def _repair(name: str, number: int) -> str:
    """How a shard that a disk has damaged is put right."""
    return (
        f"put a copy of {name} in its place, or keep the {number - 1} lines before "
        f"(head -n {number - 1} {name} > kept && mv kept {name}), and run the same run command again: it runs the rest."
    )


_HEAD, _MIDDLE, _TAIL = b'{"chain":"', b'","record":', b"}\n"
_CHAIN = slice(len(_HEAD), len(_HEAD) + 64)
_RECORD = slice(_CHAIN.stop + len(_MIDDLE), -len(_TAIL))


def split_line(line: bytes, name: str, number: int) -> tuple[str, bytes]:
    r"""Chain digest and record bytes of a line: ``{"chain":"<64 hex>","record":<record>}\n``.

    Raises InvalidRunError, naming the file and the line's number, for anything else.
    """
    if not (line.startswith(_HEAD) and line.startswith(_MIDDLE, _CHAIN.stop) and line.endswith(_TAIL)):
        raise InvalidRunError(f"{_location(name, number)}: not a record line; {_repair(name, number)}")
    return line[_CHAIN].decode("ascii", "replace"), line[_RECORD]


def join_line(chain: str, record: bytes) -> bytes:
    """The line of a record, with its line end."""
    return _HEAD + chain.encode() + _MIDDLE + record + _TAIL


class RawLine(NamedTuple):
    """The bytes of one record of a shard, its file and line (from 1), and the verified chain digest up to it."""

    data: bytes
    name: str
    number: int
    chain: str

    @property
    def location(self) -> str:
        """File and line, in words."""
        return _location(self.name, self.number)

    def record(self) -> EpisodeRecord:
        """The record. Raises InvalidRunError for bytes that this program does not write: they could hold a key twice."""
        record = decode(self.data, self.location)
        try:
            canonical = encode(record) == self.data
        except orjson.JSONEncodeError as error:
            raise InvalidRunError(
                f"{self.location}: not a record that this program could have written ({error})."
            ) from None
        if not canonical:
            raise InvalidRunError(
                f"{self.location}: the record is not canonical JSON (sorted keys, each once, no white space)."
            )
        return record


def read_shard(path: Path) -> Iterator[ShardHeader | ShardLine]:
    """Yield the header, then every record with its location. Raises InvalidRunError at the first invalid line."""
    for line in read_lines(path):
        yield ShardLine(line.record(), line.location, line.chain) if isinstance(line, RawLine) else line


def read_lines(path: Path) -> Iterator[ShardHeader | RawLine]:
    """Yield the header, then the bytes of every record. Raises InvalidRunError for a torn line and for a broken chain.

    It also refuses a header whose bytes this program does not write: it could hold a key twice.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
            location = _location(path.name, 1)
            if not first.endswith(b"\n"):
                raise InvalidRunError(f"{location}: the header is torn.")
            yield _header(first, path.name, location)
            chain = sha256_hex(first[:-1])
            name = path.name
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    raise InvalidRunError(
                        f"{_location(name, number)}: torn; run the same run command again to resume from this line."
                    )
                stored, record = split_line(line, name, number)
                chain = next_chain(chain, record)
                if chain != stored:
                    raise InvalidRunError(
                        f"{_location(name, number)}: the digest chain is broken: this line or one before it was altered; "
                        f"{_repair(name, number)}"
                    )
                yield RawLine(record, name, number, chain)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None


def _header(line: bytes, name: str, location: str) -> ShardHeader:
    try:
        value = orjson.loads(line)["header"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidRunError(f"{location}: not a shard header.") from None
    header = parse_document(value, ShardHeader, location, "shard header")
    if not _names_shard(name, *header.shard):
        raise InvalidRunError(f"{location}: the header is of shard {[*header.shard]}, but the file is named {name}.")
    # By the bytes: a line could hold a key twice.
    if canonical_json({"header": header.as_json()}) != line[:-1]:
        raise InvalidRunError(f"{location}: the header is not canonical JSON (sorted keys, each once, no white space).")
    return header


def _names_shard(name: str, index: int, count: int) -> bool:
    """Whether a file has the name of this shard."""
    return 1 <= index <= count and shard_name(Shard(index, count)) == name


class ShardWriter(Closing):
    """Appends records to a shard; opened again, it resumes after the last whole line."""

    def __init__(
        self, path: Path, header: bytes, recorded: Callable[[EpisodeRecord], None] = lambda record: None
    ) -> None:
        """Open a shard; `recorded` is called with every record that it holds already."""
        self.path = path
        self._recorded = recorded
        self.attempts: dict[str, int] = {}
        self.finished: set[str] = set()
        try:
            self._chain = self._recover(header)
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
        self._log = Log(path)
        if self._log.empty:
            try:
                self._log.append(header + b"\n")
            except InvalidRunError:
                with suppress(InvalidRunError):
                    self._log.close()
                raise

    def _recover(self, header: bytes) -> str:
        """Truncate a torn last line, note finished episodes, and return the chain digest so far."""
        chain = sha256_hex(header)
        if not self.path.exists():
            return chain
        first = header + b"\n"
        size, whole = self.path.stat().st_size, _whole_lines(self.path)
        with self.path.open("rb") as file:
            held = file.read(len(first))
        if held != first[: len(held)] or 0 < whole < len(first):
            raise InvalidRunError(
                f"{self.path.name}: belongs to another run; use another --out, or the command of that run."
            )
        if whole < size:
            with self.path.open("r+b") as file:
                file.truncate(whole)
        if not whole:
            return chain
        for line in read_shard(self.path):
            if isinstance(line, ShardLine):
                self._recorded(line.record)
                self.note(line.record.episode_id, infrastructure=line.record.infrastructure)
                chain = line.chain
        return chain

    def note(self, name: str, *, infrastructure: bool) -> None:
        """Count an attempt at an episode; after an infrastructure failure the episode is not finished."""
        self.attempts[name] = self.attempts.get(name, 0) + 1
        if not infrastructure:
            self.finished.add(name)

    def append(self, record: EpisodeRecord) -> None:
        """Write a record as one line. Raises InvalidRunError when it cannot be written; earlier lines stay valid."""
        self.append_encoded(encode(record), record.episode_id, infrastructure=record.infrastructure)

    def append_encoded(self, data: bytes, name: str, *, infrastructure: bool) -> None:
        """Write a record that is encoded already; errors as `append`."""
        chain = next_chain(self._chain, data)
        self._log.append(join_line(chain, data))
        self._chain = chain
        self.note(name, infrastructure=infrastructure)

    def close(self) -> None:
        """Sync and close the file; errors as `Log.close`."""
        self._log.close()


def _whole_lines(path: Path) -> int:
    """The number of bytes of a file up to and including its last line end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _CHUNK)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


@dataclass(frozen=True)
class ProgressCounts:
    """How far a run is: finished episodes, and attempts that infrastructure failures ended."""

    finished: int
    failed_attempts: int


def count_episodes(folder: Path) -> ProgressCounts:
    """Count episodes without checking anything, also in a live run, whose last line may be torn.

    Raises InvalidRunError for a file that cannot be read or holds something other than records.
    """
    finished: set[str] = set()
    failed = 0
    for path in sorted(folder.glob(SHARD_GLOB)):
        try:
            with path.open("rb") as file:
                file.readline()
                for number, line in enumerate(file, start=2):
                    if not line.endswith(b"\n"):
                        # It may be whole by now: reading on would take its second half for a line.
                        break
                    record = split_line(line, path.name, number)[1]
                    if INFRASTRUCTURE_MARK in record and decode(record, _location(path.name, number)).infrastructure:
                        failed += 1
                    else:
                        finished.add(_episode_of(record, _location(path.name, number)))
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None
    return ProgressCounts(len(finished), failed)


def _episode_of(record: bytes, location: str) -> str:
    """The id of a record's episode, read without checking the rest of the record."""
    try:
        fields = orjson.loads(record)
        return f"{fields['task']}/{fields['catalog']}/{fields['condition']}#{fields.get('repeat', 1)}"
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise InvalidRunError(f"{location}: not a record.") from None
