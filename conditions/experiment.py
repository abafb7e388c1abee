"""The grid of episodes and how it is run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from conditions.episode import Episode
from conditions.lock import LOCK_FILE, hold
from conditions.registry import CONDITIONS, make_condition
from conditions.store import (
    RUN_FILE,
    TIMING_FILE,
    ShardWriter,
    append_line,
    header_line,
    open_log,
    pretty_json,
    read_run,
    shard_name,
    write_whole,
)
from preregistration.lock import scoring_refusal
from preregistration.protocol import Protocol
from schemarouter.agents.base import Action, Agent, Guide, View
from schemarouter.agents.registry import build_agent, resolve
from schemarouter.catalog import Catalog
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.identity import fingerprint
from schemarouter.policy import Policy, StandardPolicy
from schemarouter.records import EpisodeRecord, episode_id
from schemarouter.retrieval.base import Ranking, Retriever
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.spec import Spec
from schemarouter.tokens import TokenCounter
from surface.environment import Environment, PlanGuide
from surface.loader import Surface, frozen_queries


@dataclass(frozen=True)
class Unit:
    """One episode of the grid."""

    task: str
    catalog: int
    condition: str

    @property
    def episode_id(self) -> str:
        """``task/catalog/condition``."""
        return episode_id(self.task, self.catalog, self.condition)


@dataclass(frozen=True)
class Plan:
    """The grid, in the fixed order in which it is enumerated: catalog, task, condition."""

    tasks: tuple[str, ...]
    catalogs: tuple[int, ...]
    conditions: tuple[str, ...]
    limit: int | None = None

    @property
    def whole(self) -> int:
        """Number of episodes that the grid has without a limit."""
        return len(self.tasks) * len(self.catalogs) * len(self.conditions)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every episode of the grid."""
        units = tuple(Unit(t, c, n) for c in self.catalogs for t in self.tasks for n in self.conditions)
        return units[: self.limit]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the ids of the grid in their order."""
        return fingerprint([unit.episode_id for unit in self.units])

    def as_json(self) -> dict[str, Any]:
        """The plan as a header holds it."""
        return {
            "tasks": list(self.tasks),
            "catalogs": list(self.catalogs),
            "conditions": list(self.conditions),
            "limit": self.limit,
            "episodes": len(self.units),
            "fingerprint": self.fingerprint,
        }


def make_plan(
    protocol: Protocol,
    surface: Surface,
    *,
    tasks: Sequence[str] = (),
    catalogs: Sequence[int] = (),
    conditions: Sequence[str] = (),
    limit: int | None = None,
) -> Plan:
    """The whole grid of a protocol, or the part asked for; a limit that cuts nothing off is none.

    Raises UsageError for names that are not in the grid.
    """
    known = [task.prompt.id for task in surface.tasks]
    for kind, given, allowed in (
        ("task", tasks, known),
        ("catalog", [str(c) for c in catalogs], [str(c) for c in protocol.catalogs]),
        ("condition", conditions, [*protocol.conditions.names]),
    ):
        for name in given:
            if name not in allowed:
                raise UsageError(unknown(kind, name, allowed, at_most=10))
    if limit is not None and limit < 1:
        raise UsageError(f"--limit is a whole number from 1, got {limit}.")
    plan = Plan(
        tuple(t for t in known if not tasks or t in tasks),
        tuple(sorted(c for c in protocol.catalogs if not catalogs or c in catalogs)),
        tuple(n for n in protocol.conditions.names if not conditions or n in conditions),
    )
    return replace(plan, limit=limit) if limit is not None and limit < plan.whole else plan


class _StoredPlan(BaseModel):
    """A plan as `Plan.as_json` writes it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    tasks: list[str]
    catalogs: list[int]
    conditions: list[str]
    limit: int | None
    episodes: int
    fingerprint: str


