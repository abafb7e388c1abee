"""Files: read into models with everything that is wrong told at once, and written beside their place and moved in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemarouter.errors import InvalidRunError, SchemaRouterError

_PIECE_BYTES = 1 << 20


class Document(BaseModel):
    """What a JSON file of a run holds, typed; nothing else may stand in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    def as_json(self) -> dict[str, Any]:
        """The document as plain JSON values."""
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        """The document as its file holds it."""
        return pretty_json(self.as_json())


# What a document of this version holds: a whole number, and neither true nor 1.0.
VersionOne = Annotated[int, Field(strict=True, ge=1, le=1)]
_Model = TypeVar("_Model", bound=BaseModel)


def explain(error: ValidationError) -> list[str]:
    """One line a mistake: where it is, what came, what is allowed."""
    lines = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"]) or "file"
        lines.append(f"{where}: {item['msg']} (got {str(item.get('input'))[:80]!r})")
    return lines


def read_model(
    path: Path, model: type[_Model], failure: type[SchemaRouterError], *, location: str = "", between: str = "; "
) -> _Model:
    """Read a JSON file into a model. Raises `failure` with the location and, `between` them, everything wrong with the file."""
    location = location or path.name
    try:
        return model.model_validate(read_json(path, failure, location))
    except ValidationError as error:
        raise failure(f"{location}: " + between.join(explain(error))) from None


def read_json(path: Path, failure: type[SchemaRouterError], location: str) -> Any:
    """Read a JSON file. Raises `failure`, saying `location`, for one that cannot be read or is no JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise failure(f"{location}: cannot be read ({error.strerror}).") from None
    except orjson.JSONDecodeError as error:
        raise failure(f"{location}: half-written or not JSON ({error}).") from None


def parse_document(value: Any, model: type[_Model], location: str, what: str, version: int = 1) -> _Model:
    """Read a document of a run from JSON values.

    Raises InvalidRunError, saying `location` and `what` it is not, for a newer version than `version` and for anything wrong.
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
