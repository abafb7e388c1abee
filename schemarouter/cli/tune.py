"""``tune``: fit the weights of the typed retriever to the development tasks, and show their results out of fold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemarouter.cli.common import SurfaceName, expanded
from schemarouter.errors import UsageError

if TYPE_CHECKING:
    from preregistration.protocol import Protocol

RECORD_FILE = "tuning.json"


def tune(
    out: Annotated[
        Path,
        typer.Option(parser=expanded, metavar="PATH", help="Folder for the weights and for the record of the search."),
    ],
    surface: Annotated[
        list[SurfaceName] | None, typer.Option(help="Surface of the tasks; development and training unless given.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes; at most one for each catalog view.", min=1)] = 2,
    ablation: Annotated[bool, typer.Option(help="Also evaluate without each kind of evidence in turn.")] = True,
) -> None:
    """Fit the typed retriever by nested cross-validation over tasks. Takes minutes; reproduces to the byte."""
    from gates.tuning.report import Extent
    from gates.tuning.report import tune as run
    from preregistration.protocol import load_protocol
    from schemarouter.files import pretty_json, write_whole
    from schemarouter.retrieval.typed import WEIGHTS_FILE, WeightsFile
    from surface.loader import TUNING, load_catalogs, load_surface

    names = [*dict.fromkeys(surface or TUNING)]
    if SurfaceName.frozen in names:
        raise UsageError("nothing is tuned on the frozen surface; use --surface development or --surface training.")
    _require_writable(out)
    protocol = load_protocol(names[0])
    surfaces, catalogs = [load_surface(name) for name in names], load_catalogs(protocol.catalogs)
    found = run(protocol, surfaces, catalogs, Extent(ablation=ablation), workers=workers)
    weights = pretty_json(WeightsFile(views=dict(found.weights)).model_dump(mode="json"))
    write_whole(out / WEIGHTS_FILE.name, weights)
    write_whole(out / RECORD_FILE, pretty_json(found.record))
    _print(found.record, protocol)
    same = WEIGHTS_FILE.exists() and WEIGHTS_FILE.read_bytes() == weights
    typer.echo(f"{out / WEIGHTS_FILE.name}: {'the weights of this package' if same else 'differs from this package'}.")


def _require_writable(folder: Path) -> None:
    """Raise InvalidRunError where the results could not be written: told before minutes of work, not after."""
    from schemarouter.files import write_whole

    probe = folder / f"{RECORD_FILE}.probe"
    write_whole(probe, b"")
    probe.unlink()


def _print(record: Any, protocol: Protocol) -> None:
    from rich.table import Table

    from schemarouter.cli.common import console as make_console

    console = make_console()
    top_k, level = protocol.conditions.top_k, f"{100 * protocol.statistics.level:g}"
    for view, results in record["views"].items():
        table = Table(
            title=f"{view}: next required route in the Top-{top_k}, out of fold (logit-t {level} %)",
            title_justify="left",
        )
        for title in ("evidence", "catalog", "opening", "later"):
            table.add_column(title, overflow="fold")
        rows = {"all": results["out_of_fold"], **{f"without {k}": v for k, v in results.get("without", {}).items()}}
        for name, by_size in rows.items():
            for size, phases in by_size.items():
                table.add_row(name, size, *(_cell(phases[phase]["all"]) for phase in ("opening", "later")))
        console.print(table)
        console.print(_languages(view, results["out_of_fold"]))
        console.print(_conditions(view, top_k, results["conditions_out_of_fold"]))


def _languages(view: str, by_size: Any) -> Any:
    from rich.table import Table

    table = Table(title=f"{view}: by surface and language", title_justify="left")
    for title in ("tasks", "catalog", "opening", "later"):
        table.add_column(title, overflow="fold")
    largest = max(by_size, key=int)
    for language in by_size[largest]["opening"]:
        if language != "all":
            cells = (_cell(by_size[largest][phase][language]) for phase in ("opening", "later"))
            table.add_row(language, largest, *cells)
    return table


def _conditions(view: str, top_k: int, groups: Any) -> Any:
    from rich.table import Table

    table = Table(title=f"{view}: conditions of the experiment, out of fold", title_justify="left")
    for title in ("", f"Recall@{top_k}", "pass", "pass progr.", "recovery", "recovery progr.", "difference (Rao-Wu)"):
        table.add_column(title, overflow="fold")
    for name, group in groups.items():
        low, high = group["recovery_difference"]["interval"]
        table.add_row(
            name,
            _cell(group["next_required_recall"]["state_aware"]),
            *(_cell(group["task_pass"][name]) for name in ("state_aware", "progressive")),
            *(_cell(group["initial_miss_recovery"][name]) for name in ("state_aware", "progressive")),
            "undefined" if low is None else f"[{100 * low:.1f}, {100 * high:.1f}]",
        )
    return table


def _cell(rate: Any) -> str:
    names = ("hits", "decision_points") if "hits" in rate else ("numerator", "denominator")
    numerator, denominator = (rate[name] for name in names)
    low, high = rate["interval"]
    if not denominator or low is None:
        return "undefined"
    share = f"{100 * numerator / denominator:.1f} % ({numerator}/{denominator})"
    return f"{share} [{100 * low:.1f}, {100 * high:.1f}]"
