"""A task: the prompt that conditions and agents may see, and the answer key that they may not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Role = Literal["evident", "latent", "corrective"]

_STEP_ID = r"^[a-z][a-z0-9_]{0,31}$"
_REFERENCE = r"^[a-z][a-z0-9_]{0,31}\.[a-z][a-z0-9_]{0,63}$"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class TaskPrompt(_Frozen):
    """The part of a task that conditions and agents may see."""

    id: str = Field(pattern=r"^[a-z]+-[a-z]{2,5}-[0-9]{2}$")
    language: str = Field(min_length=1)
    query: str = Field(min_length=1)


class ArgumentRule(_Frozen):
    """What a required argument must be: a literal of the query, a value observed earlier, or that value's unit.

    Exactly one of `literal`, `observed` (``step.field``) and `unit_of` (``step.field``) is given. `said` quotes the words
    of the query that state the literal; without it, the literal itself stands in the query.
    """

    literal: Any = None
    said: str | None = None
    observed: str | None = Field(default=None, pattern=_REFERENCE)
    unit_of: str | None = Field(default=None, pattern=_REFERENCE)

    @model_validator(mode="after")
    def _exactly_one_source(self) -> Self:
        given = [n for n in ("literal", "observed", "unit_of") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of literal, observed and unit_of is allowed, got {given or 'none'}")
        if self.said is not None and self.literal is None:
            raise ValueError("'said' belongs to a literal alone")
        return self

    @property
    def reference(self) -> tuple[str, str] | None:
        """The (step, field) that the value comes from, if it does not come from the query."""
        source = self.observed or self.unit_of
        if source is None:
            return None
        step, _, field = source.partition(".")
        return step, field


class Step(_Frozen):
    """One required step of a plan: a route, the rules its arguments obey, and what it answers.

    Registered outputs that `outputs` leaves out are answered with plausible values. `role` says whether the query makes
    the step evident or leaves it latent, or whether it is corrective: part of what takes a fault away.
    """

    id: str = Field(pattern=_STEP_ID)
    route: str
    role: Role
    arguments: dict[str, ArgumentRule]
    outputs: dict[str, Any] = Field(default_factory=dict)


class Fault(_Frozen):
    """A scheduled failure of a step: `times` failures that pass on retry, or one that its corrective action takes away.

    `cured_by` names the steps of the corrective action, in their order.
    """

    step: str
    error: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}: .+$")
    cured_by: tuple[str, ...] = Field(default=(), strict=False)
    times: int = Field(default=1, ge=1, le=2)

    @property
    def error_class(self) -> str:
        """The error text before its first colon."""
        return self.error.partition(":")[0]


class TaskKey(_Frozen):
    """The answer key: read by the environment, the measures and ORACLE alone."""

    steps: tuple[Step, ...] = Field(min_length=1, strict=False)
    faults: tuple[Fault, ...] = Field(default=(), strict=False)
    authorised: tuple[str, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _references_exist(self) -> Self:
        order = [step.id for step in self.steps]
        if len(set(order)) != len(order):
            raise ValueError(f"step ids are not unique: {order}")
        for step in self.steps:
            for name, rule in step.arguments.items():
                if rule.reference and rule.reference[0] not in order:
                    raise ValueError(
                        f"step {step.id!r}, argument {name!r} refers to unknown step {rule.reference[0]!r}"
                    )
        for fault in self.faults:
            missing = [s for s in (fault.step, *fault.cured_by) if s not in order]
            if missing:
                raise ValueError(f"fault on {fault.step!r} refers to unknown steps {missing}")
        named = {s for fault in self.faults for s in fault.cured_by}
        labelled = {step.id for step in self.steps if step.role == "corrective"}
        if named != labelled:
            raise ValueError(
                f"steps of role corrective are {sorted(labelled)}, but cured_by of the faults names {sorted(named)}"
            )
        return self

    @model_validator(mode="after")
    def _corrective_actions_come_to_an_end(self) -> Self:
        needed: dict[str, list[str]] = {}
        for fault in self.faults:
            needed.setdefault(fault.step, []).extend(fault.cured_by)
        try:
            TopologicalSorter(needed).prepare()
        except CycleError as error:
            raise ValueError(
                f"corrective actions that need each other: {' needs '.join(reversed(error.args[1]))}"
            ) from None
        return self

    @cached_property
    def steps_by_id(self) -> dict[str, Step]:
        """Steps by their id."""
        return {step.id: step for step in self.steps}

    @cached_property
    def required_routes(self) -> tuple[str, ...]:
        """Required routes in plan order, each once."""
        return tuple(dict.fromkeys(step.route for step in self.steps))

    @property
    def load(self) -> int:
        """Required steps plus scheduled failures."""
        return len(self.steps) + sum(1 if fault.cured_by else fault.times for fault in self.faults)


class Task(_Frozen):
    """Prompt and key side by side, as a file of a surface holds them."""

    prompt: TaskPrompt
    key: TaskKey


class CellFile(_Frozen):
    """The tasks of one cell: a stratum in a language. The protocol lists which there are."""

    stratum: str
    language: str
    tasks: tuple[Task, ...] = Field(strict=False)

    @model_validator(mode="after")
    def _one_language(self) -> Self:
        wrong = [task.prompt.id for task in self.tasks if task.prompt.language != self.language]
        if wrong:
            raise ValueError(f"tasks of another language than {self.language!r}: {', '.join(wrong)}")
        return self


def chain(key: TaskKey) -> Sequence[str]:
    """The routes of the plan in order: the route chain by which plans are compared."""
    return [step.route for step in key.steps]
