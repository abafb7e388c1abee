"""What was computed of a text, kept on disk: one file for everything that one thing computes, a record a text.

A file's name is the hash of what computes the values, and so is the beginning of what every record's SHA-256 is over: no
other encoder, tokenizer or version meets it. A record is appended in one write, so that processes may write at once and a
crash loses the last one at most. What is torn or altered is computed again and not believed, and a file that cannot be read or
written costs time and nothing else.
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

DIGEST_BYTES = 32
_VARIABLE = "SCHEMAROUTER_CACHE"
# A file that has grown beyond this goes on with the newer half of it.
_LARGEST_BYTES = 2**25


def cache_folder() -> Path | None:
    """Where computed things are kept between runs: ``SCHEMAROUTER_CACHE``, else the user's cache folder; None without a home."""
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
    """A cache folder of its own for the time of the block, empty at first and gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, environment({_VARIABLE: folder}):
        yield


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a plain file of at most `most` bytes. Raises OSError for anything else: a pipe would never end."""
    with _regular(path) as (file, size):
        if size > most:
            raise OSError(errno.EFBIG, "too large", str(path))
        return file.read(size)  # Room is made for as much as is asked for, so not for `most`.


def _read_newest(path: Path, most: int, step: int) -> tuple[bytes, int]:
    """The last whole steps of a plain file, at most `most` bytes, and the size of the whole. Raises OSError."""
    with _regular(path) as (file, size):
        file.seek(max(0, size // step - most // step) * step)
        return file.read(most), size


@contextmanager
def _regular(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file to be read, and its size. Raises OSError for anything else: a pipe would never end."""
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no plain file", str(path))
        yield file, status.st_size


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def replace_whole(path: Path, body: bytes) -> None:
    """Write a file so that others see the old one or the new one and nothing between. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        temporary = Path(file.name)
    try:
        temporary.write_bytes(body)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class DiskCache:
    """Values of `size` bytes by text, in memory and in a file of `folder` (the cache folder unless given).

    `kind` names the file's subfolder, `identity` is everything that decides a value besides the text. Beyond `largest` bytes
    nothing more is kept until the file is next read, which leaves the newer half.
    """

    def __init__(
        self, kind: str, identity: object, size: int, *, folder: Path | None = None, largest: int = _LARGEST_BYTES
    ) -> None:
        digest = fingerprint([kind, identity, size])
        chosen = folder or cache_folder()
        self._path = chosen / kind / f"{digest}.log" if chosen else None
        self._salt = bytes.fromhex(digest)
        self._size = size
        self._most = largest // (size + 2 * DIGEST_BYTES)

    def get(self, text: str) -> bytes | None:
        """The value of a text, or None where none is kept."""
        return self._known.get(_key(text))

    def put(self, text: str, value: bytes) -> None:
        """Keep the value of a text, `size` bytes."""
        if len(value) != self._size:
            raise ValueError(f"a value is {self._size} bytes, not {len(value)}")
        key = _key(text)
        if key in self._known or len(self._known) >= self._most:
            return
        self._known[key] = value
        if self._path:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Unbuffered and appending: one write, whole, wherever the file ends by then.
                with open(self._path, "ab", buffering=0, opener=_open_at_once) as file:
                    file.write(self._record(key, value))

    @cached_property
    def _known(self) -> dict[bytes, bytes]:
        step = self._size + 2 * DIGEST_BYTES
        try:
            data, size = _read_newest(self._path, 2 * _LARGEST_BYTES, step) if self._path else (b"", 0)
        except OSError:
            return {}
        known = self._read(data)
        if len(known) >= self._most:
            known = dict(list(known.items())[len(known) - self._most // 2 :])
        if self._path and len(known) * step != size:
            # What others append to the file meanwhile is lost, which costs them time.
            with suppress(OSError):
                replace_whole(self._path, b"".join(self._record(key, value) for key, value in known.items()))
        return known

    def _read(self, data: bytes) -> dict[bytes, bytes]:
        """The whole records of a file's bytes, in their order."""
        known = {}
        step = self._size + 2 * DIGEST_BYTES
        for start in range(0, len(data) - step + 1, step):
            record = data[start : start + step]
            key, value = record[:DIGEST_BYTES], record[DIGEST_BYTES:-DIGEST_BYTES]
            if record == self._record(key, value):
                known[key] = value
        return known

    def _record(self, key: bytes, value: bytes) -> bytes:
        return key + value + hashlib.sha256(self._salt + key + value).digest()


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
