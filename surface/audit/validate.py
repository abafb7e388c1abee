"""Proof that a task can be solved from what is observable, and that its prompt gives nothing away."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from preregistration.protocol import Protocol
from schemarouter.agents.reference import preferred
from schemarouter.catalog import Catalog, Contract, matches_type
from schemarouter.errors import closest
from schemarouter.state import Call
from schemarouter.state.leakage import FORBIDDEN
from surface.environment import Environment, PlanGuide
from surface.loader import Surface
from surface.task import ArgumentRule, Step, Task, TaskKey

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# An identifier or a number: Latin letters and digits with at least one digit, joined by marks. Japanese puts no space behind
# it, so other letters end it; a Korean particle, whose form depends on the sound before it, belongs to it.
_LATIN = "a-zß-öø-ɏ"
_CODE = re.compile(
    rf"(?<![{_LATIN}0-9])(?=[{_LATIN}./:_-]*[0-9])"
    rf"[{_LATIN}0-9]+(?:(?:[./:_-]+|(?<=[0-9]),(?=[0-9]))[{_LATIN}0-9]+)*[가-힣]*"
)


def folded(text: str) -> str:
    """NFKC, case folded, white space made single: for comparing words of a prompt."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def skeleton(query: str) -> str:
    """A prompt with identifiers and numbers masked: two wordings of one template have the same."""
    return _CODE.sub("#", folded(query))


def check_task(task: Task, smallest: Catalog, *, max_load: int) -> Iterator[str]:
    """Everything wrong with one task, judged on the smallest catalog of its surface.

    `max_load` is the protocol's limit of required steps and scheduled failures together.
    """
    key, query = task.key, task.prompt.query
    missing = [step.route for step in key.steps if step.route not in smallest]
    if missing:
        yield f"routes not in the smallest catalog: {', '.join(sorted(set(missing)))}"
        return
    if key.load > max_load:
        yield f"{key.load} required steps and scheduled failures; at most {max_load} are allowed"
    yield from _check_prompt(query, smallest)
    for step in key.steps:
        yield from _check_step(step, key, query, smallest)
    yield from _check_authorisations(key, smallest)
    for fault in key.faults:
        if fault.consent is not None and folded(fault.consent) not in folded(query):
            yield f"'consent' quotes {fault.consent!r}, which does not stand in the query"
    # A plan with a value that no route returns cannot be carried out; that problem is reported for its step.
    references = (
        rule.reference for step in key.steps for rule in step.arguments.values() if rule.reference is not None
    )
    if all(name in smallest[key.steps_by_id[source].route].outputs_by_name for source, name in references):
        yield from _check_execution(task, smallest, max_load)


def _check_prompt(query: str, catalog: Catalog) -> Iterator[str]:
    text = folded(query)
    compact = re.sub(r"[^a-z0-9]", "", text)
    for name in FORBIDDEN:
        if name.replace("_", "") in compact:
            yield f"the prompt holds the forbidden name {name!r}"
    for capability in catalog.capabilities:
        if "_" in capability.operation and (capability.route_id in text or capability.operation in text):
            yield f"the prompt names the route {capability.route_id!r}"


def _check_step(step: Step, key: TaskKey, query: str, catalog: Catalog) -> Iterator[str]:
    capability = catalog[step.route]
    label = f"step {step.id!r} ({step.route})"
    for parameter in capability.required_parameters:
        if parameter.name not in step.arguments:
            yield f"{label}: required argument {parameter.name!r} has no rule"
    for name, rule in step.arguments.items():
        contract = capability.parameters_by_name.get(name)
        if contract is None:
            yield f"{label}: rule for {name!r}, which is no parameter of the route"
            continue
        if rule.reference is None:
            yield from (f"{label}, {name}: {text}" for text in _check_literal(rule, contract, query))
        else:
            yield from (f"{label}, {name}: {text}" for text in _check_reference(rule, contract, step, key, catalog))
    yield from (f"{label}: {text}" for text in _check_order(step, key, query))
    for name, value in step.outputs.items():
        output = capability.outputs_by_name.get(name)
        if output is None:
            yield f"{label}: answers {name!r}, which the route does not register"
        elif not matches_type(value, output.type) or (output.enum and value not in output.enum):
            yield f"{label}: answer {name}={value!r} is not {output.type} {'of its enum' if output.enum else ''}".rstrip()


