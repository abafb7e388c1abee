"""How much the order in which a key is written counts: two agents, each measured by ready sets and strictly, on development.

``python -m benchmarks.order`` prints, for the state-aware condition and the progressive one, the figures of the 2 x 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import get_args

from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from gates.episode_table import EpisodeRow, GridSums
from gates.measures import BY_NAME, measure
from gates.replay import Replay
from preregistration.names import PROGRESSIVE, STATE_AWARE
from preregistration.protocol import load_protocol
from schemarouter.agents import registry as agents
from schemarouter.agents.base import Order
from schemarouter.records import EpisodeRecord
from schemarouter.retrieval import registry as retrievers
from schemarouter.tokens import TokenCounter
from surface.loader import load_catalogs, load_surface

SHOWN = ("task_pass", "next_required_recall", "initial_miss_recovery", "cure_recall")
ORDERS: tuple[Order, ...] = get_args(Order)


def records(order: Order, surface: str, retriever: str) -> Iterator[EpisodeRecord]:
    """Every episode of both conditions under the agent that keeps to `order`."""
    protocol, tasks = load_protocol(surface), load_surface(surface)
    runner = Runner(
        protocol,
        tasks,
        load_catalogs(protocol.catalogs),
        retriever=retrievers.resolve(retriever),
        agent=agents.resolve(f"reference(order={order})"),
    )
    for unit in make_plan(protocol, tasks, conditions=[STATE_AWARE, PROGRESSIVE]).units:
        yield runner.run(unit)


def figures(surface: str, retriever: str) -> Iterator[tuple[Order, Order, str, str, int, int]]:
    """Agent, measure, condition, name of the figure, numerator and denominator."""
    protocol, tasks, counter = load_protocol(surface), load_surface(surface), TokenCounter()
    catalogs = load_catalogs(protocol.catalogs)
    for agent in ORDERS:
        made = list(records(agent, surface, retriever))
        for order in ORDERS:
            rows = []
            for record in made:
                task, catalog = tasks.by_id[record.task], catalogs[record.catalog]
                timeline = Replay(record, task, catalog, protocol, counter, record.episode_id, order=order).run()
                counts = measure(record, timeline, task.key, protocol.conditions)
                rows.append(EpisodeRow(record.task, record.catalog, record.condition, counts))
            sums = GridSums(rows, sorted({row.task for row in rows}))
            for condition in (STATE_AWARE, PROGRESSIVE):
                for name in SHOWN:
                    yield agent, order, condition, name, *sums.by_task(condition).ratio(BY_NAME[name])


def main(arguments: Sequence[str]) -> None:
    """Print the figures; arguments are the surface (development) and the retriever (the protocol's)."""
    surface = arguments[0] if arguments else "development"
    retriever = arguments[1] if len(arguments) > 1 else load_protocol(surface).retriever
    for agent, order, condition, name, above, below in figures(surface, retriever):
        value = f"{100 * above / below:.1f} %" if below else "undefined"
        sys.stdout.write(f"agent {agent:8} measure {order:8} {condition:22} {name:22} {value:>9} ({above}/{below})\n")


if __name__ == "__main__":
    main(sys.argv[1:])
