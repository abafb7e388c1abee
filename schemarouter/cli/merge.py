"""``merge``: copy the shards of one run from several directories into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge(
    directories: Annotated[list[Path], typer.Argument(help="Run directories that hold the shards of one run.")],
    out: Annotated[Path, typer.Option(help="Run directory for all shards: a new one, or one that holds some already.")],
) -> None:
    """Copy the shards of one run from several directories into one; shards of different runs are refused."""
    from conditions.storage.merge import merge as merge_shards

    shards = merge_shards(directories, out)
    typer.echo(f"{len(shards)} shards in {out}. Next: schemarouter gate {out}", err=True)
