"""Wall times of the whole grid under a random retriever. No record is kept, so no outcome is revealed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from conditions.running.plan import make_plan
from conditions.running.runner import TIMING_RETRIEVER, Runner
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.catalog import Catalog
from schemarouter.retrieval import registry as retrievers
from surface.loader import Surface


@dataclass(frozen=True)
class GridTime:
    """Seconds spent by condition, and the number of episodes."""

    seconds: Mapping[str, float]
    episodes: int


def time_grid(protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog]) -> GridTime:
    """Run every episode of the grid with `TIMING_RETRIEVER` and discard its record."""
    spec = retrievers.resolve(TIMING_RETRIEVER)
    runner = Runner(protocol, surface, catalogs, retriever=spec, agent=agents.resolve(protocol.agent))
    plan = make_plan(protocol, surface)
    seconds = dict.fromkeys(plan.conditions, 0.0)
    for unit in plan.units:
        start = time.perf_counter()
        runner.run(unit)
        seconds[unit.condition] += time.perf_counter() - start
    return GridTime(seconds, len(plan.units))
