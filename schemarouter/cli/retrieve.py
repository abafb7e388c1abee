"""``retrieve`` and ``state check``: the parts of the instrument that are of use by themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import CatalogView, print_json
from schemarouter.errors import InvalidRunError, UsageError, unknown

DEFAULT_CATALOG = 100
_SHOWN = 0.0005
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
    catalog_view: Annotated[CatalogView, typer.Option(help="What of the catalog is registered.")] = CatalogView.full,
    k: Annotated[int, typer.Option("-k", help="How many candidates.", min=1)] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="What each kind of evidence gave to a score.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Rank the capabilities of a catalog for a query, or for what has been observed since."""
    from preregistration.lock import scoring_refusal
    from preregistration.protocol import load_protocol
    from schemarouter.catalog.views import viewed
    from schemarouter.retrieval import registry
    from schemarouter.retrieval.base import Usage
    from schemarouter.state import ExecutionState
    from surface.loader import asks_frozen, load_catalogs

    current = ExecutionState.start(query) if state is None else ExecutionState.parse(_read(state))
    if current.original_query != query:
        raise UsageError(
            f"the state is of the query {current.original_query!r}, not of {query!r}; give the same query."
        )
    if asks_frozen(query):
        reason = scoring_refusal("frozen", ("retrieve",))
        if reason:
            raise InvalidRunError(f"this is a frozen task's request, or holds or is a part of one, and {reason}")
    spec = registry.resolve(retriever or load_protocol("development").retriever)
    sizes = load_protocol("development").catalogs
    if catalog not in sizes:
        raise UsageError(unknown("catalog size", str(catalog), map(str, sizes)))
    entries = viewed(load_catalogs([catalog])[catalog], catalog_view.value)
    ranking = registry.build_retriever(spec, entries).rank(query if state is None else current.retrieval_query(), k=k)
    if as_json:
        print_json(
            {
                "retriever": str(spec),
                "catalog": {"size": catalog, "view": catalog_view.value, "fingerprint": entries.fingerprint},
                "candidates": [
                    {"id": item, "score": score, **({"parts": dict(ranking.parts.get(item, {}))} if explain else {})}
                    for item, score in ranking.items
                ],
                "stages": [{"name": s.name, "kept": s.kept, "note": s.note} for s in ranking.stages],
                **({"usage": asdict(ranking.usage)} if ranking.usage != Usage() else {}),
            }
        )
        return
    for position, (item, score) in enumerate(ranking.items, start=1):
        typer.echo(f"{position:>3}  {score:<10.6g} {item:<36} {entries[item].description}")
        if explain and ranking.parts:
            typer.echo(_explained(ranking.parts.get(item, {})))
    if explain and not ranking.parts:
        typer.echo("this retriever does not explain its scores", err=True)
    if explain and ranking.usage != Usage():
        used = ranking.usage
        typer.echo(f"used {used.model_tokens} model tokens in {used.calls} calls, {used.cost:.6f} USD", err=True)
    for stage in ranking.stages:
        if stage.note:
            typer.echo(f"{stage.name}: {stage.note}", err=True)


def _explained(parts: Mapping[str, float]) -> str:
    """The parts of a score, the largest first; those that round to nothing are left out."""
    told = sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0]))
    shown = [f"{name} {value:+.3f}" for name, value in told if abs(value) >= _SHOWN]
    return "                " + ", ".join(shown)


@state_app.command("check")
def check(file: Annotated[Path, typer.Argument(help="State JSON; - for stdin.")]) -> None:
    """Validate a state and print its canonical bytes, or say everything that is wrong with it."""
    from schemarouter.state import ExecutionState

    sys.stdout.buffer.write(ExecutionState.parse(_read(file)).canonical_json())
    if sys.stdout.isatty():
        sys.stdout.write("\n")
