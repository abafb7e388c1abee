"""The program: its commands, and how a mistake, an interruption and a bug end it."""

from __future__ import annotations

import os
import sys

import typer

from schemarouter.cli import judge, listing, lookup, running, verifying
from schemarouter.errors import EXIT_INTERRUPTED, SchemaRouterError

app = typer.Typer(
    name="schemarouter",
    help="Does retrieval from typed, observed execution state bring back a tool that the first list missed?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("verify")(verifying.verify)
app.command("lock")(verifying.lock)
app.add_typer(listing.app, name="list")
app.command("run")(running.run)
app.command("status")(running.status)
app.command("aggregate")(judge.aggregate)
app.command("gate")(judge.gate)
app.command("show")(judge.show)
app.command("retrieve")(lookup.retrieve)
app.add_typer(lookup.state_app, name="state")


def main() -> None:
    """Run the program. A user's mistake is one message and an exit code; a bug is a traceback."""
    try:
        app(standalone_mode=True)
    except SchemaRouterError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted; what was done is kept.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone; closing stdout quietly keeps the interpreter from saying so again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
