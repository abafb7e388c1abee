"""Options and helpers that several commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemarouter.errors import UsageError
from schemarouter.files import pretty_json

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 140


def expanded(given: str) -> Path:
    """A path whose ``~`` is the home folder. Raises UsageError for one of an unknown user."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{given}: {error}") from None


Directory = Annotated[Path, typer.Argument(parser=expanded, metavar="DIRECTORY", help="Run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


class SurfaceName(StrEnum):
    """The surfaces."""

    development = "development"
    training = "training"
    frozen = "frozen"


class CatalogViewName(StrEnum):
    """What is registered of a catalog: everything, or names, types and descriptions alone."""

    full = "full"
    names_only = "names-only"


def console() -> Console:
    """A console on stdout as wide as the terminal, or of 140 columns where stdout is none."""
    from rich.console import Console

    terminal = Console()
    if terminal.is_terminal and terminal.width > 0:
        return terminal
    return Console(width=_PIPE_WIDTH)


def print_stamp(stamp: str) -> None:
    """Print the stamp of an exploratory run, if it has one."""
    if stamp:
        typer.echo(stamp)


def print_json(value: Any) -> None:
    """Write indented JSON to stdout, in UTF-8 whatever the locale says."""
    print_bytes((pretty_json(value),))


def print_bytes(pieces: Iterable[bytes]) -> None:
    """Write UTF-8 to stdout past the encoding of the locale, where stdout takes bytes."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    for piece in pieces:
        if binary is None:
            sys.stdout.write(piece.decode())
        else:
            binary.write(piece)


def next_command(*words: object) -> str:
    """A command of this program that a shell reads as it is printed."""
    return shlex.join(["schemarouter", *map(str, words)])


def read_input(path: Path) -> bytes:
    """The bytes of a file, or of stdin for ``-``. Raises UsageError when it cannot be read."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
