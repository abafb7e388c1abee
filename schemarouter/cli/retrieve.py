"""``retrieve``: rank the capabilities of a catalog for one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemarouter.cli.common import CatalogViewName, expanded, print_json, read_input
from schemarouter.errors import InvalidRunError, UsageError, unknown

if TYPE_CHECKING:
    from schemarouter.retrieval.base import Ranking

_MIN_PRINTED = 0.0005


def retrieve(
    query: Annotated[str, typer.Argument(help="What the user asks for.")],
    state: Annotated[
        Path | None,
        typer.Option(parser=expanded, metavar="PATH", help="JSON file of a state of the same query; - for stdin."),
    ] = None,
    catalog: Annotated[
        int | None, typer.Option(help="Size of the catalog; the protocol's smallest unless given.")
    ] = None,
    retriever: Annotated[str | None, typer.Option(help="Retriever spec; the protocol's unless given.")] = None,
    catalog_view: Annotated[
        CatalogViewName, typer.Option(help="What of the catalog is registered.")
    ] = CatalogViewName.full,
    k: Annotated[
        int | None, typer.Option("-k", help="Number of candidates; the protocol's unless given.", min=1)
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what each kind of evidence contributes to a score.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Rank the capabilities of a catalog for a query, or for a state observed after it."""
    from preregistration.lock import scoring_refusal
    from preregistration.protocol import load_protocol
    from schemarouter.catalog.views import viewed
    from schemarouter.retrieval import registry
    from schemarouter.state import ExecutionState
    from surface.loader import asks_frozen, load_catalogs

    if not query.strip():
        raise UsageError("the query is empty; give the user's request.")
    current = ExecutionState.start(query) if state is None else ExecutionState.parse(read_input(state))
    if current.original_query != query:
        raise UsageError(
            f"the state is of the query {current.original_query!r}, not of {query!r}; give the same query."
        )
    if asks_frozen(query):
        reason = scoring_refusal("frozen", ("retrieve",))
        if reason:
            raise InvalidRunError(f"the query is a frozen task's request, or contains or is part of one, and {reason}")
    protocol = load_protocol("development")
    spec = registry.resolve(protocol.retriever if retriever is None else retriever)
    size = min(protocol.catalogs) if catalog is None else catalog
    if size not in protocol.catalogs:
        raise UsageError(unknown("catalog size", str(size), map(str, protocol.catalogs)))
    entries = viewed(load_catalogs([size])[size], catalog_view.value)
    asked = query if state is None else current.retrieval_query()
    ranking = registry.build_retriever(spec, entries).rank(asked, k=k or protocol.conditions.top_k)
    if as_json:
        source = {"size": size, "view": catalog_view.value, "fingerprint": entries.fingerprint}
        print_json({"retriever": str(spec), "catalog": source, **_as_json(ranking, explain)})
        return
    for position, (item, score) in enumerate(ranking.items, start=1):
        typer.echo(f"{position:>3}  {score:<10.6g} {item:<36} {entries[item].description}")
        if explain and ranking.parts:
            typer.echo(_explained(ranking.parts.get(item, {})))
    if explain and not ranking.parts:
        typer.echo("this retriever does not explain its scores", err=True)
    if explain and ranking.usage:
        used = ranking.usage
        typer.echo(f"used {used.model_tokens} model tokens in {used.calls} calls, {used.cost:.6f} USD", err=True)
    for stage in ranking.stages:
        if stage.note:
            typer.echo(f"{stage.name}: {stage.note}", err=True)


def _as_json(ranking: Ranking, explain: bool) -> dict[str, Any]:
    return {
        "candidates": [
            {"id": item, "score": score, **({"parts": dict(ranking.parts.get(item, {}))} if explain else {})}
            for item, score in ranking.items
        ],
        "stages": [{"name": s.name, "kept": s.kept, "note": s.note} for s in ranking.stages],
        **({"usage": asdict(ranking.usage)} if ranking.usage else {}),
    }


def _explained(parts: Mapping[str, float]) -> str:
    """The parts of a score, the largest first; those that round to zero are left out."""
    ordered = sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0]))
    return " " * 16 + ", ".join(f"{name} {value:+.3f}" for name, value in ordered if abs(value) >= _MIN_PRINTED)
