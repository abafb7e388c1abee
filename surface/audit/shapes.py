"""Figures of plan shapes: what is ready at first, what a cure is to its fault, which grammar could be learnt from the plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from schemarouter.agents.reference import preferred
from schemarouter.catalog import Capability, Catalog
from schemarouter.retrieval.text import tokenize
from surface.audit.figure import Figure
from surface.environment import Environment, PlanGuide
from surface.task import Fault, Step, Task, TaskKey

# Shares of tasks, but for the cures, which are shares of faults that need one.
MIN_CURE_ALONE = 0.80
MAX_STATED_ORDER = 0.15
MIN_EVIDENT_START = 0.40
MIN_OTHER_START = 0.30
MIN_ROUTE_TWICE = 0.15
MIN_WITHOUT_IDENTIFIER = 0.10
MIN_SINK_BY_OUTCOME = 0.15
# Routes that override a control: the request has to allow them where they cure a fault.
OVERRIDES = frozenset({
    "access.grant_access", "cloud.switch_region", "matdb.qualify_material", "treasury.release_credit_hold",
})  # fmt: skip


def initial_steps(task: Task, catalog: Catalog) -> tuple[Step, ...]:
    """The steps that are ready before any call."""
    return Environment(task.key, catalog, seed_text=task.prompt.id).progress.ready_steps()


def is_lookup(capability: Capability) -> bool:
    """Whether an endpoint only reads, and gives an identifier."""
    return capability.effect == "read" and any(item.is_identifier for item in capability.outputs)


def starts_evident(task: Task, catalog: Catalog) -> bool:
    """Whether a step that the request makes evident is ready before any call."""
    return any(step.role == "evident" for step in initial_steps(task, catalog))


def starts_otherwise(task: Task, catalog: Catalog) -> bool:
    """Whether something else than a lookup is ready before any call."""
    return any(not is_lookup(catalog[step.route]) for step in initial_steps(task, catalog))


def calls_a_route_twice(task: Task, catalog: Catalog) -> bool:
    """Whether two required steps have one route."""
    return len(task.key.required_routes) < len(task.key.steps)


def needs_no_identifier(task: Task, catalog: Catalog) -> bool:
    """Whether no argument of a required step is an identifier."""
    return not any(
        catalog[step.route].parameters_by_name[name].is_identifier for step in task.key.steps for name in step.arguments
    )


def ends_by_outcome(task: Task, catalog: Catalog) -> bool:
    """Whether a step that no other waits for is latent: the request names its outcome alone."""
    waited_for = frozenset[str]().union(*task.key.waits_for.values())
    return any(step.role == "latent" and step.id not in waited_for for step in task.key.steps)


def states_an_order(task: Task, catalog: Catalog) -> bool:
    """Whether a step comes after another because words say so."""
    return any(step.after for step in task.key.steps)


def hidden_cures(task: Task, catalog: Catalog) -> Iterator[tuple[Fault, bool]]:
    """Every fault that needs a cure, as it shows, and whether another step than a cure is ready then."""
    environment = Environment(task.key, catalog, seed_text=task.prompt.id)
    guide = PlanGuide(environment.progress, catalog)
    while calls := guide.next_calls():
        shown = {*environment.progress.shown}
        environment.execute(preferred(calls).call)
        others = any(step.role != "corrective" for step in environment.progress.ready_steps())
        for index in sorted(environment.progress.shown - shown):
            if task.key.faults[index].cured_by:
                yield task.key.faults[index], others


def unrelated_cures(key: TaskKey, catalog: Catalog) -> Iterator[Fault]:
    """Faults whose cures neither give nor change what the failing call takes, nor share a word with the error."""
    for fault in key.faults:
        taken = {name for item in catalog[key.steps_by_id[fault.step].route].parameters for name in _names(item)}
        cures = [catalog[key.steps_by_id[step].route] for step in fault.cured_by]
        touched = {name for cure in cures for item in (*cure.parameters, *cure.outputs) for name in _names(item)}
        said = {*tokenize(fault.error.replace("_", " "))}
        words = {word for cure in cures for word in tokenize(f"{cure.operation} {cure.description}".replace("_", " "))}
        if cures and not (taken & touched or said & words):
            yield fault


def _names(item: object) -> set[str]:
    return {name for name in (getattr(item, "name", None), getattr(item, "semantic_id", None)) if name}


def overriding_cures(key: TaskKey) -> Iterator[Fault]:
    """Faults that a route of `OVERRIDES` cures."""
    for fault in key.faults:
        if any(key.steps_by_id[step].route in OVERRIDES for step in fault.cured_by):
            yield fault


def shape_figures(tasks: Sequence[Task], catalog: Catalog) -> list[Figure]:
    """The shares of tasks of each shape, each with its bound."""
    shares = (
        ("tasks with an evident step ready at first", starts_evident, MIN_EVIDENT_START, None),
        ("tasks with something else than a lookup ready at first", starts_otherwise, MIN_OTHER_START, None),
        ("tasks that call one route twice", calls_a_route_twice, MIN_ROUTE_TWICE, None),
        ("tasks that need no identifier", needs_no_identifier, MIN_WITHOUT_IDENTIFIER, None),
        ("tasks with a last step named by its outcome alone", ends_by_outcome, MIN_SINK_BY_OUTCOME, None),
        ("tasks with an order that words state", states_an_order, None, MAX_STATED_ORDER),
    )
    figures = []
    for name, has, minimum, maximum in shares:
        count = sum(has(task, catalog) for task in tasks)
        share = count / max(1, len(tasks))
        holds = (minimum is None or share >= minimum) and (maximum is None or share <= maximum)
        bound = f"≥ {minimum:.0%}" if minimum is not None else f"≤ {maximum:.0%}"
        figures.append(Figure(name, f"{count} of {len(tasks)} ({share:.1%})", holds, bound))
    return [*figures, *cure_figures(tasks, catalog)]


def cure_figures(tasks: Sequence[Task], catalog: Catalog) -> list[Figure]:
    """Whether the cure is the only ready step when its fault shows, what it has to do with it, and what it overrides."""
    shown = [(task.prompt.id, hidden) for task in tasks for _, hidden in hidden_cures(task, catalog)]
    alone = sum(not hidden for _, hidden in shown)
    others = " ".join(name for name, hidden in shown if hidden)
    unrelated = [task.prompt.id for task in tasks for _ in unrelated_cures(task.key, catalog)]
    overriding = [(task.prompt.id, fault.consent) for task in tasks for fault in overriding_cures(task.key)]
    unasked = [name for name, consent in overriding if consent is None]
    share = alone / max(1, len(shown))
    return [
        Figure(
            "cures that are the only ready step",
            f"{alone} of {len(shown)} ({share:.1%}) {others}".strip(),
            share >= MIN_CURE_ALONE,
            f"≥ {MIN_CURE_ALONE:.0%}",
        ),
        Figure(
            "cures unrelated to call and error", f"{len(unrelated)} {' '.join(unrelated)}".strip(), not unrelated, "0"
        ),
        Figure(
            "cures that override a control unasked",
            f"{len(unasked)} of {len(overriding)} {' '.join(unasked)}".strip(),
            not unasked,
            "0",
        ),
    ]


def ready_set_sizes(tasks: Sequence[Task], catalog: Catalog) -> Figure:
    """How many routes are ready at the decision points of the plans; reported."""
    sizes: Counter[int] = Counter()
    for task in tasks:
        environment = Environment(task.key, catalog, seed_text=task.prompt.id)
        guide = PlanGuide(environment.progress, catalog)
        while calls := guide.next_calls():
            sizes[len({item.call.route_id for item in calls})] += 1
            environment.execute(preferred(calls).call)
    return Figure("routes ready at a decision point", ", ".join(f"{size}: {sizes[size]}" for size in sorted(sizes)))
