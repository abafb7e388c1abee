"""``gate``: judge a complete run."""

from __future__ import annotations

import typer

from schemarouter.cli.common import AsJson, Directory, print_json
from schemarouter.errors import EXIT_GATE_FAILED


def gate(directory: Directory, as_json: AsJson = False) -> None:
    """Judge a complete run by the six criteria. Exit code 0: pass; 1: fail; 3: incomplete, altered or otherwise invalid."""
    from schemarouter.cli.render import print_verdict
    from schemarouter.experiment import judge

    notes: list[str] = []
    verdict = judge(directory, report=notes.append)
    if as_json:
        print_json(verdict.as_json())
    else:
        print_verdict(verdict)
    for note in notes:
        typer.echo(note, err=True)
    if not verdict.passed:
        raise typer.Exit(EXIT_GATE_FAILED)
