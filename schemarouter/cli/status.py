"""``status``: show how far a run is."""

from __future__ import annotations

import typer

from schemarouter.cli.common import AsJson, Directory, console, print_json


def status(directory: Directory, as_json: AsJson = False) -> None:
    """Show how far a run is, and after its end how episodes ended; never an outcome before. Works on a live run too."""
    from schemarouter.experiment import load_run

    run = load_run(directory)
    progress, expected = run.progress(), len(run.plan.units)
    complete = progress.finished == expected
    if as_json:
        print_json(
            {
                "stamp": run.header.stamp,
                "finished": progress.finished,
                "expected": expected,
                "infrastructure_attempts": progress.failed_attempts,
                "complete": complete,
                "endings": run.endings() if complete else None,
            }
        )
        return
    typer.echo(f"{progress.finished}/{expected} episodes" + (", complete" if complete else ""))
    if progress.failed_attempts:
        typer.echo(f"{progress.failed_attempts} attempts ended by infrastructure failures and count as not run")
    if complete:
        from schemarouter.cli.render import endings_table

        console().print(endings_table(run.endings()))
