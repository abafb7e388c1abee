"""Putting the rooms together: the identities of a run, composed of what each room says of itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conditions.running.plan import Plan, plan_from_json
from conditions.running.provenance import ROOT, code_fingerprint, packages
from gates.aggregate import World
from gates.bootstrap import counts_sha256, locked_counts
from preregistration import lock
from preregistration.protocol import Protocol, load_protocol
from schemarouter import state
from schemarouter.agents import registry as agents
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import VIEWS
from schemarouter.errors import InvalidRunError, unknown
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.spec import SpecError
from schemarouter.tokens import TOKENIZER
from surface.loader import FOLDERS, Surface, load_catalogs, load_surface


def identities(
    protocol: Protocol,
    surface: Surface,
    catalogs: Mapping[int, Catalog],
    tasks: tuple[str, ...],
    retriever: str,
    agent: str,
) -> dict[str, Any]:
    """Everything a result rests on that a lock promises, by fingerprint or full spec."""
    cells = {task: surface.cell(task) for task in tasks}
    return {
        "agent": str(agents.resolve(agent)),
        "catalogs": {str(size): catalog.fingerprint for size, catalog in sorted(catalogs.items())},
        "protocol": protocol.fingerprint,
        "retriever": str(retrievers.resolve(retriever)),
        "retriever_data": retrievers.data_fingerprint(retriever),
        "state_contract": state.fingerprint(),
        "statistics": counts_sha256(locked_counts(cells, protocol.statistics)[1]) if cells else "",
        "surface": surface.fingerprint,
        "tokenizer": TOKENIZER,
    }


def world_of_run(run: Mapping[str, Any]) -> World:
    """What a run directory is checked against. Raises InvalidRunError when its header names no known surface."""
    name = run["surface"]
    if name not in FOLDERS:
        raise InvalidRunError(f"run.json: {unknown('surface', name, FOLDERS)}")
    plan = plan_from_json(run["plan"], "run.json")
    reason = lock.scoring_refusal(name, plan.conditions)
    if reason:
        raise InvalidRunError(reason)
    protocol, surface = load_protocol(name), load_surface(name)
    catalogs = load_catalogs(protocol.catalogs)
    _refuse_copies(run, plan)

    def now(stored: Mapping[str, Any]) -> dict[str, Any]:
        held, tasks = stored["identities"], tuple(stored["plan"]["tasks"])
        for part in ("retriever", "agent"):
            if not isinstance(held.get(part), str):
                raise InvalidRunError(f"run.json: identities.{part} is no spec.")
        if held.get("catalog_view") not in VIEWS:
            told = unknown("catalog view", str(held.get("catalog_view")), VIEWS)
            raise InvalidRunError(f"run.json: identities.catalog_view: {told}")
        try:
            promised = identities(protocol, surface, catalogs, tasks, held["retriever"], held["agent"])
        except SpecError as error:
            raise InvalidRunError(f"run.json: identities name no known retriever or agent: {error}") from None
        return {**promised, "catalog_view": held["catalog_view"]}

    return World(protocol, surface, catalogs, now)


def _refuse_copies(run: Mapping[str, Any], plan: Plan) -> None:
    """Raise InvalidRunError for repeats of an agent that takes no seed: each would be the same."""
    agent = run["identities"].get("agent")
    try:
        copies = plan.repeats > 1 and not agents.takes_seed(str(agent))
    except SpecError:
        return  # Told with the identities.
    if copies:
        raise InvalidRunError(
            f"run.json: the plan has repeats, and {agent} takes no seed: they would be copies of one run."
        )


def provenance(out: Path | None = None) -> dict[str, Any]:
    """Where a run comes from: commit and dirty flag, code, versions, the command as it was typed.

    The run directory `out` makes no checkout dirty by lying in it.
    """
    return {
        "argv": [_writable(text) for text in sys.argv[1:]],
        "code": code_fingerprint(ROOT),
        "packages": dict(packages()),
        "python": platform.python_version(),
        **_commit(out),
    }


def _writable(text: str) -> str:
    r"""The text with whatever is no Unicode escaped: a file's name may hold any byte, which comes as ``\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()


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
    place = None if out is None else Path(os.path.realpath(out))
    within = place is not None and place.is_relative_to(ROOT) and place != ROOT
    but = [f":(top,exclude,literal){place.relative_to(ROOT)}"] if place is not None and within else []
    changes = _git("status", "--porcelain", "--untracked-files=normal", "--", ":/", *but)
    return {"commit": _git("rev-parse", "HEAD"), "dirty": None if changes is None else changes != ""}
