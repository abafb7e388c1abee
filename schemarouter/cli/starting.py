"""What a run needs before its first episode: its header, and who does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemarouter.cli.common import SurfaceName, require_workers
from schemarouter.errors import InvalidRunError, UsageError

if TYPE_CHECKING:
    from conditions.running.engines.base import Engine
    from conditions.running.engines.jobs import Limits
    from conditions.running.plan import Plan
    from conditions.running.runner import Setup
    from schemarouter.records import EpisodeRecord
    from schemarouter.tokens import TokenCounter


class EngineName(StrEnum):
    """Who runs the episodes: this machine's processes, or Ray's."""

    local = "local"
    ray = "ray"


@dataclass(frozen=True)
class Part:
    """Which part of the grid is asked for, and how many times."""

    tasks: tuple[str, ...]
    catalogs: tuple[int, ...]
    conditions: tuple[str, ...]
    limit: int | None
    repeats: int


@dataclass(frozen=True)
class Started:
    """A run that may begin: its plan and its header."""

    plan: Plan
    header: Mapping[str, Any]
    stamped: Callable[[Mapping[str, Any]], dict[str, Any]]

    def gone_on(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The header of a run that was begun under other code and goes on under this one."""
        latest, here = [stored["provenance"], *stored["resumed"]][-1], self.header["provenance"]
        same = all(latest.get(name) == value for name, value in here.items() if name != "argv")
        return self.stamped(stored if same else {**stored, "resumed": [*stored["resumed"], here]})


def begin(setup: Setup, part: Part, limits: Limits, out: Path, *, exploratory: bool) -> Started:
    """Check that a run may be made and say what it is. Raises SchemaRouterError where it may not."""
    from conditions.running.plan import make_plan
    from conditions.storage.run_directory import RUN_SCHEMA_VERSION
    from gates.exploratory import stamp
    from preregistration.lock import scoring_refusal
    from preregistration.protocol import load_protocol
    from schemarouter.agents import registry as agents
    from schemarouter.cli.world import identities, provenance
    from surface.loader import load_catalogs, load_surface

    surface = SurfaceName(setup.surface)
    protocol, tasks = load_protocol(surface), load_surface(surface)
    if part.repeats > 1 and not agents.takes_seed(setup.agent):
        raise UsageError(
            f"--repeat {part.repeats}: {setup.agent} takes no seed, so every repeat would be the same; leave it out."
        )
    plan = make_plan(
        protocol,
        tasks,
        tasks=part.tasks,
        catalogs=part.catalogs,
        conditions=part.conditions,
        limit=part.limit,
        repeats=part.repeats,
    )
    if not plan.units:
        raise InvalidRunError(f"the {surface} surface holds no tasks.")
    reason = scoring_refusal(surface, plan.conditions)
    if reason:
        raise InvalidRunError(reason)
    require_lock(surface, exploratory=exploratory)
    catalogs = load_catalogs(protocol.catalogs)
    named = identities(protocol, tasks, catalogs, plan.tasks, setup.retriever, setup.agent)
    header = {
        "schema_version": RUN_SCHEMA_VERSION,
        "surface": str(surface),
        "identities": {**named, "catalog_view": setup.view},
        "plan": plan.as_json(),
        "provenance": provenance(out),
        "limits": {"episode_seconds": limits.episode_seconds},
        "resumed": [],
    }

    def stamped(header: Mapping[str, Any]) -> dict[str, Any]:
        return {**header, "stamp": stamp(protocol, tasks, plan, header, asked=exploratory)}

    return Started(plan, stamped(header), stamped)


def require_lock(surface: SurfaceName, *, exploratory: bool) -> None:
    """Raise InvalidRunError where anything is not as it was locked; development may go on, exploratory."""
    from preregistration.lock import read_lock, require_as_locked
    from schemarouter.cli.lock import clean_commit, fingerprints_here

    lock = read_lock(surface)
    # Asked of the surface, since a lock could say anything of itself.
    frozen = surface is SurfaceName.frozen
    if lock is None or (exploratory and not frozen):
        return
    if frozen and lock.released:
        # A release that nobody has committed is none.
        clean_commit()
    try:
        require_as_locked(lock, fingerprints_here(str(surface), behaviour=frozen))
    except InvalidRunError as error:
        if frozen:
            raise
        raise InvalidRunError(
            f"{error}\nIf that was meant: schemarouter lock write, or --exploratory for this run."
        ) from None


def make_engine(name: EngineName, setup: Setup, workers: int, limits: Limits, address: str) -> Engine:
    """Who does the work. Raises UsageError for options that cannot be or do not go together, SchemaRouterError without Ray."""
    require_workers(workers)
    if address and name is not EngineName.ray:
        raise UsageError("--address is of a Ray cluster; give --engine ray too.")
    if name is EngineName.ray:
        from conditions.running.engines.ray import RayCluster

        return RayCluster(setup, workers, limits, address)
    if workers == 1:
        from conditions.running.engines.base import InProcess

        return InProcess(setup(), limits)
    from conditions.running.engines.pool import Pool

    return Pool(setup, workers, limits)


def output_tokens(record: EpisodeRecord) -> int:
    """Tokens that the agent of a recorded attempt wrote."""
    from conditions.running.episode import output_tokens as count

    return count(record, _counter())


@cache
def _counter() -> TokenCounter:
    from schemarouter.tokens import TokenCounter, kept_counts

    return TokenCounter(kept_counts())
