"""What several commands share."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any

import orjson
import typer


class SurfaceName(StrEnum):
    """The two surfaces."""

    development = "development"
    frozen = "frozen"


def print_stamp(stamp: str) -> None:
    """Write the stamp of an exploratory run above what is shown of it."""
    if stamp:
        typer.echo(stamp)


def print_json(value: Any) -> None:
    """Write indented JSON to stdout."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(value, option=options).decode())
