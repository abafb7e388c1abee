"""``run``: the experiment, or a part of it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import CatalogViewName, SurfaceName
from schemarouter.cli.progress import Display, progress_display


class EngineName(StrEnum):
    """Who runs the episodes: this machine's processes, or Ray's."""

    local = "local"
    ray = "ray"


def run(
    out: Annotated[Path, typer.Option(help="Run directory: a new one, or one of the same run to resume.")],
    surface: Annotated[SurfaceName, typer.Option(help="Which tasks.")] = SurfaceName.development,
    retriever: Annotated[str | None, typer.Option(help="Retriever spec; the protocol's unless given.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent spec; the protocol's unless given.")] = None,
    condition: Annotated[list[str] | None, typer.Option(help="Only these conditions.")] = None,
    catalog: Annotated[list[int] | None, typer.Option(help="Only these catalog sizes.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N episodes of the grid.")] = None,
    repeat: Annotated[
        int, typer.Option(help="How often the grid is run, each time with another seed of the agent.")
    ] = 1,
    catalog_view: Annotated[
        CatalogViewName, typer.Option(help="What of the catalogs the retriever is built over.")
    ] = CatalogViewName.full,
    shard: Annotated[
        str, typer.Option(help="K/N: every N-th episode from the K-th on, as a shard of its own.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    engine: Annotated[EngineName, typer.Option(help="Who runs the episodes.")] = EngineName.local,
    address: Annotated[str, typer.Option(help="Ray cluster to join; a local one is started unless given.")] = "",
    episode_seconds: Annotated[
        float | None, typer.Option(help="An episode that takes longer has failed; makes a run exploratory.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop before an episode once so many were used.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Stop before an episode once so much was spent.")] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="TOML: a table for each agent, \\[name], with input_per_million and output_per_million."),
    ] = None,
    exploratory: Annotated[
        bool, typer.Option("--exploratory", help="Stamp it EXPLORATORY in any case, and resume it under other code.")
    ] = False,
    display: Annotated[Display | None, typer.Option(help="Progress on stderr; rich on a terminal, else plain.")] = None,
) -> None:
    """Run the experiment, or resume it. No outcome is shown before all of it is done."""
    from conditions.running.plan import parse_shard
    from schemarouter.experiment import run_experiment

    with progress_display(display) as progress:
        made = run_experiment(
            out,
            surface=surface.value,
            retriever=retriever,
            agent=agent,
            tasks=task or (),
            catalogs=catalog or (),
            conditions=condition or (),
            limit=limit,
            repeats=repeat,
            catalog_view=catalog_view.value,
            shard=shard,
            workers=workers,
            engine=engine.value,
            address=address,
            episode_seconds=episode_seconds,
            max_tokens=max_tokens,
            max_cost=max_cost,
            prices=prices,
            exploratory=exploratory,
            progress=progress,
            argv=sys.argv[1:],
        )
    if display is Display.json:
        return
    here = parse_shard(shard)
    then = "Next" if here.count == 1 else "Next, with all shards here"
    typer.echo(f"{len(here.units(made.plan))} episodes in {out}. {then}: schemarouter gate {out}", err=True)
