"""Enough toy tasks to be divided into folds, and their design."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gates.tuning.design import FeatureDesign, Penalty
from schemarouter.catalog.views import CatalogView
from surface.loader import Surface
from tests.toys import CATALOGS, TASKS, toy_protocol

WEAK, STRONG = Penalty(1e-3, 1e-2), Penalty(1e-1, 1.0)
_WORDINGS = ("", "Kindly: ")


def many() -> Surface:
    """Every toy task in two wordings."""
    made = [
        task.model_copy(
            update={
                "prompt": task.prompt.model_copy(
                    update={"id": f"{task.prompt.id[:-2]}{n}{task.prompt.id[-1]}", "query": head + task.prompt.query}
                )
            }
        )
        for n, head in enumerate(_WORDINGS)
        for task in TASKS
    ]
    strata = {task.prompt.id: f"stratum_{number % 2}" for number, task in enumerate(made)}
    return Surface("development", tuple(sorted(made, key=lambda task: task.prompt.id)), strata)


@cache
def design(view: CatalogView = "full") -> FeatureDesign:
    """The design of the toy tasks; nobody changes it."""
    return FeatureDesign(toy_protocol(), many(), CATALOGS, view)


def altered(tasks: set[str]) -> FeatureDesign:
    """The design with other queries and other next routes for some tasks."""
    made = FeatureDesign(toy_protocol(), many(), CATALOGS, "full")
    made.decision_points = [
        replace(
            point,
            state=point.state.model_copy(update={"original_query": "Purge the crane"}),
            ready=("aux.purge",),
            coming=("aux.purge", *point.coming),
        )
        if point.task in tasks
        else point
        for point in made.decision_points
    ]
    return made
