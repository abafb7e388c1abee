"""The stamp of a run: why it is exploratory, or nothing for the locked protocol alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conditions.running.plan import Plan, make_plan
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from surface.loader import Surface


def stamp(
    protocol: Protocol,
    surface: Surface,
    plan: Plan,
    header: Mapping[str, Any],
    *,
    asked: bool = False,
) -> str:
    """What every table, file and plot of a run carries; recomputed wherever it is read, never believed.

    `header` holds the identities, provenance and limits of the run and under which code it has gone on since. `asked` is whether
    the user called the run exploratory. A run of the locked protocol is of a known commit, unchanged.
    """
    identities, provenance = header["identities"], header["provenance"]
    usual = {"retriever": str(retrievers.resolve(protocol.retriever)), "agent": str(agents.resolve(protocol.agent))}
    reasons = [
        text
        for holds, text in (
            (not protocol.confirmatory, "development surface"),
            (replace(plan, repeats=1).units != make_plan(protocol, surface).units, "part of the grid"),
            (plan.repeats > 1, "repeats"),
            (any(identities.get(name) != spec for name, spec in usual.items()), "another retriever or agent"),
            (identities.get("catalog_view") != "full", "another view of the catalogs"),
            (protocol.confirmatory and not _committed(provenance), "uncommitted code"),
            (header["limits"].get("episode_seconds") is not None, "a time limit"),
            (bool(header["resumed"]), "gone on under other code"),
            (asked, "asked for"),
        )
        if holds
    ]
    return f"EXPLORATORY ({', '.join(reasons)})" if reasons else ""


def _committed(provenance: Mapping[str, Any]) -> bool:
    """Whether the commit is known and nothing was changed since; what is not told does not hold."""
    return bool(provenance.get("commit")) and provenance.get("dirty") is False


def check_stamp(run: Mapping[str, Any], protocol: Protocol, surface: Surface, plan: Plan) -> None:
    """Raise InvalidRunError when the stamp of a run header is not the one its own parts give."""
    allowed = [stamp(protocol, surface, plan, run, asked=asked) for asked in (False, True)]
    if run["stamp"] not in allowed:
        raise InvalidRunError(f"run.json: the stamp is {run['stamp']!r}; this run's is {allowed[0]!r}.")
