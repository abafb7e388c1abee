"""The grid of episodes: their order, its fingerprint, and its division into shards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import NamedTuple

from pydantic import Field

from conditions.registry import CONDITIONS
from preregistration.protocol import Protocol
from schemarouter.canonical import fingerprint
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.files import Document
from schemarouter.records import episode_id
from surface.loader import Surface

_MAX_REPEATS = 10_000
_SHARD = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")


class Unit(NamedTuple):
    """One episode of the grid."""

    task: str
    catalog: int
    condition: str
    repeat: int = 1

    @property
    def episode_id(self) -> str:
        """The name of the episode in the grid."""
        return episode_id(self.task, self.catalog, self.condition, self.repeat)


class PlanDocument(Document):
    """The grid as a run's header holds it."""

    tasks: tuple[str, ...] = Field(strict=False)
    """Ids of the tasks, in the order of the grid."""
    catalogs: tuple[int, ...] = Field(strict=False)
    """Sizes of the catalogs."""
    conditions: tuple[str, ...] = Field(strict=False)
    """Names of the conditions."""
    limit: int | None
    """How many episodes of the grid the run ends after; null for all."""
    repeats: int
    """How often the grid is run."""
    episodes: int
    """Number of episodes."""
    fingerprint: str
    """SHA-256 over the canonical JSON of the ids of the episodes in their order."""


@dataclass(frozen=True)
class Plan:
    """The grid, in the fixed order in which it is enumerated: repeat, catalog, task, condition."""

    tasks: tuple[str, ...]
    catalogs: tuple[int, ...]
    conditions: tuple[str, ...]
    limit: int | None = None
    repeats: int = 1

    @property
    def whole(self) -> int:
        """Number of episodes that the grid has without a limit."""
        return len(self.tasks) * len(self.catalogs) * len(self.conditions) * self.repeats

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every episode of the grid."""
        repeats = range(1, self.repeats + 1)
        units = product(repeats, self.catalogs, self.tasks, self.conditions)
        limited = units if self.limit is None else islice(units, max(self.limit, 0))
        return tuple([Unit(task, catalog, name, repeat) for repeat, catalog, task, name in limited])

    @cached_property
    def _orders(self) -> tuple[dict[int, int], dict[str, int], dict[str, int]]:
        """The index of each catalog, task and condition."""
        catalogs = {size: index for index, size in enumerate(self.catalogs)}
        tasks, conditions = ({name: index for index, name in enumerate(part)} for part in (self.tasks, self.conditions))
        return catalogs, tasks, conditions

    def index(self, unit: Unit) -> int | None:
        """The index of a unit in the grid, from 0; None for one that is not in it."""
        catalogs, tasks, conditions = self._orders
        catalog, task, condition = catalogs.get(unit.catalog), tasks.get(unit.task), conditions.get(unit.condition)
        if catalog is None or task is None or condition is None or not 1 <= unit.repeat <= self.repeats:
            return None
        index = (((unit.repeat - 1) * len(catalogs) + catalog) * len(tasks) + task) * len(conditions) + condition
        return index if index < len(self.units) else None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON of the list of the ids of the grid in their order."""
        return fingerprint([unit.episode_id for unit in self.units])

    def document(self) -> PlanDocument:
        """The plan as a header holds it."""
        return PlanDocument(
            tasks=self.tasks,
            catalogs=self.catalogs,
            conditions=self.conditions,
            limit=self.limit,
            repeats=self.repeats,
            episodes=len(self.units),
            fingerprint=self.fingerprint,
        )


