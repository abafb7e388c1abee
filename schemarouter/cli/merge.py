"""``merge``: the shards of one run, made in several directories, brought together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge(
    directories: Annotated[list[Path], typer.Argument(help="Run directories that hold the shards of one run.")],
    out: Annotated[Path, typer.Option(help="Run directory for all of them: a new one, or one with some already.")],
) -> None:
    """Bring the shards of one run together, made in several directories; refuses what does not belong together."""
    from conditions.storage.merge import merge as merge_shards

    shards = merge_shards(directories, out)
    typer.echo(f"{len(shards)} shards in {out}. Next: schemarouter gate {out}", err=True)
