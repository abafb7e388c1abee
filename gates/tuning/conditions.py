"""Runs the conditions of the experiment with weights that were fitted without the task they run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conditions.running.plan import Plan
from conditions.running.runner import Runner
from gates.episode_table import EpisodeRow
from gates.measures import measure
from gates.replay import Replay
from gates.tuning.search import Fold
from preregistration.names import SR_CONDITIONS
from preregistration.protocol import Protocol
from schemarouter.agents import registry as agents
from schemarouter.catalog import Catalog
from schemarouter.catalog.views import CatalogView, viewed
from schemarouter.retrieval import registry as retrievers
from schemarouter.retrieval.base import entries_of
from schemarouter.retrieval.typed import build_typed
from schemarouter.tokens import TokenCounter
from surface.loader import Surface


def conditions_out_of_fold(
    protocol: Protocol, surface: Surface, catalogs: Mapping[int, Catalog], folds: Sequence[Fold], view: CatalogView
) -> list[EpisodeRow]:
    """Run every condition that retrieves on every task, with the retriever of the task's fold, and measure it.

    The retriever sees the catalog in `view`; states are observed as the whole catalog registers them, of which a retriever
    without registered meanings can use the field names alone.
    """
    counter = TokenCounter()
    agent = agents.resolve(protocol.agent)
    rows = []
    for fold in folds:
        weights = fold.weights.as_weights()
        typed = {
            size: build_typed(entries_of(viewed(catalog, view)), weights=weights) for size, catalog in catalogs.items()
        }
        spec = retrievers.resolve("typed")
        runner = Runner(protocol, surface, catalogs, retriever=spec, agent=agent, built_retrievers=typed)
        for unit in Plan(fold.tasks, tuple(catalogs), tuple(SR_CONDITIONS)).units:
            record = runner.run(unit)
            task, catalog = surface.by_id[unit.task], catalogs[unit.catalog]
            timeline = Replay(record, task, catalog, protocol, counter, unit.episode_id).run()
            counts = measure(record, timeline, task.key, protocol.conditions)
            rows.append(EpisodeRow(unit.task, unit.catalog, unit.condition, counts))
    return rows