def _check_literal(rule: ArgumentRule, parameter: Contract, query: str) -> Iterator[str]:
    value = rule.literal
    for spelling in (value, *rule.also):
        if not matches_type(spelling, parameter.type) or (parameter.enum and spelling not in parameter.enum):
            yield f"literal {spelling!r} is not a valid {parameter.type}"
    said = folded(rule.said if rule.said is not None else _plain(value))
    if said not in folded(query):
        yield f"{said!r} does not stand in the query"
    if rule.said is not None and not isinstance(value, bool) and not parameter.enum:
        yield from _check_digits(value, folded(query))


def _check_digits(value: Any, query: str) -> Iterator[str]:
    """Check that the digits of a number or date said in other words are in the query, in whatever local form."""
    numbers = _NUMBER.findall(query)
    # "12.800" and "1,250" group thousands, "684,50" has a decimal comma: every reading is tried.
    readings = {text.replace(".", "").replace(",", "") for text in numbers} | {
        part for t in numbers for part in re.split("[.,]", t)
    }
    stated = {item.lstrip("0") for item in readings}
    if isinstance(value, int | float):
        points = {t.replace(".", "").replace(",", ".") for t in numbers} | {t.replace(",", "") for t in numbers}
        if not any(same_number(text, value) for text in points):
            yield f"the number {value!r} does not stand in the query"
        return
    for digits in re.findall(r"\d+", _plain(value)):
        if digits.lstrip("0") and digits.lstrip("0") not in stated:
            yield f"the digits {digits} of {value!r} do not stand in the query"


def same_number(text: str, value: float) -> bool:
    """Whether a numeral reads as that number."""
    try:
        return float(text) == float(value)
    except ValueError:
        return False


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_reference(
    rule: ArgumentRule, parameter: Contract, step: Step, key: TaskKey, catalog: Catalog
) -> Iterator[str]:
    assert rule.reference is not None
    source_id, field_name = rule.reference
    if not _surely_done(key, source_id, step.id):
        yield f"refers to step {source_id!r}, a corrective one, which need not have been done"
        return
    outputs = catalog[key.steps_by_id[source_id].route].outputs_by_name
    field = outputs.get(field_name)
    if field is None:
        yield f"refers to {source_id}.{field_name}, which that route does not return.{closest(field_name, outputs)}"
    elif rule.unit_of is not None:
        if field.unit is None or (parameter.enum and field.unit not in parameter.enum):
            yield f"the unit of {source_id}.{field_name} ({field.unit}) is none that is accepted"
    else:
        yield from _check_fit(field, parameter, key.steps_by_id[source_id].outputs.get(field_name), source_id)


def _surely_done(key: TaskKey, source: str, target: str) -> bool:
    """Whether `source` is done before `target` in any case: a corrective step is where `target` comes after its fault."""
    cured = [fault for fault in key.faults if source in fault.cured_by]
    return not cured or any(
        target in (fault.step, *fault.cured_by) or key.comes_before(fault.step, target) for fault in cured
    )


def _check_order(step: Step, key: TaskKey, query: str) -> Iterator[str]:
    """An order that words state and data does not."""
    if step.because is not None and folded(step.because) not in folded(query):
        yield f"'because' quotes {step.because!r}, which does not stand in the query"
    for earlier in step.after:
        implied = key.waits_for[step.id] - {*step.after}
        if earlier in step.sources or any(key.comes_before(earlier, item) for item in implied):
            yield f"comes after {earlier!r}, which data implies already"
        if key.steps_by_id[earlier].role == "corrective" or step.role == "corrective":
            yield f"comes after {earlier!r}, and a corrective step has no place in the order of words"


