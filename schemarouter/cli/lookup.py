"""``retrieve`` and ``state check``: the parts of the instrument that are of use by themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import print_json
from schemarouter.errors import UsageError, unknown

DEFAULT_CATALOG = 100
state_app = typer.Typer(help="Foreign state JSON.", no_args_is_help=True)


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def retrieve(
    query: Annotated[str, typer.Argument(help="What the user asks for.")],
    state: Annotated[Path | None, typer.Option(help="State JSON of the same query; - for stdin.")] = None,
    catalog: Annotated[int, typer.Option(help="Catalog size.")] = DEFAULT_CATALOG,
    retriever: Annotated[str, typer.Option(help="Retriever spec; the protocol's unless given.")] = "",
    k: Annotated[int, typer.Option("-k", help="How many candidates.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Rank the capabilities of a catalog for a query, or for what has been observed since."""
    from preregistration.protocol import load_protocol
    from schemarouter.retrieval import registry
    from schemarouter.state import ExecutionState
    from surface.loader import load_catalogs

    current = ExecutionState.start(query) if state is None else ExecutionState.parse(_read(state))
    if current.original_query != query:
        raise UsageError(
            f"the state is of the query {current.original_query!r}, not of {query!r}; give the same query."
        )
    spec = registry.resolve(retriever or load_protocol("development").retriever)
    sizes = load_protocol("development").catalogs
    if catalog not in sizes:
        raise UsageError(unknown("catalog size", str(catalog), map(str, sizes)))
    entries = load_catalogs([catalog])[catalog]
    ranking = registry.build_retriever(spec, entries).rank(query if state is None else current.retrieval_query(), k=k)
    if as_json:
        print_json(
            {
                "retriever": str(spec),
                "catalog": {"size": catalog, "fingerprint": entries.fingerprint},
                "candidates": [{"id": item, "score": score} for item, score in ranking.items],
                "stages": [{"name": s.name, "kept": s.kept, "note": s.note} for s in ranking.stages],
            }
        )
        return
    for position, (item, score) in enumerate(ranking.items, start=1):
        typer.echo(f"{position:>3}  {score:<10.6g} {item:<36} {entries[item].description}")
    for stage in ranking.stages:
        if stage.note:
            typer.echo(f"{stage.name}: {stage.note}", err=True)


@state_app.command("check")
def check(file: Annotated[Path, typer.Argument(help="State JSON; - for stdin.")]) -> None:
    """Validate a state and print its canonical bytes, or say everything that is wrong with it."""
    from schemarouter.state import ExecutionState

    sys.stdout.buffer.write(ExecutionState.parse(_read(file)).canonical_json())
    if sys.stdout.isatty():
        sys.stdout.write("\n")
