"""The deterministic environment of a task: progress of the plan, scheduled faults, plausible answers to all else."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemarouter.agents.base import NextCall, Order, SeenValue
from schemarouter.caches import Bounded
from schemarouter.canonical import canonical_json
from schemarouter.catalog import Capability, Catalog, Contract, json_type
from schemarouter.state import Call, Observation
from surface.task import ArgumentRule, Fault, Step, TaskKey

# A converted quantity may be rounded: a language model that writes 12.35 for 12.346 has understood it.
RELATIVE_TOLERANCE = 1e-3
_DIGIT = re.compile(r"[0-9]")


class Progress:
    """How far a plan has come: which steps are complete, which are ready, and which faults have shown.

    An incomplete step is ready when the sources of its arguments, the steps that it comes after and the cures of its own
    faults that have shown are complete. A corrective step is ready only once a fault that it cures has shown.
    """

    __slots__ = ("_catalog", "_failures", "complete", "key", "order_violations", "shown", "values")

    def __init__(self, key: TaskKey, catalog: Catalog) -> None:
        self.key = key
        self._catalog = catalog
        self.complete: list[str] = []
        self.shown: set[int] = set()
        self.values: dict[tuple[str, str], Any] = {}
        self.order_violations = 0
        self._failures: dict[int, int] = {}

    @property
    def incomplete(self) -> bool:
        """Whether a required step is still to be done."""
        return len(self.complete) < len(self.key.steps)

    def ready_steps(self, order: Order = "ready") -> tuple[Step, ...]:
        """The ready steps, by id; with order ``written`` the first of them alone in the order in which the key is written."""
        if order == "written":
            step = self._next_as_written()
            return () if step is None else (step,)
        return tuple(sorted((step for step in self.key.steps if self._is_ready(step)), key=lambda step: step.id))

    def _is_ready(self, step: Step) -> bool:
        if step.id in self.complete or (step.role == "corrective" and not self._has_shown(step.id)):
            return False
        return step.sources.union(step.after, self._open_cures(step.id)) <= {*self.complete}

    def _open_cures(self, step_id: str) -> list[str]:
        """The steps of the corrective actions for those faults of a step that have shown."""
        faults = (self.key.faults[index] for index in self.shown)
        return [cure for fault in faults if fault.step == step_id for cure in fault.cured_by]

    def _next_as_written(self) -> Step | None:
        for step in self.key.steps:
            if step.id in self.complete or (step.role == "corrective" and not self._has_shown(step.id)):
                continue
            return self._corrective_or(step) if self.shown else step
        return None

    def _has_shown(self, step_id: str) -> bool:
        return any(step_id in self.key.faults[index].cured_by for index in self.shown)

    def _corrective_or(self, step: Step) -> Step:
        """The first incomplete step that a shown fault of `step` needs, or `step` itself."""
        cure = next((cure for cure in self._open_cures(step.id) if cure not in self.complete), None)
        return step if cure is None else self._corrective_or(self.key.steps_by_id[cure])

    def expected(self, step: Step, name: str) -> Any:
        """The value that the rule of an argument asks for, or None while it has not been observed."""
        return self._resolve(step.arguments[name])

    def _resolve(self, rule: ArgumentRule) -> Any:
        reference = rule.reference
        if reference is None:
            return rule.literal
        if reference[0] not in self.complete:
            return None
        if rule.observed is not None:
            return self.values[reference]
        contract = self._catalog[self.key.steps_by_id[reference[0]].route].outputs_by_name[reference[1]]
        return contract.unit

    def broken_rules(self, step: Step, arguments: Mapping[str, Any]) -> list[str]:
        """Names of the arguments that do not obey the step's rules, sorted; arguments without a rule are free."""
        return [
            name
            for name, rule in sorted(step.arguments.items())
            if name not in arguments or not self._obeys(arguments[name], rule)
        ]

    def _obeys(self, given: Any, rule: ArgumentRule) -> bool:
        expected = self._resolve(rule)
        return expected is not None and any(same_value(given, value) for value in (expected, *rule.also))

    def due_fault(self, step: Step) -> tuple[int, Fault] | None:
        """The fault that a valid call of `step` meets now, or None."""
        for index, fault in sorted(enumerate(self.key.faults), key=lambda item: item[1].error):
            if fault.step != step.id:
                continue
            if fault.cured_by:
                if any(step_id not in self.complete for step_id in fault.cured_by):
                    return index, fault
            elif self._failures.get(index, 0) < fault.times:
                return index, fault
        return None

    def fail(self, index: int) -> None:
        """Note that a fault has shown once more."""
        self.shown.add(index)
        self._failures[index] = self._failures.get(index, 0) + 1

    def finish(self, step: Step, payload: Mapping[str, Any]) -> None:
        """Note that a step is complete and what it returned."""
        self.complete.append(step.id)
        for name, value in payload.items():
            self.values[(step.id, name)] = value


