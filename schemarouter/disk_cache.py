"""A cache on disk of values computed from texts: one file for each function that computes them, one record for each text.

A file is named after the hash of what computes its values, and the SHA-256 of every record covers that hash, so another
encoder, tokenizer or version never reads it. A record is appended in one write: several processes may write at once, and a
crash loses at most the last record. Torn and altered records are computed again. A file that cannot be read or written costs
time and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from schemarouter.canonical import fingerprint
from schemarouter.environ import environment
from schemarouter.files import replace_file

DIGEST_BYTES = 32
_VARIABLE = "SCHEMAROUTER_CACHE"
# A larger file is cut to the newer half of its records when it is next read.
_MAX_BYTES = 2**25


def cache_folder() -> Path | None:
    """The folder of all caches: ``SCHEMAROUTER_CACHE``, else one in the user's cache folder; None where there is no home."""
    chosen = os.environ.get(_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "schemarouter-research"
    except RuntimeError:
        return None


@contextmanager
def no_cache() -> Iterator[None]:
    """Use an empty temporary cache folder within the block."""
    with tempfile.TemporaryDirectory() as folder, environment({_VARIABLE: folder}):
        yield


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes` bytes. Raises OSError for anything else: a pipe would never end."""
    with _regular(path) as (file, size):
        if size > max_bytes:
            raise OSError(errno.EFBIG, "too large", str(path))
        return file.read(size)  # Not max_bytes: as much memory as is asked for would be allocated.


def _read_newest(path: Path, max_bytes: int, step: int) -> tuple[bytes, int]:
    """The last whole records (`step` bytes each) of a regular file, at most `max_bytes`, and its size. Raises OSError."""
    with _regular(path) as (file, size):
        file.seek(max(0, size // step - max_bytes // step) * step)
        return file.read(max_bytes), size


@contextmanager
def _regular(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file opened for reading, and its size in bytes. Raises OSError for anything else."""
    with open(path, "rb", opener=_open_without_blocking) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield file, status.st_size


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


class DiskCache:
    """Values of one size by text, in memory and in a file.

    A full cache takes no new values until its file is next read, which keeps the newer half.

    Args:
        kind: The file's subfolder.
        identity: Everything besides the text that decides a value, as JSON values.
        size: Bytes of a value.
        folder: Where the subfolder is; the cache folder unless given.
        max_bytes: Size of a full cache.
    """

    def __init__(
        self, kind: str, identity: object, size: int, *, folder: Path | None = None, max_bytes: int = _MAX_BYTES
    ) -> None:
        digest = fingerprint([kind, identity, size])
        chosen = folder or cache_folder()
        self._path = chosen / kind / f"{digest}.log" if chosen else None
        self._salt = bytes.fromhex(digest)
        self._size = size
        self._max_records = max_bytes // (size + 2 * DIGEST_BYTES)

    def get(self, text: str) -> bytes | None:
        """Return the value of a text, or None where there is none."""
        return self._known.get(_key(text))

    def put(self, text: str, value: bytes) -> None:
        """Store the value of a text. Raises ValueError unless it has the size of this cache's values."""
        if len(value) != self._size:
            raise ValueError(f"a value is {self._size} bytes, not {len(value)}")
        key = _key(text)
        if key in self._known or len(self._known) >= self._max_records:
            return
        self._known[key] = value
        if self._path:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Unbuffered and appending: the record is written whole at wherever the file ends by then.
                with open(self._path, "ab", buffering=0, opener=_open_without_blocking) as file:
                    file.write(self._record(key, value))

    @cached_property
    def _known(self) -> dict[bytes, bytes]:
        step = self._size + 2 * DIGEST_BYTES
        try:
            data, size = _read_newest(self._path, 2 * _MAX_BYTES, step) if self._path else (b"", 0)
        except OSError:
            return {}
        records = self._read(data)
        known = dict(records)
        overgrown = len(known) >= self._max_records
        if overgrown:
            known = dict(list(known.items())[len(known) - self._max_records // 2 :])
        # Not by the size alone: the file may have grown since, and a rewrite loses what others append meanwhile.
        if self._path and (overgrown or len(data) < size or len(records) * step != len(data)):
            with suppress(OSError):
                replace_file(self._path, b"".join(self._record(key, value) for key, value in known.items()))
        return known

    def _read(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Key and value of the valid records of a file's bytes, in their order."""
        records = []
        step = self._size + 2 * DIGEST_BYTES
        for start in range(0, len(data) - step + 1, step):
            record = data[start : start + step]
            key, value = record[:DIGEST_BYTES], record[DIGEST_BYTES:-DIGEST_BYTES]
            if record == self._record(key, value):
                records.append((key, value))
        return records

    def _record(self, key: bytes, value: bytes) -> bytes:
        return key + value + hashlib.sha256(self._salt + key + value).digest()


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
