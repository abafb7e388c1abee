"""``verify``: check every fingerprint against the locks, and every task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemarouter.cli.common import SurfaceName, console, print_json
from schemarouter.errors import EXIT_INVALID

if TYPE_CHECKING:
    from surface.audit.figure import Figure


def _report(name: str) -> dict[str, Any]:
    """The findings on one surface: comparisons with its lock, and problems of its tasks."""
    from gates.identities import locked_fingerprints
    from preregistration.lock import compare, read_lock
    from preregistration.protocol import load_protocol
    from surface.audit.validate import check_surface
    from surface.loader import load_catalogs, load_surface

    protocol, surface = load_protocol(name), load_surface(name)
    if not surface.tasks and protocol.confirmatory:
        return {"surface": name, "written": False, "tasks": 0, "comparisons": [], "problems": {}, "locked": False}
    smallest = load_catalogs([min(protocol.catalogs)])[min(protocol.catalogs)]
    held = read_lock(name)
    rows = compare(held, locked_fingerprints(str(name))) if held is not None else []
    return {
        "surface": name,
        "written": True,
        "tasks": len(surface.tasks),
        "locked": held is not None,
        "comparisons": [{"name": r.name, "promised": r.promised, "actual": r.actual, "holds": r.holds} for r in rows],
        "problems": check_surface(surface, smallest, protocol),
    }


def _sound(report: dict[str, Any]) -> bool:
    if not report["written"]:
        return True
    return report["locked"] and not report["problems"] and all(row["holds"] for row in report["comparisons"])


def verify(
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
    quality: Annotated[
        bool, typer.Option("--quality", help="Check the quality of surfaces and catalog instead; takes minutes.")
    ] = False,
) -> None:
    """Recompute every fingerprint, compare it with the locks, and prove every task solvable from observable values."""
    if quality:
        _verify_quality(as_json)
        return
    reports = [_report(name) for name in SurfaceName]
    sound = all(_sound(report) for report in reports)
    if as_json:
        print_json({"sound": sound, "surfaces": reports})
    else:
        for report in reports:
            _print_report(report)
    if not sound:
        raise typer.Exit(EXIT_INVALID)


def _print_report(report: dict[str, Any]) -> None:
    name = report["surface"]
    if not report["written"]:
        typer.echo(f"{name}: no tasks written yet, not locked; nothing on it can run.")
        return
    broken = [row for row in report["comparisons"] if not row["holds"]]
    typer.echo(f"{name}: {report['tasks']} tasks, {len(report['comparisons']) - len(broken)} fingerprints as locked")
    if not report["locked"]:
        typer.echo("  not locked: no lock file")
    for row in broken:
        typer.echo(f"  {row['name']}: locked {row['promised']}, here {row['actual']}")
    for task, problems in report["problems"].items():
        for problem in problems:
            typer.echo(f"  {task}: {problem}")


def _figures() -> Iterator[tuple[str, list[Figure]]]:
    """The quality figures of each surface by its name, of the tasks for tuning together, and of the catalog's tiers."""
    from preregistration.protocol import load_protocol
    from surface.audit import tiers
    from surface.audit.quality import BOUNDS, figures, proofs
    from surface.loader import TOGETHER, TUNING, load_catalogs, load_full_catalog, load_surface, together

    surfaces = {str(name): load_surface(name) for name in SurfaceName}
    for name, surface in surfaces.items():
        if surface.tasks:
            protocol = load_protocol(name)
            catalogs = load_catalogs(protocol.catalogs)
            found = figures(surface, protocol, catalogs, BOUNDS[name])
            yield name, [*found, *proofs(surface, protocol, catalogs)]
    tuning = [surfaces[name] for name in TUNING]
    if all(surface.tasks for surface in tuning):
        protocol = load_protocol(SurfaceName.training)
        everything, catalogs = together(*tuning), load_catalogs(protocol.catalogs)
        yield TOGETHER, figures(everything, protocol, catalogs, BOUNDS[TOGETHER])
        gold = tiers.gold_frequency(surfaces["training"], surfaces["development"], protocol.conditions.top_k)
        yield "tiers", [*tiers.figures(load_full_catalog(), tiers.load_requests()), gold]


def _verify_quality(as_json: bool) -> None:
    found = dict(_figures())
    sound = all(figure.holds for rows in found.values() for figure in rows)
    if as_json:
        rows = {name: [vars(figure) for figure in figures] for name, figures in found.items()}
        print_json({"sound": sound, "surfaces": rows})
    else:
        for name, figures in found.items():
            _print_figures(name, figures)
    if not sound:
        raise typer.Exit(EXIT_INVALID)


def _print_figures(name: str, figures: list[Figure]) -> None:
    from rich.table import Table

    table = Table(title=name, title_justify="left", box=None, pad_edge=False)
    for heading in ("figure", "value", "bound", "holds"):
        table.add_column(heading, overflow="fold")
    for figure in figures:
        holds = ("yes" if figure.holds else "no") if figure.bound else ""
        table.add_row(figure.name, figure.value, figure.bound, holds)
    console().print(table)
