"""Options and helpers that several commands share."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from schemarouter.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 140
Directory = Annotated[Path, typer.Argument(help="Run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


class SurfaceName(StrEnum):
    """The two surfaces."""

    development = "development"
    frozen = "frozen"


class CatalogViewName(StrEnum):
    """What is registered of a catalog: everything, or names, types and descriptions alone."""

    full = "full"
    names_only = "names-only"


def console() -> Console:
    """A console on stdout as wide as the terminal, or of 140 columns where stdout is none."""
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PIPE_WIDTH)


def print_stamp(stamp: str) -> None:
    """Print the stamp of an exploratory run, if it has one."""
    if stamp:
        typer.echo(stamp)


def print_json(value: Any) -> None:
    """Write indented JSON to stdout."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(value, option=options).decode())


def read_input(path: Path) -> bytes:
    """The bytes of a file, or of stdin for ``-``. Raises UsageError when it cannot be read."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
