r"""A run directory: run.json, append-only shards of episodes, and wall times in a file of their own.

A shard's first line is its header; every further line holds a record and the chain digest up to it: SHA-256 over the
digest before and the record's bytes. Lines are split on ``\n`` alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Self

import orjson

from schemarouter.errors import InvalidRunError
from schemarouter.identity import CanonicalError, canonical_json, sha256_hex
from schemarouter.records import EpisodeRecord, decode, encode

RUN_SCHEMA_VERSION = 1
RUN_FILE = "run.json"
AGGREGATE_FILE = "aggregate.json"
VERDICT_FILE = "verdict.json"
TIMING_FILE = "timing.jsonl"
SHARD_GLOB = "episodes-*.jsonl"
# The parts of run.json, of the provenance in it and of a shard's header, each with the types that it may have.
RUN_PARTS: Mapping[str, tuple[type, ...]] = {
    "schema_version": (int,), "surface": (str,), "stamp": (str,), "identities": (dict,), "plan": (dict,),
    "provenance": (dict,),
}  # fmt: skip
PROVENANCE_PARTS: Mapping[str, tuple[type, ...]] = {
    "argv": (list,), "code": (str,), "commit": (str, type(None)), "dirty": (bool, type(None)), "packages": (dict,),
    "python": (str,),
}  # fmt: skip
_HEADER_PARTS: Mapping[str, tuple[type, ...]] = {
    "identities": (dict,), "plan": (dict,), "schema_version": (int,), "shard": (list,),
}  # fmt: skip


def shard_name(index: int, count: int) -> str:
    """File name of a shard, counted from 1."""
    return f"episodes-{index:05d}-of-{count:05d}.jsonl"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and move it in; where that fails nothing is left beside it.

    Raises InvalidRunError when the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file, data)
                os.fsync(descriptor)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def _write_all(file: FileIO, data: bytes) -> None:
    """Write all of it to an unbuffered file, which may take less at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def open_log(path: Path) -> FileIO:
    """Open a file to append to. Raises InvalidRunError when it cannot be written.

    Nothing is buffered: what a full disk did not take is not written again when the file is closed.
    """
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line, or nothing of it. Raises InvalidRunError when the disk does not take it; what stands stays valid."""
    try:
        before = os.fstat(file.fileno()).st_size
        try:
            _write_all(file, line)
        except OSError:
            # Where this fails too, a torn last line is left, which the next run cuts off.
            with suppress(OSError):
                file.truncate(before)
            raise
    except OSError as error:
        raise InvalidRunError(f"{file.name}: cannot be written ({error.strerror}); what was done is kept.") from None


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
    """Read run.json. Raises InvalidRunError when it is missing, half-written, of another version or of other parts."""
    place = folder / RUN_FILE
    run = read_json(place, "run directory")
    _check_version(run, str(place))
    wrong = _wrong_parts(run, RUN_PARTS)
    if not wrong:
        wrong = [f"provenance.{name}" for name in _wrong_parts(run["provenance"], PROVENANCE_PARTS)]
    if wrong:
        raise InvalidRunError(f"{place}: no run header ({', '.join(wrong)} missing, unknown or of another type).")
    return run


def _check_version(header: Mapping[str, Any], place: str) -> None:
    version = header.get("schema_version")
    if isinstance(version, int) and not 1 <= version <= RUN_SCHEMA_VERSION:
        raise InvalidRunError(
            f"{place}: schema_version {version}; this program reads up to {RUN_SCHEMA_VERSION}, and none below 1."
        )


def _wrong_parts(value: Mapping[str, Any], parts: Mapping[str, tuple[type, ...]]) -> list[str]:
    """Names of the parts that are missing or of another type, and of those that should not be there."""
    # By the very type: true is no version, though Python counts it among the integers.
    wrong = [name for name, kinds in parts.items() if type(value.get(name, ...)) not in kinds]
    return wrong + sorted(set(value) - set(parts))


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
    """Yield the header, then every record with its place. Raises InvalidRunError at the first line that is not right.

    A record or header whose bytes are not those that this program writes of it is not right: it could hold a key twice.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
            place = f"{path.name}, line 1"
            if not first.endswith(b"\n"):
                raise InvalidRunError(f"{place}: the header is torn.")
            yield _header(first, path.name, place)
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
                told = decode(record, place)
                if encode(told) != record:
                    raise InvalidRunError(
                        f"{place}: the record is no canonical JSON (sorted keys, each once, no white space)."
                    )
                yield ShardLine(told, place, chain)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None


def _header(line: bytes, name: str, place: str) -> dict[str, Any]:
    try:
        header = orjson.loads(line)["header"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidRunError(f"{place}: no shard header.") from None
    if not isinstance(header, dict):
        raise InvalidRunError(f"{place}: no shard header.")
    _check_version(header, place)
    wrong = _wrong_parts(header, _HEADER_PARTS)
    if wrong:
        raise InvalidRunError(f"{place}: no shard header ({', '.join(wrong)} missing, unknown or of another type).")
    if not _names_shard(name, header["shard"]):
        raise InvalidRunError(f"{place}: the header is of shard {header['shard']}, which is not what {name} says.")
    try:
        same = canonical_json({"header": header}) == line[:-1]
    except CanonicalError:
        same = False
    if not same:
        raise InvalidRunError(f"{place}: the header is no canonical JSON (sorted keys, each once, no white space).")
    return header


def _names_shard(name: str, shard: list[Any]) -> bool:
    """Whether a file's name is that of the shard [index, count]."""
    if [type(number) for number in shard] != [int, int]:
        return False
    index, count = shard
    return 1 <= index <= count and shard_name(index, count) == name


class ShardWriter:
    """Appends records to a shard; opened again, it goes on after the last whole line."""

    def __init__(self, path: Path, header: bytes) -> None:
        self.path = path
        self.attempts: dict[str, int] = {}
        self.finished: set[str] = set()
        try:
            self._chain = self._recover(header)
        except OSError as error:
            raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
        self._file = open_log(path)
        if self._file.tell() == 0:
            try:
                append_line(self._file, header + b"\n")
            except InvalidRunError:
                self._file.close()
                raise

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
        append_line(self._file, _join(chain, data))
        self._chain = chain
        self._note(record)

    def close(self) -> None:
        """Bring everything to the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InvalidRunError(
                f"{self.path}: cannot be written ({error.strerror}); what was done is kept."
            ) from None
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # What ended the block is told, and not also what became of closing the file.
        with suppress(InvalidRunError):
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
