"""Plans with one step done wrong: a near twin is called, or a value of the wrong provenance is passed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemarouter.agents.base import SeenValue, SeenValues, Turn, observed_values
from schemarouter.agents.reference import preferred
from schemarouter.catalog import Capability, Catalog
from schemarouter.state import Call, Observation
from surface.environment import Environment, PlanGuide
from surface.task import Task


def near_twins(capability: Capability, catalog: Catalog) -> Iterator[Capability]:
    """Other endpoints of the provider, and those of other providers that take the same required semantic ids."""
    wanted = {p.semantic_id for p in capability.required_parameters}
    for item in catalog.capabilities:
        if item.route_id != capability.route_id and (
            item.provider == capability.provider
            or (wanted and wanted == {p.semantic_id for p in item.required_parameters})
        ):
            yield item


def finishes_with_twin(task: Task, catalog: Catalog, step_id: str, twin: Capability) -> bool:
    """Carry out the plan with `twin` called wherever `step_id` comes; whether the task completes."""
    environment = Environment(task.key, catalog, seed_text=task.prompt.id)
    guide = PlanGuide(environment.progress, catalog)
    history: list[Turn] = []
    for _ in range(len(task.key.steps) + 4):
        calls = guide.next_calls()
        if not calls:
            break
        following = preferred(calls)
        call = following.call
        if following.step == step_id:
            call = Call(twin.route_id, _filled(twin, history, catalog, list(guide.literals())))
        history.append(Turn(call, environment.execute(call)))
    return not environment.progress.incomplete


def _filled(twin: Capability, history: list[Turn], catalog: Catalog, literals: list[SeenValue]) -> dict[str, Any]:
    """Arguments for a twin from what was seen; a parameter that nothing fits takes its contract's example."""
    values = SeenValues([*observed_values(history, catalog), *literals])
    found = [(parameter, values.fitting(parameter)) for parameter in twin.required_parameters]
    return {parameter.name: value.value if value is not None else parameter.example for parameter, value in found}


def wrong_identifiers(task: Task, catalog: Catalog) -> Iterator[tuple[str, str, Observation]]:
    """Call every step with each other identifier at hand of the same kind or name pattern; yields step, argument, answer."""
    environment = Environment(task.key, catalog, seed_text=task.prompt.id)
    guide = PlanGuide(environment.progress, catalog)
    seen: list[SeenValue] = []
    for _ in range(len(task.key.steps) + 4):
        calls = guide.next_calls()
        if not calls:
            return
        following = preferred(calls)
        step, call = task.key.steps_by_id[following.step], following.call
        for name, rule in step.arguments.items():
            contract = catalog[step.route].parameters_by_name[name]
            if rule.reference is None or not contract.is_identifier:
                continue
            right = call.arguments[name]
            others = {v.value for v in seen if v.contract.is_identifier and v.contract.type == contract.type} - {right}
            for other in sorted(others, key=str):
                yield step.id, name, environment.execute(Call(call.route_id, {**call.arguments, name: other}))
        observation = environment.execute(call)
        outputs = catalog[call.route_id].outputs_by_name
        if not observation.failed:
            seen += [SeenValue(value, outputs[key]) for key, value in observation.payload.items()]
