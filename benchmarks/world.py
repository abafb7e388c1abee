"""The speed of the experiment: calls of the default retriever on the development surface, and whole episodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.timing import Build, Effort, Row, alternate, build, once, rows, timed, undisturbed
from conditions.running.plan import Unit, make_plan
from conditions.running.runner import OpeningRankings, Runner
from gates.tuning.decision_points import decision_points_of
from preregistration.protocol import Protocol, load_protocol
from schemarouter.agents import registry as agents
from schemarouter.catalog import Catalog
from schemarouter.disk_cache import no_cache
from schemarouter.retrieval.base import Retriever
from schemarouter.retrieval.registry import build_retriever, resolve
from surface.loader import Surface, load_catalogs, load_surface
from surface.task import Task

_LEXICAL = "bm25"
_BUILT = "built with an empty vector cache; memory without the encoder's own"


def world_rows(size: int, effort: Effort, tasks: int) -> list[Row]:
    """Opening and refresh calls of the default retriever over `size` endpoints against BM25 alone, and whole episodes.

    `tasks` tasks, spread evenly over the surface: every other one for the calls and the rest for the episodes, so that no
    text is encoded twice.
    """
    protocol, surface = load_protocol("development"), load_surface("development")
    catalog = load_catalogs([size])[size]
    default = str(resolve(protocol.retriever))
    with no_cache():  # The first build encodes every entry, as on a new machine.
        builds: dict[str, Build[Retriever]] = {
            name: build(partial(_built, name, catalog)) for name in (default, _LEXICAL)
        }
        chosen = surface.tasks[:: max(len(surface.tasks) // tasks, 1)]
        calls = _call_rows(protocol, surface, chosen[::2], catalog, effort, builds)
    return [*calls, *_episode_rows(protocol, surface, chosen[1::2], catalog, builds[default].value)]


def _built(spec: str, catalog: Catalog) -> Retriever:
    return build_retriever(spec, catalog)


def _call_rows(
    protocol: Protocol,
    surface: Surface,
    tasks: Sequence[Task],
    catalog: Catalog,
    effort: Effort,
    builds: Mapping[str, Build[Retriever]],
) -> list[Row]:
    """Calls for new requests, for the states after every tool turn, and for the same requests again."""
    decision_points = [
        point for task in tasks for point in decision_points_of(task, surface.stratum(task.prompt.id), catalog, "full")
    ]
    opening = [point.query for point in decision_points if point.turn == 0]
    refresh = [point.query for point in decision_points if point.turn > 0]
    k = protocol.conditions.top_k
    ask = {name: partial(item.value.rank, k=k) for name, item in builds.items()}
    size = len(catalog.capabilities)
    first = once(ask, opening)
    # Once for each state, as in an episode, where no cached ranking of a state is ever used again.
    after = once(ask, list(dict.fromkeys(refresh)))
    again = alternate(ask, opening, effort)
    return [
        *rows(f"opening call, top {k}, a new query", size, first, builds=builds, notes=dict.fromkeys(builds, _BUILT)),
        *rows(f"opening call, top {k}, a known query", size, again),
        *rows(f"refresh call, top {k}", size, after),
    ]


def _episode_rows(
    protocol: Protocol, surface: Surface, tasks: Sequence[Task], catalog: Catalog, retriever: Retriever
) -> list[Row]:
    """Wall time of whole episodes by condition, in the order of the grid; the first row notes episodes per second."""
    size = len(catalog.capabilities)
    names = protocol.conditions.names
    plan = make_plan(protocol, surface, tasks=[task.prompt.id for task in tasks], catalogs=[size])
    runner = Runner(
        protocol,
        surface,
        {size: catalog},
        retriever=resolve(protocol.retriever),
        agent=agents.resolve(protocol.agent),
        built_retrievers={size: OpeningRankings(retriever)},
    )
    times: dict[str, list[float]] = {name: [] for name in names}
    with undisturbed():
        other = next(task.prompt.id for task in surface.tasks if task not in tasks)
        runner.run(Unit(other, size, names[0]))
        start = time.perf_counter()
        for unit in plan.units:
            times[unit.condition].append(timed(runner.run, unit))
        seconds = time.perf_counter() - start
    note = f"{len(plan.units) / seconds:.1f} episodes a second over all conditions"
    return rows("whole episodes", size, times, notes={names[0]: note})
