"""``state check``: validate a state JSON by the state contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import expanded, read_input

app = typer.Typer(help="Execution states as JSON.", no_args_is_help=True)


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(parser=expanded, metavar="FILE", help="JSON file of a state; - for stdin.")],
) -> None:
    """Validate a state and print its canonical bytes, or list everything that is wrong with it."""
    from schemarouter.state import ExecutionState

    sys.stdout.buffer.write(ExecutionState.parse(read_input(file)).canonical_json())
    if sys.stdout.isatty():
        sys.stdout.write("\n")