def plan_from_json(value: Mapping[str, Any], place: str) -> Plan:
    """The plan that a header holds. Raises InvalidRunError when it does not add up."""
    try:
        told = _StoredPlan.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InvalidRunError(f"{place}: no plan ({at}: {first['msg']}).") from None
    plan = Plan(tuple(told.tasks), tuple(told.catalogs), tuple(told.conditions), told.limit)
    for part in (plan.tasks, plan.catalogs, plan.conditions):
        twice = [str(name) for name, count in Counter(part).items() if count > 1]
        if twice:
            raise InvalidRunError(f"{place}: the plan lists {', '.join(twice[:3])} twice.")
    if plan.limit is not None and not 1 <= plan.limit < plan.whole:
        raise InvalidRunError(f"{place}: the plan has the limit {plan.limit} where the grid has {plan.whole} episodes.")
    stated, actual = (told.episodes, told.fingerprint), (len(plan.units), plan.fingerprint)
    if stated != actual or not set(plan.conditions) <= set(CONDITIONS):
        raise InvalidRunError(
            f"{place}: the plan contradicts itself (its fingerprint is {actual[1]}, it says {stated[1]})."
        )
    return plan


class OpeningRankings:
    """A retriever that remembers its rankings: the arms of a task open with one and the same."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._known: dict[tuple[str, int], Ranking] = {}

    def rank(self, query: str, *, k: int) -> Ranking:
        """The ranking of the wrapped retriever."""
        known = self._known.get((query, k))
        if known is None:
            known = self._retriever.rank(query, k=k)
            self._known[(query, k)] = known
        return known


# Ranks by nothing that is locked; wall times of the grid are taken with it, and no record is kept.
TIMING_RETRIEVER = "random(seed=1)"
AgentFactory = Callable[[Guide], Agent]


class MadeWhenAsked:
    """An agent that is made at its first turn, so that code which fails in the making fails inside the episode."""

    def __init__(self, make: AgentFactory, guide: Guide) -> None:
        self._make = make
        self._guide = guide
        self._agent: Agent | None = None

    def act(self, view: View) -> Action:
        """The action of the agent."""
        if self._agent is None:
            self._agent = self._make(self._guide)
        return self._agent.act(view)


class Runner:
    """Runs units of a grid: builds what they need once and shares it.

    `agent_factory` and `policy` are those of the experiment unless a test hands in hostile ones.
    """

    def __init__(
        self,
        protocol: Protocol,
        surface: Surface,
        catalogs: Mapping[int, Catalog],
        *,
        retriever: Spec,
        agent: Spec,
        agent_factory: AgentFactory | None = None,
        policy: Policy | None = None,
        retrievers: Mapping[int, Retriever] | None = None,
    ) -> None:
        self._protocol = protocol
        self._surface = surface
        self._catalogs = catalogs
        self._retriever_spec = retriever
        # An unknown agent is told here and once, and not as the failure of every episode.
        self._agent_factory = agent_factory or partial(build_agent, resolve(agent))
        self._policy = policy or StandardPolicy()
        self._retrievers: dict[int, Retriever] = dict(retrievers or {})
        self._scorable: set[tuple[str, str]] = set()
        self._timing = str(retriever) == TIMING_RETRIEVER and retrievers is None
        self._counter = TokenCounter()

    def retriever(self, size: int) -> Retriever:
        """The retriever over the catalog of that size, built at first use."""
        if size not in self._retrievers:
            self._retrievers[size] = OpeningRankings(build_retriever(self._retriever_spec, self._catalogs[size]))
        return self._retrievers[size]

    def _refuse_unscorable(self, unit: Unit) -> None:
        """Raise InvalidRunError for an arm that retrieves on a surface whose lock is not released."""
        asked = self._surface.prompt(unit.task).query
        arm = ("frozen" if asked in frozen_queries() else self._surface.name, unit.condition)
        if self._timing or arm in self._scorable:
            return
        reason = scoring_refusal(arm[0], (unit.condition,))
        if reason:
            raise InvalidRunError(reason)
        # What a lock allows it goes on allowing; it is not read again for every episode.
        self._scorable.add(arm)

    def run(self, unit: Unit, *, attempt: int = 1) -> EpisodeRecord:
        """Run one episode to its end."""
        self._refuse_unscorable(unit)
        prompt, key = self._surface.prompt(unit.task), self._surface.key(unit.task)
        catalog = self._catalogs[unit.catalog]
        environment = Environment(key, catalog, seed_text=prompt.id)
        condition = make_condition(
            unit.condition,
            self.retriever(unit.catalog),
            catalog,
            self._protocol.conditions,
            required_routes=key.required_routes if unit.condition == "ORACLE" else (),
        )
        return Episode(
            task_id=prompt.id,
            catalog_size=unit.catalog,
            query=prompt.query,
            authorised=key.authorised,
            catalog=catalog,
            condition=condition,
            agent=MadeWhenAsked(self._agent_factory, PlanGuide(environment.progress, catalog)),
            environment=environment,
            policy=self._policy,
            counter=self._counter,
            max_model_turns=self._protocol.episode.max_model_turns,
            attempt=attempt,
        ).run()


class InfrastructureError(InvalidRunError):
    """The machine failed under an episode; it stays on record and is run again by the same command."""


def prepare(folder: Path, run: Mapping[str, Any]) -> None:
    """Make a run directory, or go on in one of the same run. Raises InvalidRunError telling every difference."""
    if not _holds_a_run(folder):
        write_whole(folder / RUN_FILE, pretty_json(run))
        return
    stored = read_run(folder)
    differences = [
        f"{part}.{name}: {stored[part].get(name)!r} there, {run[part].get(name)!r} now"
        for part in ("identities", "plan", "provenance")
        for name in sorted(set(stored[part]) | set(run[part]))
        if name != "argv" and stored[part].get(name) != run[part].get(name)
    ]
    if stored["stamp"] != run["stamp"]:
        differences.append(f"stamp: {stored['stamp']!r} there, {run['stamp']!r} now")
    if differences:
        raise InvalidRunError(
            f"{folder} holds another run; use another --out. What differs:\n  " + "\n  ".join(differences)
        )


def _holds_a_run(folder: Path) -> bool:
    """Whether there is a run to go on with. Raises InvalidRunError for a place where no run can be."""
    try:
        if (folder / RUN_FILE).exists():
            return True
        # A lock, and a header on its way in, are of another run that has just begun or was killed.
        names = {item.name for item in folder.iterdir()} - {LOCK_FILE} if folder.exists() else set()
        if any(not name.startswith(f".{RUN_FILE}.") for name in names):
            raise InvalidRunError(
                f"{folder} holds other files and no {RUN_FILE}; choose an empty or new folder for --out."
            )
    except OSError as error:
        raise InvalidRunError(f"{folder}: cannot be a run directory ({error.strerror}).") from None
    return False


def execute(folder: Path, run: Mapping[str, Any], plan: Plan, runner: Runner, progress: Callable[[int], None]) -> None:
    """Run every unit that is not finished yet, appending records; `progress` is told the number finished so far.

    Raises InfrastructureError when the machine failed under an episode, after putting that on record, and InvalidRunError
    when another process is at work in the folder.
    """
    _holds_a_run(folder)  # Nothing, not even a lock, is put among somebody's other files.
    with hold(folder):
        prepare(folder, run)
        _run_unfinished(folder, run, plan, runner, progress)


def _run_unfinished(
    folder: Path, run: Mapping[str, Any], plan: Plan, runner: Runner, progress: Callable[[int], None]
) -> None:
    header = header_line(run["identities"], run["plan"], 1, 1)
    with ShardWriter(folder / shard_name(1, 1), header) as writer, open_log(folder / TIMING_FILE) as timing:
        progress(len(writer.finished))
        for unit in plan.units:
            if unit.episode_id in writer.finished:
                continue
            start = time.perf_counter_ns()
            record = runner.run(unit, attempt=writer.attempts.get(unit.episode_id, 0) + 1)
            wall_ms = (time.perf_counter_ns() - start) / 1e6
            writer.append(record)
            line = {"episode": unit.episode_id, "attempt": record.attempt, "wall_ms": round(wall_ms, 3)}
            append_line(timing, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            if record.infrastructure:
                raise InfrastructureError(
                    f"{unit.episode_id}: the machine failed ({record.events[-1].detail}); it is on record, "  # type: ignore[union-attr]
                    "nothing is lost, and the same command runs this episode again."
                )
            progress(len(writer.finished))
