"""``merge``: copy the shards of one run from several directories into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import expanded, next_command


def merge(
    directories: Annotated[
        list[Path],
        typer.Argument(
            parser=expanded, metavar="DIRECTORIES...", help="Run directories that hold the shards of one run."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            parser=expanded,
            metavar="PATH",
            help="Run directory for all shards: a new one, or one that holds some already.",
        ),
    ],
) -> None:
    """Copy the shards of one run from several directories into one; shards of different runs are refused."""
    from conditions.storage.merge import merge as merge_shards

    shards = merge_shards(directories, out)
    typer.echo(f"{len(shards)} shards in {out}. Next: {next_command('gate', out)}", err=True)