def make_plan(
    protocol: Protocol,
    surface: Surface,
    *,
    tasks: Sequence[str] | None = None,
    catalogs: Sequence[int] | None = None,
    conditions: Sequence[str] | None = None,
    limit: int | None = None,
    repeats: int = 1,
) -> Plan:
    """Plan the grid of a protocol, or the part asked for, `repeats` times; a limit that excludes no episode is dropped.

    A registered condition that the protocol does not name is planned where it is asked for, after those of the protocol.
    Raises UsageError for names that are not there and for numbers that are out of range.
    """
    promised = protocol.conditions.names
    named = (*promised, *(name for name in CONDITIONS if name not in promised))
    known = [task.prompt.id for task in surface.tasks]
    _require_sequences(tasks=tasks, catalogs=catalogs, conditions=conditions)
    parts: tuple[tuple[str, Sequence[object] | None, Sequence[object]], ...] = (
        ("task", tasks, known),
        ("catalog", catalogs, protocol.catalogs),
        ("condition", conditions, named),
    )
    for kind, given, allowed in parts:
        for name in given or ():
            if name not in allowed:
                raise UsageError(unknown(kind, str(name), map(str, allowed), at_most=10))
    for option, number in (("--limit", limit), ("--repeat", repeats)):
        if number is not None and number < 1:
            raise UsageError(f"{option} is a whole number from 1, got {number}.")
    if repeats > _MAX_REPEATS:
        raise UsageError(f"--repeat is at most {_MAX_REPEATS:,}, got {repeats:,}.")
    plan = Plan(
        tuple(t for t in known if tasks is None or t in tasks),
        tuple(sorted(c for c in protocol.catalogs if catalogs is None or c in catalogs)),
        tuple(n for n in named if n in (promised if conditions is None else conditions)),
        repeats=repeats,
    )
    return replace(plan, limit=limit) if limit is not None and limit < plan.whole else plan


def _require_sequences(**given: Sequence[object] | None) -> None:
    """Raise UsageError for a part of the grid that is named by a single value, or is empty: left out, it is all of them."""
    for name, values in given.items():
        if values is not None and (isinstance(values, str) or not isinstance(values, Sequence)):
            raise UsageError(f"{name} is a list, got {values!r}; write {name}=[{values!r}].")
        if values is not None and not values:
            raise UsageError(f"{name} is empty, so nothing would run; leave it out for all of them.")


def plan_of(document: PlanDocument, location: str) -> Plan:
    """The plan that a header holds. Raises InvalidRunError, naming `location`, when the header contradicts itself."""
    plan = Plan(document.tasks, document.catalogs, document.conditions, document.limit, document.repeats)
    for part in (plan.tasks, plan.catalogs, plan.conditions):
        repeated = [str(name) for name, count in Counter(part).items() if count > 1]
        if repeated:
            raise InvalidRunError(f"{location}: the plan lists {', '.join(repeated[:3])} twice.")
    if not 1 <= plan.repeats <= _MAX_REPEATS:
        raise InvalidRunError(f"{location}: the plan has {plan.repeats} repeats; there are 1 to {_MAX_REPEATS}.")
    if plan.limit is not None and not 1 <= plan.limit < plan.whole:
        raise InvalidRunError(
            f"{location}: the plan has the limit {plan.limit} where the grid has {plan.whole} episodes."
        )
    for name in plan.conditions:
        if name not in CONDITIONS:
            raise InvalidRunError(
                f"{location}: {unknown('condition', name, CONDITIONS)} It must be registered here too."
            )
    stated, actual = (document.episodes, document.fingerprint), (len(plan.units), plan.fingerprint)
    if stated != actual:
        raise InvalidRunError(
            f"{location}: the plan contradicts itself (its fingerprint is {actual[1]}, it says {stated[1]})."
        )
    return plan


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a grid: every `count`-th unit in its order, from the `index`-th on; `index` starts at 1."""

    index: int
    count: int

    def units(self, plan: Plan) -> tuple[Unit, ...]:
        """The units of a plan that are in this part."""
        return plan.units[self.index - 1 :: self.count]

    @property
    def label(self) -> str:
        """The shard as file names write it."""
        return f"{self.index:05d}-of-{self.count:05d}"


WHOLE = Shard(1, 1)


def parse_shard(text: str) -> Shard:
    """Read ``K/N``. Raises UsageError for anything else."""
    found = _SHARD.fullmatch(text.strip())
    index, count = (int(part) for part in found.groups()) if found else (0, 0)
    if not 1 <= index <= count:
        raise UsageError(f"--shard is K/N with K from 1 to N, such as 2/4; got {text!r}.")
    return Shard(index, count)