def _check_fit(field: Contract, parameter: Contract, value: Any, source_id: str) -> Iterator[str]:
    source = f"{source_id}.{field.name}"
    if field.type != parameter.type and (field.type, parameter.type) != ("integer", "number"):
        yield f"{source} is {field.type}, but {parameter.type} is needed"
    if parameter.unit is not None and field.unit != parameter.unit:
        yield f"{source} is in {field.unit}, but {parameter.unit} is needed"
    if parameter.dimension is not None and field.dimension != parameter.dimension:
        yield f"{source} is {field.dimension}, but {parameter.dimension} is needed"
    if parameter.semantic_id and parameter.semantic_id.endswith(".id") and field.semantic_id != parameter.semantic_id:
        yield f"{source} is a {field.semantic_id}, but a {parameter.semantic_id} is needed"
    if parameter.enum and value is not None and value not in parameter.enum:
        yield f"{source}={value!r} is none of {', '.join(parameter.enum)}"


def _check_authorisations(key: TaskKey, catalog: Catalog) -> Iterator[str]:
    needed = {s.route for s in key.steps if catalog[s.route].effect == "destructive"}
    if needed - set(key.authorised):
        yield f"destructive steps that are not authorised: {', '.join(sorted(needed - set(key.authorised)))}"
    if set(key.authorised) - needed:
        yield f"authorised without being required and destructive: {', '.join(sorted(set(key.authorised) - needed))}"


def _check_execution(task: Task, catalog: Catalog, max_load: int) -> Iterator[str]:
    """Carry out the plan in the environment from literals and observations alone."""
    environment = Environment(task.key, catalog, seed_text=task.prompt.id)
    guide = PlanGuide(environment.progress, catalog)
    failures = 0
    for _ in range(max_load + 1):
        calls = guide.next_calls()
        if not calls:
            break
        call = preferred(calls).call
        if any(value is None for value in call.arguments.values()):
            yield f"{call.route_id}: arguments that nothing observed supplies: {_empty(call)}"
            return
        errors = catalog[call.route_id].argument_errors(call.arguments)
        if errors:
            yield f"{call.route_id}: {'; '.join(errors)}"
            return
        observation = environment.execute(call)
        failures += observation.failed
    if environment.progress.incomplete:
        yield "the plan does not complete in the environment"
    scheduled = sum(1 if fault.cured_by else fault.times for fault in task.key.faults)
    if failures != scheduled:
        yield f"{failures} failures were met where {scheduled} are scheduled"


def _empty(call: Call) -> str:
    return ", ".join(name for name, value in call.arguments.items() if value is None)


def check_surface(surface: Surface, smallest: Catalog, protocol: Protocol) -> dict[str, list[str]]:
    """Everything wrong with a surface, by task id; under ``surface`` what concerns several tasks."""
    problems: dict[str, list[str]] = {}
    for task in surface.tasks:
        found = list(check_task(task, smallest, max_load=protocol.episode.max_steps_and_failures))
        if surface.stratum(task.prompt.id) == "recoverable_execution_failure" and not task.key.faults:
            found.append("a recoverable failure without a fault")
        if found:
            problems[task.prompt.id] = found
    shared = list(_check_cells(surface, protocol)) + list(_check_skeletons(surface))
    if shared:
        problems["surface"] = shared
    return problems


def _check_cells(surface: Surface, protocol: Protocol) -> Iterator[str]:
    counts = Counter(surface.cell(task.prompt.id) for task in surface.tasks)
    cells = [f"{stratum}/{language}" for stratum in protocol.strata for language in protocol.languages]
    promised = dict.fromkeys(cells, protocol.tasks_per_cell)
    for cell in sorted({*promised, *counts}):
        if counts[cell] != promised.get(cell, 0):
            yield f"cell {cell} holds {counts[cell]} tasks where {promised.get(cell, 0)} are promised"


def _check_skeletons(surface: Surface) -> Iterator[str]:
    for one, other in combinations(surface.tasks, 2):
        if skeleton(one.prompt.query) == skeleton(other.prompt.query):
            yield f"{one.prompt.id} and {other.prompt.id} are one sentence with other names"