class Environment:
    """Answers calls of one task, the same way every time.

    It is given registered routes with schema-valid arguments only: the policy decides before whether a call may run.
    """

    def __init__(self, key: TaskKey, catalog: Catalog, *, seed_text: str) -> None:
        self._catalog = catalog
        self._seed = seed_text
        self.progress = Progress(key, catalog)

    def execute(self, call: Call) -> Observation:
        """Run a call and return what is observed of it."""
        capability = self._catalog[call.route_id]
        steps = [step for step in self.progress.key.steps if step.route == call.route_id]
        if not steps:
            return Observation("ran", plausible_outputs(capability, self._seed, call.arguments))
        ready, complete = self.progress.ready_steps(), self.progress.complete
        # A ready step comes before one that is not, and both before one that the same call completed earlier.
        steps.sort(key=lambda step: (step.id in complete, step not in ready, step.id))
        pending = [step for step in steps if step.id not in complete]
        obeyed = next((step for step in steps if not self.progress.broken_rules(step, call.arguments)), None)
        if obeyed is not None and obeyed.id in self.progress.complete:
            return Observation("ran", self._outputs(obeyed, capability))
        if obeyed is not None:
            return self._advance(obeyed, capability)
        if pending:
            return _refusal(pending[0], capability, self.progress.broken_rules(pending[0], call.arguments))
        return Observation("ran", plausible_outputs(capability, self._seed, call.arguments))

    def _advance(self, step: Step, capability: Capability) -> Observation:
        self.progress.order_violations += not {*step.after} <= {*self.progress.complete}
        due = self.progress.due_fault(step)
        if due is not None:
            self.progress.fail(due[0])
            return _failure(due[1].error)
        payload = self._outputs(step, capability)
        self.progress.finish(step, payload)
        return Observation("ran", payload)

    def _outputs(self, step: Step, capability: Capability) -> dict[str, Any]:
        filled = plausible_outputs(capability, self._seed, {"step": step.id})
        return {name: step.outputs.get(name, value) for name, value in filled.items()}


def _failure(error: str) -> Observation:
    return Observation("error", {"status": "error", "error": error})


def _refusal(step: Step, capability: Capability, broken: Sequence[str]) -> Observation:
    """Why a planned route refused its arguments: a wrong identifier, a wrong quantity, or another wrong value."""
    contract = capability.parameters_by_name.get(broken[0])
    if contract is not None and contract.is_identifier:
        return _failure(f"identifier_mismatch: {broken[0]} is not the one this request is about")
    if contract is not None and contract.dimension is not None:
        return _failure(f"quantity_mismatch: {broken[0]} is not the quantity or unit expected here")
    return _failure(f"argument_rejected: {broken[0]} does not match")


def same_value(given: Any, expected: Any) -> bool:
    """Whether an argument equals what a rule expects: equal JSON types and values.

    An integer is a number; where one of the two is no integer, numbers are equal within `RELATIVE_TOLERANCE`.
    """
    kinds = {json_type(given), json_type(expected)}
    if "number" in kinds and kinds <= {"integer", "number"}:
        return math.isclose(given, expected, rel_tol=RELATIVE_TOLERANCE)
    # To Python true and 1 are equal, also inside an array.
    return len(kinds) == 1 and given == expected and canonical_json(given) == canonical_json(expected)


# Answers by the capability's identity, which an entry keeps alive, and by all else that decides them: a step answers the same
# in every condition, and again when its record is replayed.
_ANSWERS: Final = Bounded[tuple[int, bytes], tuple[Capability, dict[str, Any]]](8192)


def plausible_outputs(capability: Capability, seed_text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values for every registered output, a pure function of task, route and arguments."""
    salt = canonical_json([seed_text, capability.route_id, dict(arguments)])
    known = _ANSWERS.get((id(capability), salt))
    if known is not None:
        return known[1].copy()
    values = {
        item.name: _plausible(item, hashlib.sha256(salt + item.name.encode()).digest()) for item in capability.outputs
    }
    # A list or an object could be changed by whoever gets it.
    if not any(isinstance(value, list | dict) for value in values.values()):
        _ANSWERS[id(capability), salt] = capability, values.copy()
    return values


def _plausible(contract: Contract, noise: bytes) -> Any:
    """A value near the contract's example: other digits for identifiers, up to 20 % more or less for numbers."""
    example = contract.example
    if contract.enum:
        return contract.enum[noise[0] % len(contract.enum)]
    if contract.type == "string":
        text = str(example) if example is not None else "value"
        return _other_digits(text, noise) if contract.is_identifier else text
    if contract.type == "integer":
        return max(0, round((example or 10) * (0.8 + 0.4 * noise[0] / 255)))
    if contract.type == "number":
        return round(float(example if example is not None else 10.0) * (0.8 + 0.4 * noise[0] / 255), 3)
    if contract.type == "boolean":
        return bool(noise[0] & 1)
    return example if example is not None else {"array": [], "object": {}, "null": None}[contract.type]


def _other_digits(text: str, noise: bytes) -> str:
    """The identifier with every digit replaced; one without digits gets a hexadecimal tail."""
    stream = iter(noise * (len(text) // len(noise) + 1))
    changed = _DIGIT.sub(lambda _: str(next(stream) % 10), text)
    return changed if changed != text else f"{text}-{noise.hex()[:6]}"


class PlanGuide:
    """The plan as the one agent that measures retrieval may see it."""

    def __init__(self, progress: Progress, catalog: Catalog) -> None:
        self._progress = progress
        self._catalog = catalog

    def next_calls(self, order: Order = "ready") -> Sequence[NextCall]:
        """The calls that complete the ready steps; none when the task is complete, or nothing is ready."""
        return [
            NextCall(
                step.id,
                Call(step.route, {name: self._progress.expected(step, name) for name in step.arguments}),
                corrective=step.role == "corrective",
            )
            for step in self._progress.ready_steps(order)
        ]

    def literals(self) -> Sequence[SeenValue]:
        """The values the query states, with the contracts of the parameters they are for, by route, parameter and value."""
        rules = sorted(
            (step.route, name, canonical_json(rule.literal), step.id, rule.literal)
            for step in self._progress.key.steps
            for name, rule in step.arguments.items()
            if rule.literal is not None
        )
        return [
            SeenValue(literal, self._catalog[route].parameters_by_name[name]) for route, name, _, _, literal in rules
        ]
