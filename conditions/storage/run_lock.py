"""One process at a time on a shard of a run directory: a lock that the system releases when the process dies."""

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
_NO_FLOCK_HERE = frozenset((errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK))
_MAX_BYTES = 4096


def lock_name(shard: Shard) -> str:
    """File name of the lock of a shard."""
    return f"{LOCK_PREFIX}{shard.label}"


def hold(folder: Path, shard: Shard = WHOLE) -> AbstractContextManager[None]:
    """Hold a shard of a run directory; as `hold_named`."""
    return hold_named(folder, lock_name(shard))


@contextmanager
def hold_named(folder: Path, name: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock of that name in a run directory, made if need be, for the time of the block; its files are gone afterwards.

    Raises InvalidRunError that names the process which holds it still after `patience` seconds, or where no lock can be. On a
    file system without flock a marker file is the lock: left by a process of this host that has ended it holds nothing.
    """
    path, holder = folder / name, folder / f"{name}.holder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = _acquired(path, patience)
    except Timeout as refused:
        raise InvalidRunError(_refusal(path, holder, Path(refused.lock_file))) from None
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be written ({error.strerror}).") from None
    with held:
        told = _this_process()
        try:
            # ProcessLocal anew: nothing is written through a link.
            holder.unlink(missing_ok=True)
            holder.write_bytes(told)
        except OSError as error:
            raise InvalidRunError(f"{holder}: cannot be written ({error.strerror}).") from None
        try:
            yield
        finally:
            # Taken away while it is still held: who has opened it meanwhile gets no lock on it, and opens another. Where the
            # message is another's, so is the lock that stands there.
            with suppress(OSError):
                if read_regular(holder, _MAX_BYTES) == told:
                    holder.unlink()
                    path.unlink()


def _acquired(path: Path, patience: float) -> AcquireReturnProxy[Any]:
    try:
        return FileLock(path, fallback_to_soft=False).acquire(timeout=patience)
    except OSError as error:
        if error.errno not in _NO_FLOCK_HERE:
            raise
    return SoftFileLock(f"{path}.marker").acquire(timeout=patience)


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
