"""``show``: print the episodes of a complete run."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from schemarouter.cli.common import Directory, print_stamp
from schemarouter.errors import UsageError


def show(
    directory: Directory,
    episode: Annotated[
        str, typer.Argument(help="task/catalog/condition; all episodes, a line each, unless given.")
    ] = "",
) -> None:
    """Show the episodes of a complete run in a line each, or one of them turn by turn."""
    from schemarouter.cli.render import print_attempt, print_episodes
    from schemarouter.experiment import load_complete_run, load_run
    from surface.loader import load_catalogs, load_surface

    run = load_complete_run(directory)
    if not episode:
        print_stamp(run.header.stamp)
        print_episodes(run)
        return
    known = [unit.episode_id for unit in run.plan.units]
    if episode not in known:
        raise UsageError(_near(episode, known))
    print_stamp(run.header.stamp)
    for record in load_run(directory).records():
        if record.episode_id == episode:
            prompt = load_surface(run.header.surface).prompt(record.task)
            print_attempt(record, prompt.query, load_catalogs([record.catalog])[record.catalog])


def _near(episode: str, known: list[str]) -> str:
    """The message for an unknown episode, with the closest ones: of the closest task, where one is close enough."""
    task = get_close_matches(episode.partition("/")[0].lower(), {name.partition("/")[0] for name in known}, n=1)
    likely = {name.lower(): name for name in known if not task or name.partition("/")[0] == task[0]}
    near = [likely[name] for name in get_close_matches(episode.lower(), likely, n=10, cutoff=0.0 if task else 0.5)]
    meant = f" Did you mean {near[0]!r}? The nearest are {', '.join(near)}." if near else ""
    return f"unknown episode {episode!r}.{meant} The run has {len(known)}; schemarouter show DIR lists them."
