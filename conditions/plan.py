"""The grid of episodes: which there are, in which order, and the hash of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from conditions.registry import CONDITIONS
from preregistration.protocol import Protocol
from schemarouter.errors import InvalidRunError, UsageError, unknown
from schemarouter.identity import fingerprint
from schemarouter.records import episode_id
from surface.loader import Surface


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
