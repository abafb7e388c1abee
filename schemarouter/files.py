"""Files: read into models, with all mistakes reported at once, and written atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemarouter.errors import InvalidRunError, SchemaRouterError, memory_failure

_PIECE_BYTES = 1 << 20


class Document(BaseModel):
    """The typed content of a JSON file of a run; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    def as_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values."""
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        """Return the document as the bytes of its file."""
        return pretty_json(self.as_json())


# The schema_version of such a document: the integer 1, and neither true nor 1.0.
VersionOne = Annotated[int, Field(strict=True, ge=1, le=1)]
_Model = TypeVar("_Model", bound=BaseModel)


def explain(error: ValidationError) -> list[str]:
    """One line for each mistake: where it is, what is allowed, what came."""
    lines = []
    for item in error.errors(include_url=False):
        location = ".".join(str(part) for part in item["loc"]) or "file"
        lines.append(f"{location}: {item['msg']} (got {str(item.get('input'))[:80]!r})")
    return lines


def read_model(
    path: Path, model: type[_Model], failure: type[SchemaRouterError], *, location: str = "", between: str = "; "
) -> _Model:
    """Read a JSON file into a model.

    Args:
        path: The file.
        model: What it is read into.
        failure: The error to raise.
        location: What the error calls the file; its name unless given.
        between: What separates the mistakes in the error.

    Raises:
        SchemaRouterError: `failure`, with everything that is wrong with the file.
    """
    location = location or path.name
    try:
        return model.model_validate(read_json(path, failure, location))
    except ValidationError as error:
        raise failure(f"{location}: " + between.join(explain(error))) from None


def read_json(path: Path, failure: type[SchemaRouterError], location: str) -> Any:
    """Read a JSON file. Raises `failure`, which names `location`, for one that cannot be read or is not JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise failure(f"{location}: cannot be read ({error.strerror}).") from None
    except orjson.JSONDecodeError as error:
        if memory_failure(error):
            raise MemoryError(f"{location} cannot be read") from None
        raise failure(f"{location}: half-written or not JSON ({error}).") from None


def parse_document(value: Any, model: type[_Model], location: str, what: str, version: int = 1) -> _Model:
    """Read a document of a run from JSON values.

    Args:
        value: The JSON values.
        model: What they are read into.
        location: The location that an error names.
        what: What an error calls the document.
        version: The newest schema_version that is read.

    Raises:
        InvalidRunError: For a newer version, and for values that do not fit the model.
    """
    given = value.get("schema_version") if isinstance(value, Mapping) else None
    if isinstance(given, int) and not 1 <= given <= version:
        raise InvalidRunError(
            f"{location}: schema_version {given}; this program reads up to {version}, and none below 1."
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRunError(f"{location}: no {what} ({'; '.join(explain(error)[:5])}).") from None


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace a file atomically with `data`, given whole or in pieces. Raises InvalidRunError when that fails."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace a file atomically: a reader sees the old one or the new one, also after a crash. Raises OSError."""
    with _beside(path, data) as name:
        os.replace(name, path)


def write_new(path: Path, data: bytes) -> bool:
    """Write a file atomically where there is none yet. Raises InvalidRunError when that fails.

    Returns:
        Whether it was written: False where the file exists, written by another process.
    """
    try:
        with _beside(path, data) as name:
            try:
                # A link, unlike a move, never replaces what another process has written there meanwhile.
                os.link(name, path)
            except FileExistsError:
                return False
            except OSError:
                # A file system without links: of several processes that begin one run, the last wins, with the same header.
                os.replace(name, path)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
    return True


@contextmanager
def _beside(path: Path, data: bytes | Iterable[bytes]) -> Iterator[str]:
    """Write and sync a temporary file beside `path` and yield its name; it is deleted after the block unless it was moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made as any file is, so that the umask decides who may read it.
    name = str(path.with_name(f".{path.name}.{secrets.token_hex(8)}"))
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for piece in (data,) if isinstance(data, bytes) else _gathered(data):
                write_all(file, piece)
            os.fsync(descriptor)
        yield name
    finally:
        with suppress(OSError):
            os.unlink(name)


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces, so that fewer writes are made."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file, whose `write` may take only a part of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def pretty_json(value: Any) -> bytes:
    """Sorted, indented JSON with a final newline, for files that people read."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
