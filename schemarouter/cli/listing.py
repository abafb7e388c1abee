"""``list``: conditions, retrievers, agents, tasks, catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from schemarouter.cli.common import SurfaceName, print_json
from schemarouter.errors import UsageError, unknown

app = typer.Typer(help="What there is.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
OfSurface = Annotated[SurfaceName, typer.Option(help="Which tasks.")]


def _table(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table if rows else "none")


@app.command()
def conditions(as_json: AsJson = False) -> None:
    """The arms of the experiment."""
    from conditions.registry import CONDITIONS

    _table([{"name": name, "shows": (kind.__doc__ or "").strip()} for name, kind in CONDITIONS.items()], as_json)


def _declarations(modules: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "what": item.summary,
            "arguments": ", ".join(f"{key}={option.default}" for key, option in item.options.items()),
            "nested": f"{item.nested_min} to {item.nested_max}" if item.nested_max else "",
        }
        for name, item in modules.items()
    ]


@app.command()
def retrievers(as_json: AsJson = False) -> None:
    """Retrievers and the arguments of their specs."""
    from schemarouter.retrieval.registry import RETRIEVERS, declaration

    _table(_declarations({name: declaration(name) for name in sorted(RETRIEVERS)}), as_json)


@app.command()
def agents(as_json: AsJson = False) -> None:
    """Agents and the arguments of their specs."""
    from schemarouter.agents.registry import AGENTS, declaration

    _table(_declarations({name: declaration(name) for name in sorted(AGENTS)}), as_json)


@app.command()
def catalogs(as_json: AsJson = False) -> None:
    """The nested catalogs with their fingerprints."""
    from preregistration.protocol import load_protocol
    from surface.loader import load_catalogs

    rows = []
    for size, catalog in load_catalogs(load_protocol("development").catalogs).items():
        effects = [item.effect for item in catalog.capabilities]
        counts = {effect: effects.count(effect) for effect in ("read", "write", "destructive")}
        providers = len({item.provider for item in catalog.capabilities})
        rows.append({"size": size, "providers": providers, **counts, "fingerprint": catalog.fingerprint})
    _table(rows, as_json)


@app.command()
def tasks(
    surface: OfSurface = SurfaceName.development,
    cell: Annotated[str, typer.Option(help="stratum/language: every task of it in full, as a reviewer reads it.")] = "",
    as_json: AsJson = False,
) -> None:
    """The tasks of a surface: prompts, or with --cell plans, faults and authorisations too."""
    from surface.loader import LANGUAGES, STRATA, load_surface

    found = load_surface(surface)
    if not cell:
        rows = [{"id": t.prompt.id, "cell": found.cell(t.prompt.id), "query": t.prompt.query} for t in found.tasks]
        _table(rows, as_json)
        return
    cells = [f"{stratum}/{language}" for stratum in STRATA for language in LANGUAGES]
    if cell not in cells:
        raise UsageError(unknown("cell", cell, cells))
    chosen = [task for task in found.tasks if found.cell(task.prompt.id) == cell]
    if as_json:
        print_json([task.model_dump(mode="json") for task in chosen])
        return
    for task in chosen:
        _print_task(task)


def _print_task(task: Any) -> None:
    from surface.describe import describe_task

    for line in describe_task(task):
        typer.echo(line)
    typer.echo("")
