"""A task in words, as a reviewer would want to read it."""

from __future__ import annotations

from collections.abc import Iterator

from surface.task import ArgumentRule, Task


def _rule(rule: ArgumentRule) -> str:
    if rule.observed is not None:
        return f"← {rule.observed}"
    if rule.unit_of is not None:
        return f"← unit of {rule.unit_of}"
    also = f" or {', '.join(map(repr, rule.also))}" if rule.also else ""
    return repr(rule.literal) + also + (f" (said: {rule.said})" if rule.said is not None else "")


def describe_task(task: Task) -> Iterator[str]:
    """Lines: query, plan with roles and argument sources, faults, authorisations."""
    yield f"{task.prompt.id}  [{task.prompt.language}]"
    yield f"  {task.prompt.query}"
    for number, step in enumerate(task.key.steps, start=1):
        yield f"  {number}. {step.route}  ({step.role}, {step.id})"
        for name, rule in step.arguments.items():
            yield f"       {name} {_rule(rule)}"
        if step.after:
            yield f"       after {', '.join(step.after)} because: {step.because}"
        if step.outputs:
            yield "       gives " + ", ".join(f"{name}={value!r}" for name, value in step.outputs.items())
    for fault in task.key.faults:
        corrective = f"corrective action {', '.join(fault.cured_by)}"
        way_out = corrective if fault.cured_by else f"passes after {fault.times} failed calls"
        yield f"  fault at {fault.step}: {fault.error!r}, {way_out}"
    yield f"  authorised: {', '.join(task.key.authorised) or 'nothing destructive'}"
