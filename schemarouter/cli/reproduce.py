"""``reproduce``: run a complete run again and compare."""

from __future__ import annotations

import typer

from schemarouter.cli.common import Directory, print_stamp


def reproduce(directory: Directory) -> None:
    """Run every episode of a complete run again, with its retriever and agent, and compare every record.

    No cache is used: vectors and token counts are computed again.
    """
    from schemarouter.cli.progress import progress_display
    from schemarouter.experiment import load_run
    from schemarouter.experiment import reproduce as run_again

    with progress_display(None) as progress:
        done = run_again(directory, progress)
    print_stamp(load_run(directory).header.stamp)
    typer.echo(f"{done} episodes run again; every record comes out the same.")
