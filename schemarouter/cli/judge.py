"""``aggregate``, ``gate`` and ``show``: what a terminal run says."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schemarouter.cli.common import print_json, print_stamp, require_workers
from schemarouter.errors import EXIT_GATE_FAILED, InvalidRunError, UsageError

if TYPE_CHECKING:
    from gates.aggregate import Aggregate, World

Directory = Annotated[Path, typer.Argument(help="Run directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Workers = Annotated[
    int,
    typer.Option(
        help="Processes that replay records, from the 2,000th on that differs; more than one pay where many thousand do."
    ),
]


def _aggregate(directory: Path, workers: int = 1) -> tuple[Aggregate, World]:
    from conditions.storage.run_directory import read_run
    from gates.aggregate import aggregate as compute
    from schemarouter.cli.world import world_of_run

    require_workers(workers)
    world = world_of_run(read_run(directory))
    return compute(directory, world, workers=workers), world


def aggregate(directory: Directory, workers: Workers = 1, as_json: AsJson = False) -> None:
    """Check, replay and measure a terminal run; writes aggregate.json. Refuses anything else with exit 3."""
    from conditions.storage.run_directory import AGGREGATE_FILE
    from gates.aggregate import write_aggregate

    result, _ = _aggregate(directory, workers)
    write_aggregate(directory, result)
    if as_json:
        for chunk in result.chunks():
            typer.echo(chunk, nl=False)
    else:
        print_stamp(result.run["stamp"])
        typer.echo(
            f"{len(result.rows)}/{len(result.plan.units)} episodes replayed; {directory / AGGREGATE_FILE} written."
        )


def gate(directory: Directory, workers: Workers = 1, as_json: AsJson = False) -> None:
    """Judge a terminal run: exit 0 pass, 1 fail, 3 incomplete, altered or otherwise invalid."""
    from conditions.storage.run_directory import AGGREGATE_FILE, VERDICT_FILE, pretty_json, write_whole
    from gates.aggregate import same_aggregate, write_aggregate
    from gates.confirmatory_result import keep_or_compare
    from gates.gate import judge
    from schemarouter.cli.render import print_verdict

    result, world = _aggregate(directory, workers)
    protocol = world.protocol
    same = same_aggregate(directory, result)
    if same is None:
        write_aggregate(directory, result)
    elif not same:
        raise InvalidRunError(
            f"{directory / AGGREGATE_FILE} is not what the shards give; it was altered, or is of other code. "
            "Delete it to go on."
        )
    verdict = judge(result, protocol)
    write_whole(directory / VERDICT_FILE, pretty_json(verdict.as_json()))
    kept = keep_or_compare(protocol.results, result, verdict) if verdict.confirmatory else ""
    if as_json:
        print_json(verdict.as_json())
    else:
        print_verdict(verdict)
    if kept:
        typer.echo(kept, err=True)
    if not verdict.passed:
        raise typer.Exit(EXIT_GATE_FAILED)


def reproduce(directory: Directory) -> None:
    """Run every episode of a terminal run again, with the retriever and agent it names, and compare every record.

    Nothing that was kept from before is used: vectors and token counts are computed anew.
    """
    from gates.reproduce import reproduce as again
    from schemarouter.cli.progress import progress_display
    from schemarouter.disk_cache import nothing_kept

    result, world = _aggregate(directory)
    with nothing_kept(), progress_display(None, len(result.rows)) as progress:
        done = again(directory, world, progress)
    print_stamp(result.run["stamp"])
    typer.echo(f"{done} episodes run again; every record comes out the same.")


def show(
    directory: Directory,
    episode: Annotated[str, typer.Argument(help="task/catalog/condition; every episode's outcome when left out.")] = "",
) -> None:
    """One episode turn by turn, or all in a line each; only once the run is terminal."""
    from schemarouter.cli.render import print_episode, print_episodes

    result, _ = _aggregate(directory)
    if not episode:
        print_stamp(result.run["stamp"])
        print_episodes(result)
        return
    known = [unit.episode_id for unit in result.plan.units]
    if episode not in known:
        raise UsageError(_near(episode, known))
    print_stamp(result.run["stamp"])
    print_episode(directory, episode)


def _near(episode: str, known: list[str]) -> str:
    """Say that there is no such episode, and which ones come closest: of the task meant, where one can be told."""
    task = get_close_matches(episode.partition("/")[0].lower(), {name.partition("/")[0] for name in known}, n=1)
    likely = {name.lower(): name for name in known if not task or name.partition("/")[0] == task[0]}
    near = [likely[name] for name in get_close_matches(episode.lower(), likely, n=10, cutoff=0.0 if task else 0.5)]
    meant = f" Did you mean {near[0]!r}? The nearest are {', '.join(near)}." if near else ""
    return f"unknown episode {episode!r}.{meant} The run has {len(known)}; schemarouter show DIR lists them."
