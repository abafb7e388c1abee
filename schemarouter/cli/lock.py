"""``lock``: write, rewrite and release the lock of a surface, and show its status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from schemarouter.cli.common import SurfaceName, print_json
from schemarouter.errors import InvalidRunError

app = typer.Typer(help="Locks: the fingerprints that are promised of a surface.", no_args_is_help=True)
OfSurface = Annotated[SurfaceName, typer.Option(help="Surface of the lock.")]
Reason = Annotated[str, typer.Option(help="Why; recorded in the lock's history.")]
AUDIT = "surface/AUDIT.md"


@app.command()
def write(surface: OfSurface = SurfaceName.development) -> None:
    """Write the lock of a surface: development after an intended change, frozen for the first time only."""
    from preregistration.lock import FILES, LOCK_SCHEMA_VERSION, Lock, read_lock
    from preregistration.protocol import load_protocol
    from surface.loader import load_surface

    confirmatory = load_protocol(surface).confirmatory
    if confirmatory and not load_surface(surface).tasks:
        raise InvalidRunError(f"the {surface} surface has no tasks yet; there is nothing to lock.")
    if confirmatory and read_lock(surface) is not None:
        raise InvalidRunError(
            f"{FILES[surface]} exists and would be lost with its history. Before the release, "
            f'schemarouter lock rewrite --surface {surface} --reason "…" replaces it and keeps the history.'
        )
    origin = {"date": _today(), "commit": _clean_commit()} if confirmatory else {}
    lock = Lock.model_validate(
        {
            "schema_version": LOCK_SCHEMA_VERSION,
            "surface": str(surface),
            "confirmatory": confirmatory,
            "fingerprints": _current_fingerprints(surface),
            **origin,
        }
    )
    _store(surface, lock)
    typer.echo(f"{FILES[surface]} written; digest {lock.digest}.")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False) -> None:
    """Show which surfaces are locked and released, their history, and which fingerprints differ now."""
    from preregistration.lock import compare, read_lock

    rows: list[dict[str, Any]] = []
    for surface in SurfaceName:
        lock = read_lock(surface)
        row: dict[str, Any] = {"surface": str(surface), "locked": lock is not None}
        if lock is not None:
            broken = [item.name for item in compare(lock, _current_fingerprints(surface)) if not item.holds]
            row |= {
                "digest": lock.digest,
                "date": lock.date,
                "commit": lock.commit,
                "fingerprints": len(lock.current),
                "differing": broken,
                "released": lock.released,
                "history": [_event_row(event) for event in lock.events()],
            }
        rows.append(row)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        for line in _status_lines(row):
            typer.echo(line)


def _status_lines(row: dict[str, Any]) -> list[str]:
    if not row["locked"]:
        return [f"{row['surface']}: not locked"]
    since = f" since {row['date']} at commit {row['commit'][:12]}" if row["date"] else ""
    released = "released" if row["released"] else "not released"
    state = released if row["surface"] == "frozen" else "free to use"
    lines = [
        f"{row['surface']}: locked{since}, {row['fingerprints']} fingerprints, {len(row['differing'])} differ now; {state}",
        f"  digest {row['digest']}",
    ]
    lines += [f"  differs: {name}" for name in row["differing"][:10]]
    return lines + [_event_line(event) for event in row["history"]]


def _event_row(event: Any) -> dict[str, Any]:
    row: dict[str, Any] = event.model_dump(mode="json", exclude={"fingerprints", "superseded"})
    if event.kind == "rewrite":
        old = event.superseded
        row["superseded"] = {"date": old.date, "commit": old.commit, "digest": old.digest}
    return row


def _event_line(row: dict[str, Any]) -> str:
    old = row.get("superseded")
    instead = f" (instead of the lock of {old['date']}, digest {old['digest'][:16]})" if old else ""
    return f"  {row['date']} {row['kind']}: {row['reason']}{instead}"


@app.command()
def rewrite(reason: Reason, surface: OfSurface = SurfaceName.frozen) -> None:
    """Replace a lock that is not released by the current fingerprints; its history keeps the old one and the reason."""
    from preregistration.lock import FILES, rewritten

    previous = _required_lock(surface)
    lock = rewritten(
        previous, _current_fingerprints(surface), date=_today(), commit=_clean_commit(), reason=_required_reason(reason)
    )
    _store(surface, lock)
    typer.echo(f"{FILES[surface]} rewritten; digest {lock.digest}.")


@app.command()
def release(reason: Reason, surface: OfSurface = SurfaceName.frozen) -> None:
    """Release a lock, so that its surface may be scored. Requires matching fingerprints, a clean checkout and the audit."""
    from conditions.running.provenance import ROOT
    from preregistration.lock import Release, require_as_locked

    lock = _required_lock(surface)
    if not lock.confirmatory:
        raise InvalidRunError(f"the {surface} surface is free to use; only a confirmatory one is released.")
    if lock.released:
        raise InvalidRunError("the lock is released already.")
    require_as_locked(lock, _current_fingerprints(surface))
    if not (ROOT / AUDIT).is_file() or not (ROOT / AUDIT).read_text(encoding="utf-8").strip():
        raise InvalidRunError(f"{AUDIT} is missing or empty; the surface is not released without its audit.")
    event = Release(kind="release", date=_today(), commit=_clean_commit(), reason=_required_reason(reason))
    _store(surface, lock.model_copy(update={"history": (*lock.history, event)}))
    typer.echo(f"released; commit the lock, then: make experiment SURFACE={surface}")


@app.command()
def timing(surface: OfSurface = SurfaceName.frozen) -> None:
    """Time the whole grid with random(seed=1); nothing but wall times is kept."""
    from conditions.running.grid_timing import time_grid
    from preregistration.protocol import load_protocol
    from surface.loader import load_catalogs, load_surface

    protocol = load_protocol(surface)
    timed = time_grid(protocol, load_surface(surface), load_catalogs(protocol.catalogs))
    for name, seconds in timed.seconds.items():
        typer.echo(f"{name}: {seconds:.2f} s")
    typer.echo(f"{timed.episodes} episodes")


def _current_fingerprints(surface: str) -> dict[str, str]:
    """The current value of every fingerprint that a lock of the surface holds."""
    from gates.identities import locked_fingerprints

    return locked_fingerprints(str(surface))


def _clean_commit() -> str:
    from conditions.running.provenance import clean_commit

    return clean_commit()


def _required_lock(surface: str) -> Any:
    from preregistration.lock import read_lock

    lock = read_lock(surface)
    if lock is None:
        raise InvalidRunError(
            f"the {surface} surface is not locked; lock it with schemarouter lock write --surface {surface}."
        )
    return lock


def _required_reason(reason: str) -> str:
    if not reason.strip():
        raise InvalidRunError("--reason is empty; give the reason in words.")
    return reason.strip()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _store(surface: str, lock: Any) -> None:
    from preregistration import protocol
    from preregistration.lock import FILES
    from schemarouter.files import pretty_json, write_whole

    write_whole(protocol.FOLDER / FILES[surface], pretty_json(lock.model_dump(mode="json")))
