"""``status``: how far a run is."""

from __future__ import annotations

import typer

from schemarouter.cli.common import AsJson, Directory, print_json


def status(directory: Directory, as_json: AsJson = False) -> None:
    """How far a run is: counts only, never an outcome. Works on a live run."""
    from schemarouter.experiment import load_run

    run = load_run(directory)
    counted, expected = run.progress(), len(run.plan.units)
    complete = counted.finished == expected
    if as_json:
        print_json(
            {
                "stamp": run.header.stamp,
                "finished": counted.finished,
                "expected": expected,
                "infrastructure_attempts": counted.failed_attempts,
                "complete": complete,
            }
        )
        return
    typer.echo(f"{counted.finished}/{expected} episodes" + (", complete" if complete else ""))
    if counted.failed_attempts:
        typer.echo(f"{counted.failed_attempts} attempts ended by infrastructure failures and count as not run")
