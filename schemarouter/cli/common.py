"""What several commands share."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson
import typer

from schemarouter.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 140
_MOST_WORKERS = 10_000


class SurfaceName(StrEnum):
    """The two surfaces."""

    development = "development"
    frozen = "frozen"


class CatalogView(StrEnum):
    """What a catalog registers: everything, or names, types and descriptions alone."""

    full = "full"
    names_only = "names-only"


def console() -> Console:
    """A console on stdout as wide as the terminal, or 140 columns where there is none."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal else Console(width=_PIPE_WIDTH)


def print_stamp(stamp: str) -> None:
    """Write the stamp of an exploratory run above what is shown of it."""
    if stamp:
        typer.echo(stamp)


def print_json(value: Any) -> None:
    """Write indented JSON to stdout."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(value, option=options).decode())


def require_workers(workers: int) -> None:
    """Raise UsageError for a number of processes that cannot be."""
    if not 1 <= workers <= _MOST_WORKERS:
        raise UsageError(f"--workers is a whole number from 1 to {_MOST_WORKERS:,}, got {workers}.")
