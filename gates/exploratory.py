"""The stamp of a run: why it is exploratory, or nothing for the locked protocol alone."""

from __future__ import annotations

from dataclasses import replace

from conditions.running.plan import Plan, make_plan
from conditions.storage.run_directory import RunHeader
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.errors import InvalidRunError
from schemarouter.retrieval import registry as retrievers
from surface.loader import Surface


def stamp(protocol: Protocol, surface: Surface, plan: Plan, header: RunHeader, *, asked: bool = False) -> str:
    """The stamp on every table, file and plot of a run; recomputed wherever a header is read, never trusted.

    `asked` is whether the user called the run exploratory. A confirmatory run is of a known, unchanged commit.
    """
    identities, provenance = header.identities, header.provenance
    promised = {"retriever": str(retrievers.resolve(protocol.retriever)), "agent": str(agents.resolve(protocol.agent))}
    # An unknown commit is none.
    committed = bool(provenance.commit) and provenance.dirty is False
    promised_names = {*protocol.conditions.names}
    promised_units = tuple(unit for unit in replace(plan, repeats=1).units if unit.condition in promised_names)
    reasons = [
        text
        for holds, text in (
            (not protocol.confirmatory, f"{protocol.surface} surface"),
            (promised_units != make_plan(protocol, surface).units, "part of the grid"),
            (not promised_names.issuperset(plan.conditions), "another condition"),
            (plan.repeats > 1, "repeats"),
            (any(getattr(identities, name) != spec for name, spec in promised.items()), "another retriever or agent"),
            (identities.catalog_view != "full", "another view of the catalogs"),
            (protocol.confirmatory and not committed, "uncommitted code"),
            (header.limits.episode_seconds is not None, "a time limit"),
            (bool(header.resumed), "resumed under other code"),
            (asked, "asked for"),
        )
        if holds
    ]
    return f"EXPLORATORY ({', '.join(reasons)})" if reasons else ""


def check_stamp(run: RunHeader, protocol: Protocol, surface: Surface, plan: Plan) -> None:
    """Raise InvalidRunError when the stamp of a run header does not follow from its other parts."""
    allowed = [stamp(protocol, surface, plan, run, asked=asked) for asked in (False, True)]
    if run.stamp not in allowed:
        raise InvalidRunError(f"run.json: the stamp is {run.stamp!r}; this run's is {allowed[0]!r}.")
