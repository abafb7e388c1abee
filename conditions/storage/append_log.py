"""An append-only log whose lines are on disk at most a second after they were written."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Self

from schemarouter.errors import InvalidRunError
from schemarouter.files import write_all

GROUP_SECONDS = 1.0


class Closing(ABC):
    """A context manager that is closed at the end of its block."""

    @abstractmethod
    def close(self) -> None:
        """Write everything to disk. Raises InvalidRunError where that fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # The error that ended the block is raised, not one of closing the file.
        with suppress(InvalidRunError):
            self.close()


class Log(Closing):
    """A file to which lines are appended, each in one write; a thread syncs them to disk in groups.

    Nothing is buffered, so a line that a full disk refused is not written again when the file is closed. The thread also
    syncs while no line is written, so that a power failure loses at most a second.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
            _sync_folder(path.parent)
        except OSError as error:
            raise self._unwritable(error) from None
        self._end = self._file.tell()
        self.empty = self._end == 0
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._failure: OSError | None = None
        self._syncer = threading.Thread(target=self._sync_by_group, name=f"sync {path.name}", daemon=True)
        self._durable = durable
        if durable:
            self._syncer.start()

    def _unwritable(self, error: OSError) -> InvalidRunError:
        return InvalidRunError(f"{self.path}: cannot be written ({error.strerror}); finished work is kept.")

    def append(self, line: bytes) -> None:
        """Append a line whole or not at all. Raises InvalidRunError when it cannot be written; earlier lines stay valid."""
        if self._failure is not None:
            raise self._unwritable(self._failure)
        try:
            before = self._status().st_size
            if before != self._end:
                raise InvalidRunError(
                    f"{self.path}: another process wrote to it or truncated it meanwhile ({before} bytes where this one left "
                    f"{self._end}); the run stops. On a shared file system without locks, keep runs apart by --shard."
                )
            try:
                write_all(self._file, line)
            except OSError:
                # Where this fails too, a torn last line is left, which the next run truncates.
                with suppress(OSError):
                    self._file.truncate(before)
                raise
        except OSError as error:
            raise self._unwritable(error) from None
        self._end += len(line)
        self._dirty.set()

    def _status(self) -> os.stat_result:
        """The status of the open file. Raises InvalidRunError where it is no longer at its path, so that lines would be lost."""
        status = os.fstat(self._file.fileno())
        try:
            if os.path.samestat(status, os.stat(self.path)):
                return status
        except FileNotFoundError:
            pass
        raise InvalidRunError(f"{self.path}: was moved or removed while it was written to; the run stops.")

    def sync(self) -> None:
        """Sync the file to disk. Raises InvalidRunError where that fails."""
        self._dirty.clear()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from None

    def _sync_by_group(self) -> None:
        while not self._closing.wait(GROUP_SECONDS):
            if self._dirty.is_set():
                self._dirty.clear()
                try:
                    os.fsync(self._file.fileno())
                except OSError as error:
                    # Raised at the next line: nothing catches what a thread raises.
                    self._failure = error
                    return

    def close(self) -> None:
        """Sync and close the file. Raises InvalidRunError where a sync fails or has failed, or the file was moved or removed."""
        self._closing.set()
        if self._syncer.is_alive():
            self._syncer.join()
        try:
            self._status()
            if self._durable:
                self.sync()
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            self._file.close()
        if self._failure is not None:
            raise self._unwritable(self._failure)


def _sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, where the system can: without its entry a new file is lost."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
