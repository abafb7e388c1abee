r"""A run directory: run.json, append-only shards of episodes, and wall times in a file of their own.

A shard's first line is its header; every further line holds a record and the chain digest up to it: SHA-256 over the
digest before and the record's bytes. Lines are split on ``\n`` alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from schemarouter.errors import InvalidRunError
from schemarouter.identity import canonical_json, sha256_hex
from schemarouter.records import EpisodeRecord, decode, encode

RUN_SCHEMA_VERSION = 1
RUN_FILE = "run.json"
AGGREGATE_FILE = "aggregate.json"
VERDICT_FILE = "verdict.json"
TIMING_FILE = "timing.jsonl"
SHARD_GLOB = "episodes-*.jsonl"


def shard_name(index: int, count: int) -> str:
    """File name of a shard, counted from 1."""
    return f"episodes-{index:05d}-of-{count:05d}.jsonl"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and move it in. Raises InvalidRunError when the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def pretty_json(value: Any) -> bytes:
    """Sorted, indented JSON with a final newline, for files that people read."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_bytes(path: Path) -> bytes | None:
    """A file's bytes, or None where there is none. Raises InvalidRunError when it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object. Raises InvalidRunError saying what is missing or half-written."""
    data = read_bytes(path)
    if data is None:
        raise InvalidRunError(f"{path} does not exist: {path.parent} is no {what}.")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRunError(f"{path}: half-written or no JSON ({error}).") from None
    if not isinstance(value, dict):
        raise InvalidRunError(f"{path}: holds {type(value).__name__} where an object is expected.")
    return value


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json. Raises InvalidRunError when it is missing, half-written or of a newer version."""
    run = read_json(folder / RUN_FILE, "run directory")
    version = run.get("schema_version")
    if isinstance(version, int) and version > RUN_SCHEMA_VERSION:
        raise InvalidRunError(
            f"{folder / RUN_FILE}: schema_version {version}; this program reads up to {RUN_SCHEMA_VERSION}."
        )
    parts = {"schema_version": int, "surface": str, "stamp": str, "identities": dict, "plan": dict, "provenance": dict}
    wrong = [name for name, kind in parts.items() if not isinstance(run.get(name), kind)]
    if wrong:
        raise InvalidRunError(f"{folder / RUN_FILE}: no run header ({', '.join(wrong)} missing or of another type).")
    return run


def header_line(identities: Mapping[str, Any], plan: Mapping[str, Any], index: int, count: int) -> bytes:
    """The first line of a shard, without its line end."""
    return canonical_json(
        {
            "header": {
                "identities": dict(identities),
                "plan": dict(plan),
                "schema_version": RUN_SCHEMA_VERSION,
                "shard": [index, count],
            }
        }
    )


def next_chain(chain: str, record: bytes) -> str:
    """The chain digest after a record."""
    return hashlib.sha256(chain.encode() + record).hexdigest()


@dataclass(frozen=True, slots=True)
class ShardLine:
    """One record of a shard, where it stands (lines counted from 1), and the chain digest up to it."""

    record: EpisodeRecord
    place: str
    chain: str


def _split(line: bytes, place: str) -> tuple[str, bytes]:
    """Chain digest and record bytes of a line: ``{"chain":"<64 hex>","record":<record>}``."""
    head, middle, tail = b'{"chain":"', b'","record":', b"}"
    start, end = len(head), len(head) + 64
    if not (line.startswith(head) and line[end : end + len(middle)] == middle and line.endswith(tail)):
        raise InvalidRunError(f"{place}: no record line.")
    return line[start:end].decode("ascii", "replace"), line[end + len(middle) : -1]


def _join(chain: str, record: bytes) -> bytes:
    return b'{"chain":"' + chain.encode() + b'","record":' + record + b"}\n"


def read_shard(path: Path) -> Iterator[dict[str, Any] | ShardLine]:
    """Yield the header, then every record with its place. Raises InvalidRunError at the first line that is not right."""
    try:
        with path.open("rb") as file:
            first = file.readline()
            place = f"{path.name}, line 1"
            if not first.endswith(b"\n"):
                raise InvalidRunError(f"{place}: the header is torn.")
            yield _header(first, place)
            chain = sha256_hex(first[:-1])
            for number, line in enumerate(file, start=2):
                place = f"{path.name}, line {number}"
                if not line.endswith(b"\n"):
                    raise InvalidRunError(f"{place}: torn; run the same command again to go on from here.")
                stored, record = _split(line[:-1], place)
                chain = next_chain(chain, record)
                if chain != stored:
                    raise InvalidRunError(
                        f"{place}: the digest chain is broken; this line or one before it was altered."
                    )
                yield ShardLine(decode(record, place), place, chain)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None


def _header(line: bytes, place: str) -> dict[str, Any]:
    try:
        header = orjson.loads(line)["header"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidRunError(f"{place}: no shard header.") from None
    if not isinstance(header, dict):
        raise InvalidRunError(f"{place}: no shard header.")
    if not isinstance(header.get("schema_version"), int) or header["schema_version"] > RUN_SCHEMA_VERSION:
        raise InvalidRunError(
            f"{place}: schema_version {header.get('schema_version')}; this program reads up to {RUN_SCHEMA_VERSION}."
        )
    return header


class ShardWriter:
    """Appends records to a shard; opened again, it goes on after the last whole line."""

    def __init__(self, path: Path, header: bytes) -> None:
        self.path = path
        self.attempts: dict[str, int] = {}
        self.finished: set[str] = set()
        try:
            self._chain = self._recover(header)
            self._file = path.open("ab")
            if self._file.tell() == 0:
                self._file.write(header + b"\n")
                self._file.flush()
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None

    def _recover(self, header: bytes) -> str:
        """Cut a torn last line off, note what is finished, and return the chain digest so far."""
        chain = sha256_hex(header)
        if not self.path.exists():
            return chain
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        first = header + b"\n"
        if not (whole.startswith(first) if whole else first.startswith(data)):
            raise InvalidRunError(
                f"{self.path.name}: belongs to another run; use another --out, or the command of that run."
            )
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        if not whole:
            return chain
        for line in read_shard(self.path):
            if isinstance(line, ShardLine):
                self._note(line.record)
                chain = line.chain
        return chain

    def _note(self, record: EpisodeRecord) -> None:
        self.attempts[record.episode_id] = self.attempts.get(record.episode_id, 0) + 1
        if not record.infrastructure:
            self.finished.add(record.episode_id)

    def append(self, record: EpisodeRecord) -> None:
        """Write a record as one line. Raises InvalidRunError when the disk does not take it; what stands stays valid."""
        data = encode(record)
        chain = next_chain(self._chain, data)
        try:
            self._file.write(_join(chain, data))
            self._file.flush()
        except OSError as error:
            raise InvalidRunError(
                f"{self.path}: cannot be written ({error.strerror}); what was done is kept."
            ) from None
        self._chain = chain
        self._note(record)

    def close(self) -> None:
        """Bring everything to the disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InvalidRunError(
                f"{self.path}: cannot be written ({error.strerror}); what was done is kept."
            ) from None
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def count_episodes(folder: Path) -> tuple[int, int]:
    """Finished episodes and attempts that ended for reasons of the machine; reads a live run, whose last line may be torn."""
    finished: set[str] = set()
    failed = 0
    for path in sorted(folder.glob(SHARD_GLOB)):
        try:
            lines = path.read_bytes().split(b"\n")[1:-1]
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None
        for number, line in enumerate(lines, start=2):
            place = f"{path.name}, line {number}"
            record = decode(_split(line, place)[1], place)
            if record.infrastructure:
                failed += 1
            else:
                finished.add(record.episode_id)
    return len(finished), failed
