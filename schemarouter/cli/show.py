"""``show``: print the episodes of a complete run."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from schemarouter.cli.common import AsJson, Directory, print_json, print_stamp
from schemarouter.errors import SchemaRouterError, UsageError


def show(
    directory: Directory,
    episode: Annotated[
        str, typer.Argument(help="task/catalog/condition; task or task/catalog lists those, nothing lists all.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the episodes of a complete run, or show one turn by turn: what was needed, what was shown, what changed."""
    from conditions.registry import ranks
    from gates.episode_table import EpisodeTable
    from gates.identities import load_reference
    from schemarouter.agents.registry import order_of
    from schemarouter.cli.episode_view import EpisodeView, Reasons, print_attempt
    from schemarouter.cli.render import print_episodes
    from schemarouter.experiment import load_complete_run, load_run

    run = load_complete_run(directory)
    known = {unit.episode_id: unit for unit in run.plan.units}
    if episode not in known:
        part = episode.rstrip("/") + "/" if episode else ""
        rows = [row for row, name in zip(run.rows, known, strict=True) if name.startswith(part)]
        if not rows:
            raise UsageError(_near(episode, [*known]))
        if as_json:
            print_json({"stamp": run.header.stamp, "rows": [*EpisodeTable.of(rows).as_json()]})
            return
        print_stamp(run.header.stamp)
        print_episodes(rows)
        return
    unit, reference = known[episode], load_reference(run.header)
    records = (record for record in load_run(directory).records() if record.episode_id == episode)
    reasons = None
    if ranks(unit.condition):
        try:
            reasons = Reasons(reference, run.header.identities, unit.catalog)
        except SchemaRouterError as error:
            typer.echo(f"why a route ranked where it did cannot be said: {error}", err=True)
    order = order_of(run.header.identities.agent)
    views = [EpisodeView(record, reference, reasons, order=order) for record in records]
    if as_json:
        print_json({"stamp": run.header.stamp, "attempts": [view.as_json() for view in views]})
        return
    print_stamp(run.header.stamp)
    for view in views:
        print_attempt(view)


def _near(episode: str, known: list[str]) -> str:
    """The message for an unknown episode, with the closest ones: of the closest task, where one is close enough."""
    task = get_close_matches(episode.partition("/")[0].lower(), {name.partition("/")[0] for name in known}, n=1)
    likely = {name.lower(): name for name in known if not task or name.partition("/")[0] == task[0]}
    near = [likely[name] for name in get_close_matches(episode.lower(), likely, n=10, cutoff=0.0 if task else 0.5)]
    meant = f" Did you mean {near[0]!r}? The nearest are {', '.join(near)}." if near else ""
    return f"unknown episode {episode!r}.{meant} The run has {len(known)}; schemarouter show DIR lists them."
