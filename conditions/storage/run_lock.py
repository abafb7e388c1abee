"""Locks that let one process at a time write to a shard of a run directory; the system releases them when it dies."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import AcquireReturnProxy, FileLock, SoftFileLock, Timeout

from conditions.running.plan import WHOLE, Shard
from schemarouter.disk_cache import read_regular
from schemarouter.errors import InvalidRunError

LOCK_PREFIX = ".lock-"
_FLOCK_UNSUPPORTED = frozenset((errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK))
_MAX_BYTES = 4096


def lock_name(shard: Shard) -> str:
    """File name of the lock of a shard."""
    return f"{LOCK_PREFIX}{shard.label}"


def hold(folder: Path, shard: Shard = WHOLE) -> AbstractContextManager[None]:
    """Hold the lock of a shard of a run directory; errors as `hold_named`."""
    return hold_named(folder, lock_name(shard))


@contextmanager
def hold_named(folder: Path, name: str, *, timeout: float = 0.0) -> Iterator[None]:
    """Hold a lock of that name in a run directory for the time of the block.

    The directory is made if need be, and the files of the lock are removed afterwards. On a file system without flock the
    lock is a marker file; one that a process of this host left behind when it ended is ignored.

    Raises InvalidRunError, naming the holder, when another process holds the lock for longer than `timeout` seconds, and
    where no lock can be made.
    """
    path, holder = folder / name, folder / f"{name}.holder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = _acquired(path, timeout)
    except Timeout as refused:
        raise InvalidRunError(_refusal(path, holder, Path(refused.lock_file))) from None
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
    with held:
        message = _this_process()
        try:
            # Removed first, so that nothing is written through a link.
            holder.unlink(missing_ok=True)
            holder.write_bytes(message)
        except OSError as error:
            raise InvalidRunError(f"{holder}: cannot be written ({error.strerror}).") from None
        try:
            yield
        finally:
            # Removed while it is still held: a process that has opened it meanwhile gets no lock on it, and opens another.
            # Where the message is another process's, so is the lock at that path.
            with suppress(OSError):
                if read_regular(holder, _MAX_BYTES) == message:
                    holder.unlink()
                    path.unlink()


def _acquired(path: Path, timeout: float) -> AcquireReturnProxy[Any]:
    try:
        return FileLock(path, fallback_to_soft=False).acquire(timeout=timeout)
    except OSError as error:
        if error.errno not in _FLOCK_UNSUPPORTED:
            raise
    return SoftFileLock(f"{path}.marker").acquire(timeout=timeout)


def _refusal(path: Path, holder: Path, lock: Path) -> str:
    try:
        by = read_regular(holder, _MAX_BYTES).decode(errors="replace")
    except OSError:
        by = ""
    gone = "" if lock == path else f" This file system has no locks: if that process is gone, delete {lock}."
    return f"{path.parent} is in use by {by or 'another process'} ({path.name}); let that run end, or use another --out.{gone}"


def _this_process() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on host {socket.gethostname()} since {since}".encode()
