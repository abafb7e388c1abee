"""The deterministic environment of a task: progress of the plan, scheduled faults, plausible answers to all else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemarouter.agents.base import SeenValue
from schemarouter.caches import Bounded
from schemarouter.canonical import canonical_json
from schemarouter.catalog import Capability, Catalog, Contract, json_type
from schemarouter.state import Call, Observation
from surface.task import ArgumentRule, Fault, Step, TaskKey

_DIGIT = re.compile(r"[0-9]")


class Progress:
    """How far a plan has come: which steps are complete and which faults have shown.

    The next required step is the first incomplete one of the plan; where its fault has shown, the first incomplete step
    of that fault's corrective action. A corrective step whose fault has not shown is never next.
    """

    __slots__ = ("_catalog", "_failures", "complete", "key", "shown", "values")

    def __init__(self, key: TaskKey, catalog: Catalog) -> None:
        self.key = key
        self._catalog = catalog
        self.complete: list[str] = []
        self.shown: set[int] = set()
        self.values: dict[tuple[str, str], Any] = {}
        self._failures: dict[int, int] = {}

    @property
    def incomplete(self) -> bool:
        """Whether a required step is still to be done."""
        return len(self.complete) < len(self.key.steps)

    def next_step(self) -> Step | None:
        """The next required step, or None when all are complete."""
        complete = self.complete
        for step in self.key.steps:
            if step.id in complete or (step.role == "corrective" and not self._has_shown(step.id)):
                continue
            return self._corrective_or(step) if self.shown else step
        return next((step for step in self.key.steps if step.id not in complete), None)

    def _has_shown(self, step_id: str) -> bool:
        return any(step_id in self.key.faults[index].cured_by for index in self.shown)

    def _corrective_or(self, step: Step) -> Step:
        """The first incomplete step that a shown fault of `step` needs, or `step` itself."""
        for index, fault in enumerate(self.key.faults):
            if fault.step == step.id and index in self.shown:
                for step_id in fault.cured_by:
                    if step_id not in self.complete:
                        return self._corrective_or(self.key.steps_by_id[step_id])
        return step

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
        """Names of the arguments that do not obey the step's rules; arguments without a rule are free."""
        broken = []
        for name, rule in step.arguments.items():
            expected = self._resolve(rule)
            if expected is None or name not in arguments or not same_value(arguments[name], expected):
                broken.append(name)
        return broken

    def due_fault(self, step: Step) -> tuple[int, Fault] | None:
        """The fault that a valid call of `step` meets now, or None."""
        for index, fault in enumerate(self.key.faults):
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
        pending = [step for step in steps if step.id not in self.progress.complete]
        # A step still to be done comes before one that the same call completed earlier.
        ordered = [*pending, *(step for step in steps if step.id in self.progress.complete)]
        obeyed = next((s for s in ordered if not self.progress.broken_rules(s, call.arguments)), None)
        if obeyed is not None and obeyed.id in self.progress.complete:
            return Observation("ran", self._outputs(obeyed, capability))
        if obeyed is not None:
            return self._advance(obeyed, capability)
        if pending:
            return _refusal(pending[0], capability, self.progress.broken_rules(pending[0], call.arguments))
        return Observation("ran", plausible_outputs(capability, self._seed, call.arguments))

    def _advance(self, step: Step, capability: Capability) -> Observation:
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
    """Whether an argument equals what a rule expects: equal JSON types and values, an integer being a number."""
    numbers = {"integer", "number"}
    kinds = {json_type(given), json_type(expected)}
    return (kinds <= numbers or len(kinds) == 1) and bool(given == expected)


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

    def next_call(self) -> Call | None:
        """The call that completes the next required step, or None when the task is complete."""
        step = self._progress.next_step()
        if step is None:
            return None
        return Call(step.route, {name: self._progress.expected(step, name) for name in step.arguments})

    def literals(self) -> Sequence[SeenValue]:
        """The values the query states, with the contracts of the parameters they are for."""
        values = []
        for step in self._progress.key.steps:
            parameters = self._catalog[step.route].parameters_by_name
            for name, rule in step.arguments.items():
                if rule.literal is not None:
                    values.append(SeenValue(rule.literal, parameters[name]))
        return values
