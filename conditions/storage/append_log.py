"""A log that is on the disk at most a second after it was written."""

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
    """What is closed at the end of a block."""

    @abstractmethod
    def close(self) -> None:
        """Bring everything to the disk. Raises InvalidRunError where that fails."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # What ended the block is told, and not also what became of closing the file.
        with suppress(InvalidRunError):
            self.close()


class Log(Closing):
    """A file to append lines to, each in one write; what was written is brought to the disk by group.

    Nothing is buffered: what a full disk did not take is not written again when the file is closed. A thread of its own syncs
    while an episode takes its time, so that a second is what is lost at most when the power goes.
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
        return InvalidRunError(f"{self.path}: cannot be written ({error.strerror}); what was done is kept.")

    def append(self, line: bytes) -> None:
        """Append a line, or nothing of it. Raises InvalidRunError when the disk does not take it; what stands stays valid."""
        if self._failure is not None:
            raise self._unwritable(self._failure)
        try:
            before = self._status().st_size
            if before != self._end:
                raise InvalidRunError(
                    f"{self.path}: another process wrote to it or cut it off meanwhile ({before} bytes where this one left "
                    f"{self._end}); the run ends here. On a shared file system without locks, keep runs apart by --shard."
                )
            try:
                write_all(self._file, line)
            except OSError:
                # Where this fails too, a torn last line is left, which the next run cuts off.
                with suppress(OSError):
                    self._file.truncate(before)
                raise
        except OSError as error:
            raise self._unwritable(error) from None
        self._end += len(line)
        self._dirty.set()

    def _status(self) -> os.stat_result:
        """The status of the open file. Raises InvalidRunError where it stands at its path no longer: what is written is lost."""
        status = os.fstat(self._file.fileno())
        try:
            if os.path.samestat(status, os.stat(self.path)):
                return status
        except FileNotFoundError:
            pass
        raise InvalidRunError(f"{self.path}: was moved or removed while it was written to; the run ends here.")

    def sync(self) -> None:
        """Bring what was written to the disk. Raises InvalidRunError where that fails."""
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
                    # Told at the next line: a thread has nobody to tell.
                    self._failure = error
                    return

    def close(self) -> None:
        """Bring everything to the disk and close. Raises InvalidRunError where that fails or failed, or the file went away."""
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
    """Bring a folder's entries to the disk, where the system can: a file that was just made is lost with its entry."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
