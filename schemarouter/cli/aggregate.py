"""``aggregate``: check, replay and measure a complete run."""

from __future__ import annotations

import typer

from schemarouter.cli.common import AsJson, Directory, print_bytes, print_stamp


def aggregate(directory: Directory, as_json: AsJson = False) -> None:
    """Check, replay and measure a complete run, and write aggregate.json. Anything else is refused with exit code 3."""
    from conditions.storage.run_directory import AGGREGATE_FILE
    from schemarouter.experiment import aggregate as aggregate_run

    result = aggregate_run(directory)
    if as_json:
        print_bytes(result.chunks())
        return
    print_stamp(result.stamp)
    counted, expected = result.episodes.counted, result.episodes.expected
    typer.echo(f"{counted}/{expected} episodes replayed; {directory / AGGREGATE_FILE} written.")
