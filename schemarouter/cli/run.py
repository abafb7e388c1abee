"""``run``: run the experiment, or a part of it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import CatalogViewName, SurfaceName, expanded, next_command
from schemarouter.cli.progress import Display, progress_display


class EngineName(StrEnum):
    """Engines: processes on this machine, or actors of a Ray cluster."""

    local = "local"
    ray = "ray"


def run(
    out: Annotated[
        Path,
        typer.Option(
            parser=expanded, metavar="PATH", help="Run directory: a new one, or one of the same run to resume."
        ),
    ],
    surface: Annotated[SurfaceName, typer.Option(help="Surface of the tasks.")] = SurfaceName.development,
    retriever: Annotated[str | None, typer.Option(help="Retriever spec; the protocol's unless given.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent spec; the protocol's unless given.")] = None,
    condition: Annotated[list[str] | None, typer.Option(help="Run only this condition; may be repeated.")] = None,
    catalog: Annotated[
        list[int] | None, typer.Option(help="Run only over the catalog of this size; may be repeated.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Run only this task; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(help="Run only the first N episodes of the grid.")] = None,
    repeat: Annotated[int, typer.Option(help="Run the grid N times, each with another seed of the agent.")] = 1,
    catalog_view: Annotated[
        CatalogViewName, typer.Option(help="Part of the catalogs that the retriever is built over.")
    ] = CatalogViewName.full,
    shard: Annotated[
        str, typer.Option(help="K/N: run every N-th episode from the K-th on, as one of N shards.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(help="Number of processes on this machine, or of Ray actors.")] = 1,
    engine: Annotated[EngineName, typer.Option(help="Engine that runs the episodes.")] = EngineName.local,
    address: Annotated[str, typer.Option(help="Ray cluster to join; a local one is started unless given.")] = "",
    episode_seconds: Annotated[
        float | None, typer.Option(help="Fail an episode after this many seconds; makes the run exploratory.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Begin no further episode once this many tokens were used.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Begin no further episode once this much money was spent; needs --prices.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            parser=expanded,
            metavar="PATH",
            help="TOML file with a table \\[name] for each agent: input_per_million and output_per_million.",
        ),
    ] = None,
    exploratory: Annotated[
        bool,
        typer.Option(
            "--exploratory", help="Stamp the run EXPLORATORY in any case, and resume it even under other code."
        ),
    ] = False,
    display: Annotated[
        Display | None, typer.Option(help="Display of progress on stderr; rich on a terminal, else plain.")
    ] = None,
) -> None:
    """Run the experiment, or resume it. No outcome is shown before the run is complete."""
    from conditions.running.plan import parse_shard
    from schemarouter.experiment import run_experiment

    with progress_display(display) as progress:
        result = run_experiment(
            out,
            surface=surface.value,
            retriever=retriever,
            agent=agent,
            tasks=task or None,
            catalogs=catalog or None,
            conditions=condition or None,
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
    part = parse_shard(shard)
    then = "Next" if part.count == 1 else "Next, with all shards in it"
    typer.echo(f"{len(part.units(result.plan))} episodes in {out}. {then}: {next_command('gate', out)}", err=True)
