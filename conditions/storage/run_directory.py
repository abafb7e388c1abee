"""The files of a run directory: written beside their place and moved in, or appended to a line at a time; run.json."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import orjson

from schemarouter.errors import InvalidRunError

# Version 1 knew one view of the catalogs, no repeats, no limits and no other way on than under the same code.
RUN_SCHEMA_VERSION = 2
RUN_FILE = "run.json"
AGGREGATE_FILE = "aggregate.json"
VERDICT_FILE = "verdict.json"
_PIECE_BYTES = 1 << 20
# The parts of run.json and of the provenance in it, each with the types that it may have.
RUN_PARTS: Mapping[str, tuple[type, ...]] = {
    "schema_version": (int,), "surface": (str,), "stamp": (str,), "identities": (dict,), "plan": (dict,),
    "provenance": (dict,), "limits": (dict,), "resumed": (list,),
}  # fmt: skip
PROVENANCE_PARTS: Mapping[str, tuple[type, ...]] = {
    "argv": (list,), "code": (str,), "commit": (str, type(None)), "dirty": (bool, type(None)), "packages": (dict,),
    "python": (str,),
}  # fmt: skip


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file, whole or in pieces, beside its place and move it in; where that fails nothing is left beside it.

    Raises InvalidRunError when the folder cannot be written.
    """
    try:
        with _beside(path, data) as name:
            os.replace(name, path)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def write_new(path: Path, data: bytes) -> bool:
    """Write a file where there is none yet, whole or not at all; False where another process was first.

    Raises InvalidRunError when the folder cannot be written.
    """
    try:
        with _beside(path, data) as name:
            try:
                # A link, unlike a move, never takes the place of what another process has put there meanwhile.
                os.link(name, path)
            except FileExistsError:
                return False
            except OSError:
                # A file system without links: the last of those that begin one run together wins, with the same header.
                os.replace(name, path)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
    return True


@contextmanager
def _beside(path: Path, data: bytes | Iterable[bytes]) -> Iterator[str]:
    """The name of a new file beside `path` with that content, on the disk; gone after the block where it was not moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for piece in (data,) if isinstance(data, bytes) else _gathered(data):
                write_all(file, piece)
            os.fsync(descriptor)
        os.chmod(name, 0o644)
        yield name
    finally:
        with suppress(OSError):
            os.unlink(name)


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces, so that not every line is a write of its own."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of it to an unbuffered file, which may take less at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


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
    check_version(run, str(place))
    upgrade(run)
    wrong = wrong_parts(run, RUN_PARTS)
    if not wrong:
        told = {"provenance": run["provenance"], **{f"resumed.{n}": item for n, item in enumerate(run["resumed"])}}
        for part, item in told.items():
            parts = wrong_parts(item, PROVENANCE_PARTS) if isinstance(item, dict) else ["provenance"]
            wrong += [f"{part}.{name}" for name in parts]
    if wrong:
        raise InvalidRunError(f"{place}: no run header ({', '.join(wrong)} missing, unknown or of another type).")
    return run


def check_version(header: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRunError for a header of a version that this program does not read."""
    version = header.get("schema_version")
    if isinstance(version, int) and not 1 <= version <= RUN_SCHEMA_VERSION:
        raise InvalidRunError(
            f"{place}: schema_version {version}; this program reads up to {RUN_SCHEMA_VERSION}, and none below 1."
        )


def wrong_parts(value: Mapping[str, Any], parts: Mapping[str, tuple[type, ...]]) -> list[str]:
    """Names of the parts that are missing or of another type, and of those that should not be there."""
    # By the very type: true is no version, though Python counts it among the integers.
    wrong = [name for name, kinds in parts.items() if type(value.get(name, ...)) not in kinds]
    return wrong + sorted(set(value) - set(parts))


def upgrade(header: dict[str, Any]) -> None:
    """Fill what a header of version 1, of run.json or of a shard, leaves unsaid because there was one way only."""
    if header.get("schema_version") != 1:
        return
    for part, name, value in (("identities", "catalog_view", "full"), ("plan", "repeats", 1)):
        if isinstance(header.get(part), dict):
            header[part].setdefault(name, value)
    header.setdefault("limits", {"episode_seconds": None})
    if "surface" in header:
        header.setdefault("resumed", [])
