"""An experiment small enough to check by hand: twelve or thirty-six endpoints, four tasks, retrievers with fixed rankings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from conditions.registry import make_condition
from conditions.running.engines.base import InProcess
from conditions.running.episode import Episode
from conditions.running.execute import execute
from conditions.running.plan import WHOLE, Plan, Shard, make_plan
from conditions.running.runner import Runner
from conditions.storage.run_directory import (
    RUN_SCHEMA_VERSION,
    Identities,
    Provenance,
    RunHeader,
    RunLimits,
    read_header,
)
from conditions.storage.shards import ShardLine, ShardWriter, header_line, read_shard, shard_name
from gates.aggregate import CompleteRun
from gates.episode_table import EpisodeRow, EpisodeTable
from gates.exploratory import stamp
from gates.identities import ReferenceData
from preregistration.protocol import ConditionRules, Protocol, load_protocol
from schemarouter.agents.base import Action, Agent, AgentView, Guide
from schemarouter.agents.reference import Reference
from schemarouter.catalog import Capability, Catalog
from schemarouter.policy import Decision, Facts, Policy, StandardPolicy
from schemarouter.records import EpisodeRecord, Event
from schemarouter.retrieval.base import Ranking, Retriever
from schemarouter.retrieval.spec import Spec, parse
from schemarouter.state import Call
from schemarouter.tokens import TokenCounter
from surface.environment import Environment
from surface.loader import Surface
from surface.task import Task

Model = TypeVar("Model", bound=BaseModel)
SMALL, LARGE = 12, 36
SR = ("SR-5-STATIC", "SR-PROGRESSIVE-STATIC", "SR-5-STATE-AWARE")
RULES = ConditionRules(names=SR, top_k=5, progressive_stages=(5, 10, 20), refresh_budget=5)
COUNTER = TokenCounter()

_ID = {"type": "string", "semantic_id": "order.id", "example": "ord-104"}
_NAME = {"name": "order_name", "type": "string", "semantic_id": "order.name", "example": "blue lamp"}
_SHIPMENT = {"name": "shipment_id", "type": "string", "semantic_id": "shipment.id", "example": "shp-7"}
_MASS = {
    "name": "mass",
    "type": "number",
    "semantic_id": "load.mass",
    "unit": "kg",
    "dimension": "mass",
    "example": 4.0,
}
_NOTE = {"name": "note", "type": "string", "example": "handle with care"}
_COUNT = {"name": "match_count", "type": "integer", "example": 3}
_ORDER = {"name": "order_id", **_ID}


def capability(
    route: str, effect: str, takes: Sequence[Mapping[str, Any]], gives: Sequence[Mapping[str, Any]]
) -> Capability:
    """A capability whose parameters are all required unless they say otherwise."""
    provider, _, operation = route.partition(".")
    return Capability.model_validate(
        {
            "provider": provider,
            "operation": operation,
            "description": f"{operation} of {provider}",
            "effect": effect,
            "tier": SMALL,
            "parameters": [{"required": True, **item} for item in takes],
            "outputs": [dict(item) for item in gives],
        }
    )


def _core() -> list[Capability]:
    carrier = {"name": "carrier", "type": "string", "enum": ["road", "rail"], "required": False}
    load = {**_MASS, "name": "load"}
    unit = {"name": "load_unit", "type": "string", "enum": ["kg", "t"]}
    return [
        capability("shop.find_order", "read", [_NAME], [_ORDER, _NOTE, _COUNT]),
        capability(
            "shop.ship_order", "write", [_ORDER, carrier], [_SHIPMENT, _MASS, {"name": "fast", "type": "boolean"}]
        ),
        capability("shop.cancel_order", "destructive", [_ORDER], [{"name": "refund_id", "type": "string"}]),
        capability("lease.renew", "write", [_ORDER], [{"name": "lease_id", "type": "string", "example": "L"}]),
        capability(
            "crane.lift", "write", [_SHIPMENT, load, unit], [{"name": "lift_id", "type": "string", "example": "9"}]
        ),
        capability("aux.purge", "destructive", [], [{"name": "purged", "type": "integer", "example": 2}]),
    ]


def _distractors() -> list[Capability]:
    given: tuple[list[Mapping[str, Any]], ...] = ([_NAME], [_ORDER], [_SHIPMENT], [])
    made = []
    for number in range(LARGE - len(_core())):
        gives: list[Mapping[str, Any]] = [
            {"name": f"tag_{number:02d}_id", "type": "string", "example": f"tag-{number}"},
            _COUNT,
        ]
        item = capability(f"misc.look_{number:02d}", "write" if number % 5 == 4 else "read", given[number % 4], gives)
        made.append(item.model_copy(update={"tier": SMALL if number < SMALL - len(_core()) else LARGE}))
    return made


CATALOG = Catalog([*_core(), *_distractors()], name=str(LARGE))
CATALOGS: Mapping[int, Catalog] = {size: CATALOG.tier(size) for size in (SMALL, LARGE)}
CORE = tuple(item.route_id for item in _core())
DISTRACTORS = tuple(item.route_id for item in _distractors())

_FIND = {
    "id": "find",
    "route": "shop.find_order",
    "role": "evident",
    "arguments": {"order_name": {"literal": "Blue lamp"}},
    "outputs": {"order_id": "ord-552", "note": "fragile", "match_count": 1},
}
_SHIP = {
    "id": "ship",
    "route": "shop.ship_order",
    "role": "latent",
    "arguments": {"order_id": {"observed": "find.order_id"}},
    "outputs": {"shipment_id": "shp-31", "mass": 2.5},
}
_RENEW = {**_SHIP, "id": "renew", "route": "lease.renew", "role": "corrective", "outputs": {"lease_id": "lse-9"}}
_CANCEL = {**_SHIP, "id": "cancel", "route": "shop.cancel_order", "role": "evident", "outputs": {"refund_id": "rf-1"}}
_LIFT = {
    "id": "lift",
    "route": "crane.lift",
    "role": "evident",
    "arguments": {
        "shipment_id": {"observed": "ship.shipment_id"},
        "load": {"observed": "ship.mass"},
        "load_unit": {"unit_of": "ship.mass"},
    },
}


def make_task(number: int, steps: Sequence[Mapping[str, Any]], query: str = "Blue lamp", **key: Any) -> Task:
    """A task ``toy-en-NN`` with those steps."""
    prompt = {"id": f"toy-en-{number:02d}", "language": "en", "query": f"{query} {number}"}
    return Task.model_validate({"prompt": prompt, "key": {"steps": [dict(step) for step in steps], **key}})


EXPIRED = {"step": "ship", "error": "lease_expired: renew it first", "cured_by": ["renew"]}
BUSY = {"step": "ship", "error": "upstream_timeout: too slow", "times": 2}
CHAIN = make_task(1, [_FIND, _SHIP, _LIFT], "Send the Blue lamp and lift it.")
CURED = make_task(2, [_FIND, _RENEW, _SHIP], "Send the Blue lamp, please.", faults=[EXPIRED])
RETRIED = make_task(3, [_FIND, _SHIP], "The Blue lamp has to go.", faults=[BUSY])
DESTROYS = make_task(4, [_FIND, _CANCEL], "Cancel the Blue lamp.", authorised=["shop.cancel_order"])
TASKS = (CHAIN, CURED, RETRIED, DESTROYS)
SURFACE = Surface("development", TASKS, {task.prompt.id: f"stratum_{n % 2}" for n, task in enumerate(TASKS)})


@dataclass
class Listed:
    """Ranks a fixed list first and all other routes after it, whatever the query; counts its queries."""

    first: Sequence[str] = ()
    catalog: Catalog = CATALOG
    asked: int = 0

    def rank(self, query: str, *, k: int) -> Ranking:
        """The best `k`."""
        self.asked += 1
        return ranking_of(self.order(query), k)

    def order(self, query: str) -> list[str]:
        """All routes, best first."""
        return list(dict.fromkeys([*self.first, *self.catalog.route_ids]))


def ranking_of(routes: Sequence[str], k: int) -> Ranking:
    """A ranking of these routes with falling scores."""
    return Ranking(tuple((route, 1.0 - index / 100) for index, route in enumerate(routes[:k])))


@dataclass
class Following(Listed):
    """Ranks `first` for a bare query, and `then[n]` once n routes have been executed."""

    then: Mapping[int, Sequence[str]] | None = None

    def order(self, query: str) -> list[str]:
        """All routes, those of the number of executed routes first."""
        _, marked, state = query.partition("[EXECUTION_STATE]\n")
        executed = state.partition('"executed_registered_route_ids":[')[2].partition("]")[0]
        lead = (self.then or {}).get(len([item for item in executed.split(",") if item]), ()) if marked else self.first
        return list(dict.fromkeys([*lead, *self.catalog.route_ids]))


@dataclass
class Scripted:
    """An agent that takes its actions from a list; an exception in it is raised."""

    actions: Sequence[Any]
    step: int = 0
    views: list[AgentView] | None = None

    def act(self, view: AgentView) -> Action:
        """The next action of the script; stops at its end."""
        if self.views is not None:
            self.views.append(view)
        action = self.actions[self.step] if self.step < len(self.actions) else Action("stop", reason="end of script")
        self.step += 1
        if isinstance(action, BaseException):
            raise action
        result: Action = action
        return result


def call(route: str, **arguments: Any) -> Action:
    """The action of calling a route."""
    return Action("call", Call(route, arguments))


class Broken:
    """A policy that lets everything through."""

    def decide(self, call: Call, facts: Facts) -> Decision:
        """Allow."""
        return Decision(True)


def reference(guide: Guide) -> Agent:
    """The confirmatory agent."""
    return Reference(guide, probe=True)


def make_episode(
    condition: str = "FULL",
    task: Task = CHAIN,
    *,
    agent: Agent | Callable[[Guide], Agent] = reference,
    retriever: Retriever | None = None,
    policy: Policy | None = None,
    environment: Environment | None = None,
    size: int = LARGE,
    turns: int = 12,
) -> Episode:
    """An episode of a toy task."""
    from surface.environment import PlanGuide

    catalog = CATALOGS[size]
    world = environment or Environment(task.key, catalog, seed_text=task.prompt.id)
    made = make_condition(
        condition, retriever or Listed(catalog=catalog), catalog, RULES, required_routes=task.key.required_routes
    )
    actor: Agent = agent(PlanGuide(world.progress, catalog)) if callable(agent) else agent
    return Episode(
        task_id=task.prompt.id, catalog_size=size, query=task.prompt.query, authorised=task.key.authorised,
        catalog=catalog, condition=made, agent=actor, environment=world, policy=policy or StandardPolicy(),
        counter=COUNTER, max_model_turns=turns,
    )  # fmt: skip


def toy_protocol(iterations: int = 50) -> Protocol:
    """The development protocol over the toy catalogs."""
    protocol = load_protocol("development")
    statistics = protocol.statistics.model_copy(update={"iterations": iterations})
    return protocol.model_copy(update={"catalogs": (SMALL, LARGE), "statistics": statistics})


SPEC: Spec = parse("random")


def toy_runner(
    retriever: Callable[[Catalog], Retriever] | None = None,
    surface: Surface = SURFACE,
    *,
    agent: Callable[[Guide], Agent] | None = None,
    policy: Policy | None = None,
) -> Runner:
    """A runner of the toy grid; with no retriever the real random one over each catalog."""
    made = {size: retriever(catalog) for size, catalog in CATALOGS.items()} if retriever else None
    return Runner(
        toy_protocol(), surface, CATALOGS, retriever=SPEC, agent=parse("reference"),
        agent_factory=agent, policy=policy, built_retrievers=made,
    )  # fmt: skip


PROVENANCE = Provenance(argv=("run",), code="beef", commit="c0ffee", dirty=False, packages={}, python="3.11.0")


def run_header(protocol: Protocol, surface: Surface, plan: Plan, identities: Identities) -> RunHeader:
    """A header as a run writes it."""
    header = RunHeader(
        schema_version=RUN_SCHEMA_VERSION,
        surface="development",
        stamp="",
        identities=identities,
        plan=plan.document(),
        provenance=PROVENANCE,
        limits=RunLimits(episode_seconds=None),
        resumed=(),
    )
    return changed(header, stamp=stamp(protocol, surface, plan, header))


def changed(document: Model, **changes: Any) -> Model:
    """A document with other parts."""
    return document.model_copy(update=changes)


def identities_of(surface: Surface, catalogs: Mapping[int, Catalog]) -> Identities:
    """Identities of which those of catalogs and surface can differ in these tests."""
    same = dict.fromkeys(("protocol", "retriever_data", "state_contract", "statistics", "tokenizer"), "toy")
    return Identities(
        agent="reference(order=ready,probe=true)",
        catalog_view="full",
        catalogs={str(size): catalog.fingerprint for size, catalog in sorted(catalogs.items())},
        retriever=str(SPEC),
        surface=surface.fingerprint,
        **same,
    )


def complete_run(plan: Plan, rows: Sequence[EpisodeRow], cells: Mapping[str, str], stamp: str = "") -> CompleteRun:
    """A complete run of these rows, under a header that nothing reads."""
    header = run_header(toy_protocol(), SURFACE, plan, identities_of(SURFACE, CATALOGS))
    return CompleteRun(
        changed(header, stamp=stamp), plan, EpisodeTable.of(rows), 0, cells, {task: task for task in cells}
    )


def toy_run(folder: Path, runner: Runner | None = None, surface: Surface = SURFACE, **part: Any) -> ReferenceData:
    """Run the toy grid, or a part of it, into a folder; returns the reference data it is checked against."""
    plan = make_plan(toy_protocol(), surface, **part)
    identities = identities_of(surface, CATALOGS)
    header = run_header(toy_protocol(), surface, plan, identities)
    execute(folder, header, plan, InProcess(runner or toy_runner()), lambda done: None)
    return ReferenceData(toy_protocol(), surface, CATALOGS, lambda run: identities)


def read_records(folder: Path) -> list[EpisodeRecord]:
    """Every record of a run of one shard."""
    lines = read_shard(folder / shard_name(WHOLE))
    return [line.record for line in lines if isinstance(line, ShardLine)]


def write_records(folder: Path, records: Sequence[EpisodeRecord], **header: Any) -> None:
    """Write the shard of a run anew, with a header and a digest chain that hold."""
    run = read_header(folder)
    path = folder / shard_name(WHOLE)
    path.unlink(missing_ok=True)
    with ShardWriter(path, header_line(changed(run, **header))) as writer:
        for record in records:
            writer.append(record)


def edit_record(folder: Path, episode: str, edit: Callable[[EpisodeRecord], EpisodeRecord]) -> int:
    """Rewrite one episode of a run with a valid chain; returns the line it stands in."""
    records = read_records(folder)
    index = next(n for n, record in enumerate(records) if record.episode_id == episode)
    records[index] = edit(records[index])
    write_records(folder, records)
    return index + 2


def with_events(record: EpisodeRecord, events: Sequence[Event]) -> EpisodeRecord:
    """The record with other events."""
    return replace(record, events=tuple(events))


def position(record: EpisodeRecord, kind: type, *, last: bool = False) -> int:
    """The index of the first (or last) event of a kind."""
    found = [n for n, event in enumerate(record.events) if isinstance(event, kind)]
    return found[-1 if last else 0]


def write_shard(folder: Path, source: Path, under: Shard, of: Shard) -> None:
    """Put the records of a shard of `source` under the name and header of another one, with a digest chain that holds."""
    run = read_header(folder)
    path = folder / shard_name(under)
    path.unlink(missing_ok=True)
    lines = read_shard(source / shard_name(of))
    with ShardWriter(path, header_line(run, under)) as writer:
        for line in lines:
            if isinstance(line, ShardLine):
                writer.append(line.record)
