"""``gate``: judge a complete run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import AsJson, Directory, expanded, print_json
from schemarouter.errors import EXIT_GATE_FAILED


def gate(
    directory: Directory,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(parser=expanded, metavar="PATH", help="Folder for the verdict, instead of the run directory."),
    ] = None,
) -> None:
    """Judge a complete run by the six criteria. Exit code 0: pass; 1: fail; 3: incomplete, altered or otherwise invalid."""
    from schemarouter.cli.render import print_verdict
    from schemarouter.experiment import judge

    notes: list[str] = []
    verdict = judge(directory, out=out, report=notes.append)
    if as_json:
        print_json(verdict.as_json())
    else:
        print_verdict(verdict)
    for note in notes:
        typer.echo(note, err=True)
    if not verdict.passed:
        raise typer.Exit(EXIT_GATE_FAILED)
