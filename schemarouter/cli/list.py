"""``list``: conditions, retrievers, agents, catalogs, tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from schemarouter.cli.common import SurfaceName, console, print_json
from schemarouter.errors import UsageError, closest

app = typer.Typer(help="List conditions, retrievers, agents, catalogs or tasks.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
# On a console narrower than this (columns) a query stands below its cell, not beside it.
_WIDE = 120
OfSurface = Annotated[SurfaceName, typer.Option(help="Which tasks.")]


def _table(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console().print(table if rows else "none")


@app.command()
def conditions(as_json: AsJson = False) -> None:
    """List the conditions of the experiment."""
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
    """List the retrievers and the arguments of their specs."""
    from schemarouter.retrieval.registry import RETRIEVERS, declaration

    _table(_declarations({name: declaration(name) for name in sorted(RETRIEVERS)}), as_json)


@app.command()
def agents(as_json: AsJson = False) -> None:
    """List the agents, the arguments of their specs, and what they declare of themselves."""
    from schemarouter.agents.registry import AGENTS, declaration

    declared = {name: declaration(name) for name in sorted(AGENTS)}
    flags = ("knows_plan", "deterministic", "simulated")
    rows = [
        {**row, **{flag: getattr(declared[row["name"]], flag) for flag in flags}} for row in _declarations(declared)
    ]
    if not as_json:
        rows = [{name: {True: "yes", False: "no"}.get(value, value) for name, value in row.items()} for row in rows]
    _table(rows, as_json)


@app.command()
def catalogs(as_json: AsJson = False) -> None:
    """List the nested catalogs with their fingerprints."""
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
    cell: Annotated[str, typer.Option(help="stratum/language: show every task of this cell in full.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the tasks of a surface: their prompts; with --cell also plans, faults and authorisations."""
    from preregistration.protocol import load_protocol
    from surface.loader import load_surface

    found = load_surface(surface)
    if not cell:
        rows = [{"id": t.prompt.id, "cell": found.cell(t.prompt.id), "query": t.prompt.query} for t in found.tasks]
        _table(rows if as_json or console().width >= _WIDE else stacked(rows), as_json)
        return
    protocol = load_protocol(surface)
    named = find_cell(cell, protocol.strata, protocol.languages)
    chosen = [task for task in found.tasks if found.cell(task.prompt.id) == named]
    if as_json:
        print_json([task.model_dump(mode="json") for task in chosen])
        return
    for task in chosen:
        _print_task(task)


def stacked(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of a table of tasks for a narrow console: the query stands below its cell and has the whole width."""
    return [{"id": row["id"], "cell, query": f"{row['cell']}\n{row['query']}"} for row in rows]


def find_cell(given: str, strata: Sequence[str], languages: Sequence[str]) -> str:
    """The cell with this name, its two parts in either order. Raises UsageError for an unknown one."""
    first, _, rest = given.partition("/")
    meant = f"{rest}/{first}" if first in languages else given
    cells = [f"{stratum}/{language}" for stratum in strata for language in languages]
    if meant in cells:
        return meant
    likely = [cell for cell in cells if cell.rpartition("/")[2] == meant.rpartition("/")[2]] or cells
    raise UsageError(
        f"unknown cell {given!r}.{closest(meant, likely)} A cell is stratum/language. "
        f"Strata: {', '.join(strata)}. Languages: {', '.join(languages)}."
    )


def _print_task(task: Any) -> None:
    from surface.audit.describe import describe_task

    for line in describe_task(task):
        typer.echo(line)
    typer.echo("")
