"""The program: its commands, and the exit code after a user's mistake, an interruption and a bug."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any, TextIO, cast

import typer

from schemarouter.cli import list as list_commands
from schemarouter.cli import lock, state
from schemarouter.cli.aggregate import aggregate
from schemarouter.cli.gate import gate
from schemarouter.cli.merge import merge
from schemarouter.cli.reproduce import reproduce
from schemarouter.cli.retrieve import retrieve
from schemarouter.cli.run import run
from schemarouter.cli.show import show
from schemarouter.cli.status import status
from schemarouter.cli.tune import tune
from schemarouter.cli.verify import verify
from schemarouter.environ import ONE_THREAD
from schemarouter.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_PASS,
    SchemaRouterError,
    memory_failure,
)
from schemarouter.gc_tuning import skip_final_gc

app = typer.Typer(
    name="schemarouter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"schemarouter-research {version('schemarouter-research')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Does retrieval from typed, observed execution state bring back a tool that the first list missed?"""


app.command()(verify)
app.add_typer(lock.app, name="lock")
app.add_typer(list_commands.app, name="list")
for command in (run, merge, status, aggregate, gate, reproduce, show, tune, retrieve):
    app.command()(command)
app.add_typer(state.app, name="state")


def main() -> None:
    """Run the program. A user's mistake gives one message and an exit code; a bug a traceback and an exit code of its own."""
    skip_final_gc()
    _one_thread()
    _interrupt_on_sigterm()
    _prepare_streams()
    code = _run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _redirect_to_null(sys.__stdout__)
        code = code or EXIT_BROKEN_PIPE
    except (OSError, ValueError) as error:
        _redirect_to_null(sys.__stdout__)
        _print_error(f"error: the output cannot be written ({error}).")
        code = code or EXIT_INVALID
    sys.exit(code)


def _one_thread() -> None:
    """Give numeric libraries one thread unless the environment says otherwise: over small matrices more are slower."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)


def _interrupt_on_sigterm() -> None:
    """Treat SIGTERM, which batch systems send, as an interruption: files are synced and workers ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Only the main thread may set a handler, and one that is set already stays.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)


def _prepare_streams() -> None:
    """Replace closed streams by the null device, and escape characters that the locale cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stderr = cast(TextIO, _Notes(sys.stderr))


class _Notes:
    """stderr for progress and notes: one that cannot be written ends no command and changes no exit code."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            _redirect_to_null(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _redirect_to_null(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _run() -> int:
    try:
        app()
    except SchemaRouterError as error:
        _print_error(f"error: {error}")
        return error.exit_code
    except SystemExit as ended:
        # typer and rich turn both of these into exit codes that have another meaning in this program.
        if _caused_by(ended, BrokenPipeError):
            # Not 0 or 1, which would be a verdict.
            _redirect_to_null(sys.__stdout__)
            return EXIT_BROKEN_PIPE
        if _caused_by(ended, KeyboardInterrupt):
            _print_error("interrupted; finished work is kept.")
            return EXIT_INTERRUPTED
        return int(ended.code or 0)
    except Exception as error:
        return _failed(error)
    return EXIT_PASS


def _failed(error: Exception) -> int:
    """Print what is no mistake of the user's, and return its exit code."""
    if reason := memory_failure(error):
        _print_error(f"error: not enough memory ({reason}).")
        return EXIT_INVALID
    if isinstance(error, OSError):
        # A full disk or a folder that was removed is an infrastructure failure, not a bug.
        _print_error(f"error: {error.filename or 'output'}: {error.strerror or error}.")
        return EXIT_INVALID
    # Python's own exit code for a bug is 1, which means in this program that the gate failed.
    with suppress(Exception):
        traceback.print_exception(error)
    return EXIT_BUG


def _print_error(text: str) -> None:
    """Write a line to stderr, if it can be written."""
    with suppress(OSError, ValueError, AttributeError):
        typer.echo(text, err=True)


def _caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _redirect_to_null(stream: TextIO | None) -> None:
    """Redirect a stream without a reader to the null device, so that the interpreter does not fail on it again at exit."""
    with suppress(OSError, ValueError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
