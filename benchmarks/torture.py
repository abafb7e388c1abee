"""``python -m benchmarks.torture``: kill runs at random times, resume them, and compare each with an undisturbed run.

Every other time the shard is first cut back to what was last synced to the disk, as after a power failure. Each run is a fork of
a process that has everything loaded, so that a hundred take minutes; some are made by the command itself, with two workers.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from conditions.running.engines.base import InProcess
from conditions.running.execute import execute
from conditions.running.plan import WHOLE, make_plan
from conditions.running.provenance import provenance
from conditions.running.runner import Runner, Setup
from conditions.storage import append_log
from conditions.storage.shards import shard_name
from gates.aggregate import read_complete_run
from gates.identities import load_reference
from gates.run_header import new_header
from preregistration.protocol import load_protocol
from surface.loader import load_surface

SETUP = Setup("development", "bm25", "reference")
TASKS = 12
_OFFSET = struct.Struct("<q")
# Every 20th run is made by the command itself, with worker processes.
_COMMAND_EVERY = 20


class Victim:
    """Makes runs of one small grid in processes that can be killed."""

    def __init__(self, folder: Path) -> None:
        tasks = [task.prompt.id for task in load_surface(SETUP.surface).tasks[::7][:TASKS]]
        self.plan = make_plan(load_protocol(SETUP.surface), load_surface(SETUP.surface), tasks=tasks, catalogs=[100])
        self.header = new_header(SETUP, self.plan, provenance(folder), exploratory=True)
        self.reference = load_reference(self.header)
        self._runner: Runner = SETUP()
        self._runner.prepare(100)
        self._synced = mmap.mmap(-1, _OFFSET.size)
        self._command = [
            *(sys.executable, "-m", "schemarouter", "run", "--workers", "2", "--exploratory", "--display", "none"),
            *("--retriever", SETUP.retriever, "--catalog", "100", *(x for task in tasks for x in ("--task", task))),
        ]

    def start(self, out: Path, group_seconds: float) -> int:
        """Begin or resume a run in a forked process; returns its id."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                append_log.GROUP_SECONDS = group_seconds
                self._note_syncs(out / shard_name(WHOLE))
                execute(out, self.header, self.plan, InProcess(self._runner), lambda done: None)
                code = 0
            finally:
                os._exit(code)
        return child

    def start_command(self, out: Path) -> subprocess.Popen[bytes]:
        """Begin or resume a run by the command."""
        return subprocess.Popen([*self._command, "--out", str(out)], stderr=subprocess.DEVNULL)

    def _note_syncs(self, shard: Path) -> None:
        """Have this process note in shared memory how many bytes of the shard are synced to the disk."""
        fsync: Callable[[Any], None] = os.fsync

        def noting(descriptor: Any) -> None:
            status = os.fstat(descriptor)
            fsync(descriptor)
            if shard.exists() and os.path.samestat(status, shard.stat()):
                self._synced[:] = _OFFSET.pack(status.st_size)

        setattr(os, "fsync", noting)  # noqa: B010 (a type checker allows no other way)

    def forget_syncs(self) -> None:
        """Start a new run: nothing of it is on the disk."""
        self._synced[:] = _OFFSET.pack(0)

    def lose_power(self, out: Path) -> None:
        """Cut the shard back to what was synced to the disk."""
        shard = out / shard_name(WHOLE)
        if shard.exists():
            os.truncate(shard, _OFFSET.unpack(self._synced[:])[0])

    def result(self, out: Path) -> bytes:
        """The bytes of the aggregate."""
        return b"".join(read_complete_run(out, self.reference).aggregate().chunks())


def ended(child: int) -> bool:
    """Wait for a forked process; whether it exited with code 0."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def kill_once(victim: Victim, out: Path, chance: random.Random, seconds: float, *, power: bool) -> bool:
    """Kill one run at a random time, drop what was not synced if `power` fails too, and resume it to its end."""
    victim.forget_syncs()
    child = victim.start(out, chance.uniform(0.005, 0.1))
    time.sleep(chance.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    ended(child)
    if power:
        victim.lose_power(out)
    return ended(victim.start(out, append_log.GROUP_SECONDS))


def kill_command_once(victim: Victim, out: Path, chance: random.Random, seconds: float) -> bool:
    """The same for the command, whose worker processes are not killed and have to notice by themselves."""
    command = victim.start_command(out)
    time.sleep(chance.uniform(0, seconds))
    command.kill()
    command.wait()
    return victim.start_command(out).wait() == 0


def main(
    times: Annotated[int, typer.Option(help="How many runs are killed.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the times at which they are killed.")] = 20260929,
) -> None:
    """Kill runs at random times and resume them; exit 1 unless each gives the aggregate of an undisturbed run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        victim = Victim(folder / "whole")
        start = time.monotonic()
        if not ended(victim.start(folder / "whole", append_log.GROUP_SECONDS)):
            raise typer.Exit(1)
        seconds = time.monotonic() - start
        start = time.monotonic()
        victim.start_command(folder / "command").wait()
        command_seconds = time.monotonic() - start
        whole, same = victim.result(folder / "whole"), 0
        for number in range(times):
            out = folder / str(number)
            if number % _COMMAND_EVERY == 0:
                resumed = kill_command_once(victim, out, chance, command_seconds)
            else:
                resumed = kill_once(victim, out, chance, seconds, power=number % 2 == 1)
            if resumed and victim.result(out) == whole:
                same += 1
            else:
                typer.echo(f"run {number} differs from the undisturbed run", err=True)
            if (number + 1) % 20 == 0:
                typer.echo(f"{number + 1}/{times} killed", err=True)
    typer.echo(f"{same} of {times} runs killed at a random time give the aggregate of the undisturbed run.")
    if same != times:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
