"""A task: the prompt that conditions and agents may see, and the answer key that they may not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Role = Literal["evident", "latent", "corrective"]

_TASK_ID = r"^[a-z]+-[a-z]{2,5}-[0-9]{2}$"
_STEP_ID = r"^[a-z][a-z0-9_]{0,31}$"
_REFERENCE = r"^[a-z][a-z0-9_]{0,31}\.[a-z][a-z0-9_]{0,63}$"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class TaskPrompt(_Frozen):
    """The part of a task that conditions and agents may see."""

    id: str = Field(pattern=_TASK_ID)
    language: str = Field(min_length=1)
    query: str = Field(min_length=1)


class ArgumentRule(_Frozen):
    """What a required argument must be: a literal of the query, a value observed earlier, or that value's unit.

    Exactly one of `literal`, `observed` (``step.field``) and `unit_of` (``step.field``) is given. `said` quotes the words
    of the query that state the literal; without it, the literal itself stands in the query. `also` lists other right
    spellings of the literal.
    """

    literal: Any = None
    said: str | None = None
    also: tuple[Any, ...] = Field(default=(), strict=False)
    observed: str | None = Field(default=None, pattern=_REFERENCE)
    unit_of: str | None = Field(default=None, pattern=_REFERENCE)

    @model_validator(mode="after")
    def _exactly_one_source(self) -> Self:
        given = [n for n in ("literal", "observed", "unit_of") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of literal, observed and unit_of is allowed, got {given or 'none'}")
        if (self.said is not None or self.also) and self.literal is None:
            raise ValueError("'said' and 'also' belong to a literal alone")
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
    the step evident or leaves it latent, or whether it is corrective: part of what takes a fault away. `after` names steps
    that have to come first because the words of the query, quoted by `because`, say so, and not because of data.
    """

    id: str = Field(pattern=_STEP_ID)
    route: str
    role: Role
    arguments: dict[str, ArgumentRule]
    outputs: dict[str, Any] = Field(default_factory=dict)
    after: tuple[str, ...] = Field(default=(), strict=False)
    because: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _order_has_a_reason(self) -> Self:
        if bool(self.after) != (self.because is not None):
            raise ValueError(f"step {self.id!r}: 'after' and 'because' go together")
        return self

    @property
    def sources(self) -> frozenset[str]:
        """Ids of the steps whose answers its arguments are taken from."""
        return frozenset(rule.reference[0] for rule in self.arguments.values() if rule.reference)


class Fault(_Frozen):
    """A scheduled failure of a step: `times` failures that pass on retry, or one that its corrective action takes away.

    `cured_by` names the steps of the corrective action. `consent` quotes the words of the request that allow a corrective
    action which overrides a control.
    """

    step: str
    error: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}: .+$")
    cured_by: tuple[str, ...] = Field(default=(), strict=False)
    times: int = Field(default=1, ge=1, le=2)
    consent: str | None = Field(default=None, min_length=1)

    @property
    def error_class(self) -> str:
        """The error text before its first colon."""
        return self.error.partition(":")[0]


class TaskKey(_Frozen):
    """The answer key: read by the environment, the measures and ORACLE alone.

    A plan is a partial order: the order in which `steps` are written decides nothing.
    """

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
            unknown = [source for source in step.after if source not in order]
            if unknown:
                raise ValueError(f"step {step.id!r} comes after unknown steps {unknown}")
        for fault in self.faults:
            missing = [s for s in (fault.step, *fault.cured_by) if s not in order]
            if missing:
                raise ValueError(f"fault on {fault.step!r} refers to unknown steps {missing}")
        met = [(fault.step, fault.error) for fault in self.faults]
        if len(set(met)) < len(met):
            raise ValueError("two faults of one step with one error; nobody could tell which of them has shown")
        named = {s for fault in self.faults for s in fault.cured_by}
        labelled = {step.id for step in self.steps if step.role == "corrective"}
        if named != labelled:
            raise ValueError(
                f"steps of role corrective are {sorted(labelled)}, but cured_by of the faults names {sorted(named)}"
            )
        return self

    @model_validator(mode="after")
    def _no_step_waits_for_itself(self) -> Self:
        try:
            TopologicalSorter(self.waits_for).prepare()
        except CycleError as error:
            raise ValueError(f"steps that wait for each other: {' needs '.join(reversed(error.args[1]))}") from None
        return self

    @cached_property
    def waits_for(self) -> dict[str, frozenset[str]]:
        """By step, all that it can depend on: sources of its arguments, steps it comes after, cures of its faults."""
        cures: dict[str, set[str]] = {step.id: set() for step in self.steps}
        for fault in self.faults:
            cures[fault.step] |= {*fault.cured_by}
        return {step.id: step.sources | {*step.after} | cures[step.id] for step in self.steps}

    def comes_before(self, step_id: str, other: str) -> bool:
        """Whether `other` can depend on `step_id`, directly or through other steps."""
        direct = self.waits_for[other]
        return step_id in direct or any(self.comes_before(step_id, item) for item in direct)

    @cached_property
    def steps_by_id(self) -> dict[str, Step]:
        """Steps by their id."""
        return {step.id: step for step in self.steps}

    @cached_property
    def required_routes(self) -> tuple[str, ...]:
        """Required routes, each once, sorted."""
        return tuple(sorted({step.route for step in self.steps}))

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


Family = Annotated[tuple[Annotated[str, Field(pattern=_TASK_ID)], ...], Field(strict=False)]


class FamilyFile(_Frozen):
    """The families of tasks that tell one plot, over all surfaces; a task that is not listed is alone."""

    families: tuple[Family, ...] = Field(strict=False)

    @model_validator(mode="after")
    def _of_two_at_least(self) -> Self:
        small = [list(group) for group in self.families if len(group) < 2]
        if small:
            raise ValueError(f"families of one task: {small}; a task alone is not listed")
        return self


def chain(key: TaskKey) -> Sequence[str]:
    """The routes of the plan, sources first and else by route: the route chain by which plans are compared."""
    sorter, routes = TopologicalSorter(key.waits_for), list[str]()
    sorter.prepare()
    while sorter.is_active():
        ready = sorter.get_ready()
        routes += sorted(key.steps_by_id[step].route for step in ready)
        sorter.done(*ready)
    return routes
