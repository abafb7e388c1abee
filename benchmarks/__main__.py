"""``python -m benchmarks``: measure, print, and write JSON where asked."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from benchmarks.gate import gate_rows
from benchmarks.lexical import lexical_rows
from benchmarks.report import as_json, tables
from benchmarks.runs import run_rows
from benchmarks.semantic import dense_rows
from benchmarks.timing import Effort, Row
from benchmarks.world import world_rows
from schemarouter.cli.common import console
from schemarouter.errors import EXIT_USAGE, SchemaRouterError


@dataclass(frozen=True)
class Scale:
    """What is measured and how long.

    `sizes` of corpora and `endpoints` of the catalog in entries; `effort` of each comparison; `queries` for each corpus;
    `tasks` of the surface. Whole runs by the command have `run_episodes` episodes a repeat, none are made where it is 0;
    the long one has `run_repeats` repeats.
    """

    sizes: tuple[int, ...]
    endpoints: int
    effort: Effort
    queries: int
    tasks: int
    run_episodes: int = 0
    run_repeats: int = 10


FULL = Scale((100, 500, 34_000, 238_000), 500, Effort(rounds=200, seconds=8.0), 256, 90, 1350)
QUICK = Scale((100, 500), 100, Effort(rounds=20, seconds=0.5), 128, 12)


def measure(scale: Scale) -> list[Row]:
    """Every comparison at every size. Raises SchemaRouterError when systems that are compared rank differently."""
    measured: list[Row] = []
    if scale.run_episodes:
        # First: a child's peak memory includes that of the process it is forked from, which is still small now.
        typer.echo("whole runs", err=True)
        measured += run_rows(scale.run_episodes, scale.run_repeats)
    for size in scale.sizes:
        typer.echo(f"BM25, {size:,} entries", err=True)
        measured += lexical_rows(size, scale.effort, scale.queries)
    for size in scale.sizes:
        typer.echo(f"dense, {size:,} entries", err=True)
        measured += dense_rows(size, scale.effort, scale.queries)
    typer.echo("gate", err=True)
    measured += gate_rows(scale.effort)
    typer.echo("default retriever and episodes", err=True)
    return measured + world_rows(scale.endpoints, scale.effort, scale.tasks)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few repeats: under half a minute.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file too.")] = None,
) -> None:
    """Measure speed and memory side by side and print ratios."""
    missing = [name for name in ("rank_bm25", "bm25s") if importlib.util.find_spec(name) is None]
    if missing:
        typer.echo(f"error: {' and '.join(missing)} not installed; run: pip install -e '.[bench]'", err=True)
        raise typer.Exit(EXIT_USAGE)
    try:
        measured = measure(QUICK if quick else FULL)
        if json is not None:
            json.write_bytes(orjson.dumps(as_json(measured), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except (SchemaRouterError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code if isinstance(error, SchemaRouterError) else EXIT_USAGE) from None
    screen = console()
    for table in tables(measured):
        screen.print(table)


if __name__ == "__main__":
    typer.run(main)
