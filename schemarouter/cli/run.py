"""``run``, ``merge`` and ``status``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemarouter.cli.common import CatalogView, SurfaceName, print_json
from schemarouter.cli.progress import Display, progress_display
from schemarouter.cli.starting import EngineName, Part, begin, make_engine, output_tokens
from schemarouter.errors import UsageError

# Days enough; timers take no more than some years.
_MOST_SECONDS = 1_000_000


def run(
    out: Annotated[Path, typer.Option(help="Run directory: a new one, or one of the same run to go on with.")],
    surface: Annotated[SurfaceName, typer.Option(help="Which tasks.")] = SurfaceName.development,
    retriever: Annotated[str, typer.Option(help="Retriever spec; the protocol's unless given.")] = "",
    agent: Annotated[str, typer.Option(help="Agent spec; the protocol's unless given.")] = "",
    condition: Annotated[list[str] | None, typer.Option(help="Only these conditions.")] = None,
    catalog: Annotated[list[int] | None, typer.Option(help="Only these catalog sizes.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N episodes of the grid.")] = None,
    repeat: Annotated[int, typer.Option(help="Seeds of an agent that takes a seed: the grid so many times.")] = 1,
    catalog_view: Annotated[
        CatalogView, typer.Option(help="What of the catalogs the retriever is built over.")
    ] = CatalogView.full,
    shard: Annotated[
        str, typer.Option(help="K/N: every N-th episode from the K-th on, as a shard of its own.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    engine: Annotated[EngineName, typer.Option(help="Who runs the episodes.")] = EngineName.local,
    address: Annotated[str, typer.Option(help="Ray cluster to join; a local one is started unless given.")] = "",
    episode_seconds: Annotated[
        float | None, typer.Option(help="An episode that takes longer has failed; makes a run exploratory.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Stop before an episode once so many were used.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Stop before an episode once so much was spent.")] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="TOML: a table for each agent, \\[name], with input_per_million and output_per_million."),
    ] = None,
    exploratory: Annotated[
        bool, typer.Option("--exploratory", help="Stamp it EXPLORATORY in any case, and go on under other code.")
    ] = False,
    display: Annotated[Display | None, typer.Option(help="Progress on stderr; rich on a terminal, else plain.")] = None,
) -> None:
    """Run the experiment, or go on with it. No outcome is shown before all of it is done."""
    from conditions.running.engines.jobs import Limits
    from conditions.running.execute import execute
    from conditions.running.plan import parse_shard
    from conditions.running.provenance import whole_fingerprint
    from conditions.running.runner import Setup
    from conditions.running.spending import Spending, load_price
    from preregistration.protocol import load_protocol
    from schemarouter.agents import registry as agents
    from schemarouter.retrieval import registry as retrievers

    protocol = load_protocol(surface)
    setup = Setup(
        str(surface),
        str(retrievers.resolve(retriever or protocol.retriever)),
        str(agents.resolve(agent or protocol.agent)),
        catalog_view.value,
        whole_fingerprint(),
    )
    part = Part(tuple(task or ()), tuple(catalog or ()), tuple(condition or ()), limit, repeat)
    here = parse_shard(shard)
    price = load_price(prices, agents.resolve(setup.agent).name) if prices is not None else None
    spending = Spending(max_tokens=max_tokens, max_cost=max_cost, price=price, output_tokens=output_tokens)
    limits = Limits(_seconds(episode_seconds), count_output=spending.counts_output, watched=spending.limited)
    started = begin(setup, part, limits, out, exploratory=exploratory)
    works = make_engine(engine, setup, workers, limits, address)
    expected = len(here.units(started.plan))
    with progress_display(display, expected) as progress:
        execute(
            out,
            started.header,
            started.plan,
            works,
            progress,
            shard=here,
            spending=spending,
            go_on=started.gone_on if exploratory else None,
        )
    if display is Display.json:
        return
    whole = here.count == 1
    then = f"Next: schemarouter gate {out}" if whole else f"Next, with all shards here: schemarouter gate {out}"
    typer.echo(f"{expected} episodes in {out}. {then}", err=True)


def _seconds(given: float | None) -> float | None:
    if given is not None and not 0 < given <= _MOST_SECONDS:
        raise UsageError(f"--episode-seconds is more than 0 and at most {_MOST_SECONDS:,}, got {given}.")
    return given


def status(
    directory: Annotated[Path, typer.Argument(help="Run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """How far a run is: counts only, never an outcome. Works on a live run."""
    from conditions.running.plan import plan_from_json
    from conditions.storage.run_directory import read_run
    from conditions.storage.shards import count_episodes

    header = read_run(directory)
    plan = plan_from_json(header["plan"], "run.json")
    counted = count_episodes(directory)
    finished, failed_attempts = counted.finished, counted.failed_attempts
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


def merge(
    directories: Annotated[list[Path], typer.Argument(help="Run directories that hold the shards of one run.")],
    out: Annotated[Path, typer.Option(help="Run directory for all of them: a new one, or one with some already.")],
) -> None:
    """Bring the shards of one run together, made in several directories; refuses what does not belong together."""
    from conditions.storage.merge import merge as bring

    shards = bring(directories, out)
    typer.echo(f"{len(shards)} shards in {out}. Next: schemarouter gate {out}", err=True)
