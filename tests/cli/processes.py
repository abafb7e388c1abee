"""Programs under faults: children that are known from all other processes, and whose end is waited for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cli.program import ROOT, environment

MARK = "SCHEMAROUTER_TEST_MARK"
# A deadline against a hang, never waited for when all is well.
PATIENCE_MS = 60_000
# A child of a shell's background job would ignore SIGINT, and a test with it.
PROGRAM = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('schemarouter', run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True)
class Family:
    """A child and all that it started, down to the last one, by a mark that they inherit."""

    child: subprocess.Popen[bytes]
    mark: str

    def others(self) -> list[int]:
        """Processes that the child started and that still live."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.child.pid:
                with suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def next_line(self) -> str:
        """The next line of the child's stderr."""
        assert self.child.stderr is not None
        return self.child.stderr.readline().decode()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.child.send_signal(signal.SIGINT)

    def ended(self) -> str:
        """Wait for the child's end; what else it said on stderr."""
        return self.child.communicate()[1].decode()

    def left(self) -> list[int]:
        """Those of its processes that do not end by themselves."""
        return [pid for pid in self.others() if not wait_for(pid)]


def wait_for(pid: int) -> bool:
    """Wait for the end of a process that need not be a child; False where it does not end."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE_MS))
    finally:
        os.close(descriptor)


@contextmanager
def started(*arguments: object, program: str = PROGRAM) -> Iterator[Family]:
    """Run a program with these arguments; none of its processes outlives the block."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**{MARK: mark}), cwd=ROOT
    ) as child:
        family = Family(child, mark)
        try:
            yield family
        finally:
            for pid in (*family.others(), *([child.pid] if child.poll() is None else [])):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
