"""``run`` and ``status``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from schemarouter.cli.common import CatalogView, SurfaceName, print_json
from schemarouter.errors import InvalidRunError


class Display(StrEnum):
    """How progress is shown, on stderr."""

    rich = "rich"
    plain = "plain"
    none = "none"


def run(
    out: Annotated[Path, typer.Option(help="Run directory: a new one, or one of the same run to go on with.")],
    surface: Annotated[SurfaceName, typer.Option(help="Which tasks.")] = SurfaceName.development,
    retriever: Annotated[str, typer.Option(help="Retriever spec; the protocol's unless given.")] = "",
    agent: Annotated[str, typer.Option(help="Agent spec; the protocol's unless given.")] = "",
    condition: Annotated[list[str] | None, typer.Option(help="Only these conditions.")] = None,
    catalog: Annotated[list[int] | None, typer.Option(help="Only these catalog sizes.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N episodes of the grid.")] = None,
    catalog_view: Annotated[
        CatalogView, typer.Option(help="What of the catalogs the retriever is built over.")
    ] = CatalogView.full,
    exploratory: Annotated[bool, typer.Option("--exploratory", help="Stamp it EXPLORATORY in any case.")] = False,
    display: Annotated[Display | None, typer.Option(help="Progress on stderr; rich on a terminal, else plain.")] = None,
) -> None:
    """Run the experiment, or go on with it. No outcome is shown before all of it is done."""
    from conditions.experiment import execute
    from conditions.plan import make_plan
    from conditions.runner import Runner
    from conditions.store import RUN_SCHEMA_VERSION
    from gates.stamp import stamp
    from preregistration.lock import scoring_refusal
    from preregistration.protocol import load_protocol
    from schemarouter.agents import registry as agents
    from schemarouter.catalog_views import View
    from schemarouter.cli.world import provenance, run_identities
    from schemarouter.retrieval import registry as retrievers
    from surface.loader import load_catalogs, load_surface

    protocol, tasks = load_protocol(surface), load_surface(surface)
    retriever_spec = retrievers.resolve(retriever or protocol.retriever)
    agent_spec = agents.resolve(agent or protocol.agent)
    plan = make_plan(protocol, tasks, tasks=task or (), catalogs=catalog or (), conditions=condition or (), limit=limit)
    if not plan.units:
        raise InvalidRunError(f"the {surface} surface holds no tasks.")
    reason = scoring_refusal(surface, plan.conditions)
    if reason:
        raise InvalidRunError(reason)
    require_lock(surface, exploratory=exploratory)
    catalogs = load_catalogs(protocol.catalogs)
    view: View = catalog_view.value
    named = run_identities(protocol, tasks, catalogs, plan.tasks, str(retriever_spec), str(agent_spec), view)
    origin = provenance(out)
    header: dict[str, Any] = {
        "schema_version": RUN_SCHEMA_VERSION,
        "surface": str(surface),
        "stamp": stamp(protocol, tasks, plan, named, origin, asked=exploratory),
        "identities": named,
        "plan": plan.as_json(),
        "provenance": origin,
    }
    runner = Runner(protocol, tasks, catalogs, retriever=retriever_spec, agent=agent_spec, view=view)
    with progress_display(display, len(plan.units)) as progress:
        execute(out, header, plan, runner, progress)
    typer.echo(f"{len(plan.units)} episodes in {out}. Next: schemarouter gate {out}", err=True)


def require_lock(surface: SurfaceName, *, exploratory: bool) -> None:
    """Raise InvalidRunError where anything is not as it was locked; development may go on, exploratory."""
    from preregistration.lock import read_lock, require_as_locked
    from schemarouter.cli.locking import clean_commit, fingerprints_here

    lock = read_lock(surface)
    # Asked of the surface, since a lock could say anything of itself.
    frozen = surface is SurfaceName.frozen
    if lock is None or (exploratory and not frozen):
        return
    if frozen and lock.released:
        # A release that nobody has committed is none.
        clean_commit()
    try:
        require_as_locked(lock, fingerprints_here(str(surface), behaviour=frozen))
    except InvalidRunError as error:
        if frozen:
            raise
        raise InvalidRunError(
            f"{error}\nIf that was meant: schemarouter lock write, or --exploratory for this run."
        ) from None


@contextmanager
def progress_display(display: Display | None, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many episodes are finished: counts only, on stderr."""
    chosen = display or (Display.rich if sys.stderr.isatty() else Display.plain)
    if chosen is Display.none:
        yield lambda done: None
    elif chosen is Display.plain:
        step = max(1, total // 10)

        def say(done: int) -> None:
            if done and (done % step == 0 or done == total):
                typer.echo(f"{done}/{total} episodes", err=True)

        yield say
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("episodes", total=total)
            yield lambda done: bar.update(task, completed=done)


def status(
    directory: Annotated[Path, typer.Argument(help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """How far a run is: counts only, never an outcome. Works on a live run."""
    from conditions.plan import plan_from_json
    from conditions.store import count_episodes, read_run

    header = read_run(directory)
    plan = plan_from_json(header["plan"], "run.json")
    finished, failed_attempts = count_episodes(directory)
    counts = {
        "finished": finished,
        "expected": len(plan.units),
        "infrastructure_attempts": failed_attempts,
        "terminal": finished == len(plan.units),
    }
    if as_json:
        print_json({"stamp": header["stamp"], **counts})
        return
    typer.echo(f"{finished}/{len(plan.units)} episodes" + (", terminal" if counts["terminal"] else ""))
    if failed_attempts:
        typer.echo(f"{failed_attempts} attempts ended for reasons of the machine and count as not run")
