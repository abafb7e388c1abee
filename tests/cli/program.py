"""Calling the program, from outside and from inside, and the runs that the tests work on."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from conditions.running.plan import WHOLE
from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE
from conditions.storage.shards import shard_name
from schemarouter.cli import app

ROOT = Path(__file__).resolve().parents[2]
SHARD_FILE = shard_name(WHOLE)
EPISODES = 20
SMALL = ("--retriever", "bm25", "--limit", str(EPISODES), "--display", "none")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: bytes
    err: str

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def inside(*arguments: object, stdin: bytes = b"") -> Outcome:
    """Run the program in this process; whatever is no exit of its own is raised, as the bug that it is."""
    out, err = io.BytesIO(), io.BytesIO()
    texts = [io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in (out, err)]
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["schemarouter", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", given),
        redirect_stdout(texts[0]),
        redirect_stderr(texts[1]),
    ):
        try:
            app.main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue().decode("utf-8"))


def environment(**changes: str) -> dict[str, str]:
    """The environment of a child: this checkout comes first, one thread, and `changes`."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **changes}


def outside(*arguments: object, env: Mapping[str, str] | None = None, cwd: Path = ROOT, stdin: bytes = b"") -> Outcome:
    """Run ``python -m schemarouter`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "schemarouter", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=env or environment(),
        cwd=cwd,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))


def refused(outcome: Outcome, code: int, *words: object) -> str:
    """Assert that a command was refused with one plain message that holds `words`; returns the message."""
    assert outcome.code == code, (outcome.code, outcome.err)
    assert outcome.stdout == b""
    assert outcome.err.startswith("error: "), outcome.err
    assert outcome.err.count("error: ") == 1, outcome.err
    assert "Traceback" not in outcome.err
    missing = [str(word) for word in words if str(word) not in outcome.err]
    assert not missing, (missing, outcome.err)
    return outcome.err


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copied(source: Path, target: Path, *, lines: int | None = None, torn: int = 0) -> Path:
    """A copy of a run whose shard keeps its header and `lines` records; `torn` bytes more are of the next one."""
    shutil.copytree(source, target)
    if lines is not None:
        shard = target / SHARD_FILE
        data = shard.read_bytes()
        whole = data.splitlines(keepends=True)[: 1 + lines]
        shard.write_bytes(data[: sum(map(len, whole)) + torn])
    return target


def edit_run(folder: Path, **changes: Any) -> Path:
    """Put other values under keys of run.json; None takes the key away."""
    path = folder / RUN_FILE
    run = {**json.loads(path.read_bytes()), **changes}
    path.write_text(json.dumps({name: value for name, value in run.items() if value is not None}))
    return folder


def aggregated(folder: Path) -> bytes:
    """The bytes of aggregate.json, made by the program."""
    assert inside("aggregate", folder).code == 0
    return (folder / AGGREGATE_FILE).read_bytes()
