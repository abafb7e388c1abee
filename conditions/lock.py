"""One process at a time on a shard of a run directory: an advisory lock, which the system releases when the process dies."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import orjson

from conditions.plan import WHOLE, Shard
from schemarouter.errors import InvalidRunError

try:
    import fcntl
except ImportError:  # Such a system has no flock; nothing is refused there.
    fcntl = None  # type: ignore[assignment]

LOCK_PREFIX = ".lock-"
_HELD_ELSEWHERE = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES))
_MOST_BYTES = 4096


def lock_name(shard: Shard) -> str:
    """File name of the lock of a shard."""
    return f"{LOCK_PREFIX}{shard.label}"


@contextmanager
def hold(folder: Path, shard: Shard = WHOLE) -> Iterator[None]:
    """Hold a shard of a run directory, made if need be, for the time of the block; the lock file is gone afterwards.

    Raises InvalidRunError that names the process which holds it already. Where flock is not supported nothing is refused.
    """
    path = folder / lock_name(shard)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path)
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
    try:
        yield
    finally:
        # Taken away while it is still held: whoever opened it meanwhile sees that it is no longer there.
        with suppress(OSError):
            if _stands_at(path, descriptor):
                path.unlink()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Descriptor of the lock file, locked, with this process written into it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            _lock(descriptor, path)
            if _stands_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _this_process())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder ended, and took the file away between our opening and our locking it.
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            raise InvalidRunError(
                f"{path.parent} is in use by {_holder(descriptor)} ({path.name}); let that run end, "
                "or use another --out."
            ) from None


def _stands_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one that stands at `path` now."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _this_process() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return orjson.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since})


def _holder(descriptor: int) -> str:
    """Who holds the lock, as the file says; it may not be written yet."""
    try:
        told = orjson.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return f"process {told['pid']} on host {told['host']} since {told['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
