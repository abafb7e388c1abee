"""One process at a time on a shard of a run directory: an advisory lock, which the system releases when the process dies."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from conditions.running.plan import WHOLE, Shard
from schemarouter.errors import InvalidRunError

try:
    import fcntl
except ImportError:  # Such a system has no flock; nothing is refused there.
    fcntl = None  # type: ignore[assignment]

LOCK_PREFIX = ".lock-"
_HELD_ELSEWHERE = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES))
_MOST_BYTES = 4096
_LOOK_SECONDS = 0.05


def lock_name(shard: Shard) -> str:
    """File name of the lock of a shard."""
    return f"{LOCK_PREFIX}{shard.label}"


def hold(folder: Path, shard: Shard = WHOLE) -> AbstractContextManager[None]:
    """Hold a shard of a run directory; as `hold_named`."""
    return hold_named(folder, lock_name(shard))


@contextmanager
def hold_named(folder: Path, name: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a file of that name in a run directory, made if need be, for the time of the block; it is gone afterwards.

    Raises InvalidRunError that names the process which holds it still after `patience` seconds. Where flock is not supported,
    the process that the file names counts as holding it as long as it lives, or is on another host, of which nothing is known.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _locked_soon(path, patience)
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


def _locked_soon(path: Path, patience: float) -> int:
    until = time.monotonic() + patience
    while True:
        try:
            return _locked(path)
        except InvalidRunError:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_SECONDS)


def _locked(path: Path) -> int:
    """Descriptor of the lock file, locked, with this process written into it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            if not _lock(descriptor, path):
                _refuse_living_holder(descriptor, path)
            if _stands_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _this_process())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder ended, and took the file away between our opening and our locking it.
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> bool:
    """Lock the open file; False where system or file system has no such locks. Raises InvalidRunError where it is held."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            raise InvalidRunError(
                f"{path.parent} is in use by {_read_holder(descriptor) or 'another process'} ({path.name}); let that run end, "
                "or use another --out."
            ) from None
        return False
    return True


def _refuse_living_holder(descriptor: int, path: Path) -> None:
    """Raise InvalidRunError where the process that the lock file names may be at work; one of this host that has ended is not."""
    holder = _read_holder(descriptor)
    if holder is None or (holder.host == socket.gethostname() and not _lives(holder.pid)):
        return
    raise InvalidRunError(
        f"{path.parent} is in use by {holder}; this file system has no locks, so if that process is gone, delete {path}."
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid != os.getpid()


def _stands_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one that stands at `path` now."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _this_process() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return orjson.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since})


@dataclass(frozen=True)
class _Holder:
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host} since {self.since}"


def _read_holder(descriptor: int) -> _Holder | None:
    """Who holds the lock, as the file says; None as long as it is not written, or not by this program."""
    try:
        told = orjson.loads(os.pread(descriptor, _MOST_BYTES, 0))
        return _Holder(str(told["host"]), int(told["pid"]), str(told["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
