"""The spread of every measure over the repeats of a grid: how much of the result is the agent's own randomness."""

from __future__ import annotations

import statistics

import numpy as np
from pydantic import Field

from conditions.running.plan import Plan
from gates.episode_table import COLUMN, EpisodeTable
from gates.measures import COUNTS, MEASURES
from schemarouter.files import Document


class RepeatedMeasure(Document):
    """A measure in every repeat of the grid."""

    values: tuple[float | None, ...] = Field(strict=False)
    """The value of each repeat; null where undefined."""
    spread: float | None
    """Sample standard deviation over the repeats; null where one of them is undefined."""


def repeats(rows: EpisodeTable, plan: Plan) -> dict[str, dict[str, RepeatedMeasure]]:
    """By condition and measure the value of every repeat and their sample standard deviation; empty for a single run.

    A repeat in which a measure is undefined has the value None, and leaves the deviation undefined.
    """
    if plan.repeats == 1:
        return {}
    totals = np.zeros((plan.repeats, len(plan.conditions), len(COUNTS)), np.int64)
    index = {name: n for n, name in enumerate(plan.conditions)}
    at = [unit.repeat - 1 for unit in rows.units], [index[unit.condition] for unit in rows.units]
    np.add.at(totals, at, rows.table)
    result: dict[str, dict[str, RepeatedMeasure]] = {}
    for condition in plan.conditions:
        by_repeat = totals[:, index[condition]]
        result[condition] = {}
        for item in MEASURES:
            above, below = (by_repeat[:, COLUMN[name]].tolist() for name in (item.numerator, item.denominator))
            values = [num / (den * item.scale) if den else None for num, den in zip(above, below, strict=True)]
            defined = [value for value in values if value is not None]
            spread = statistics.stdev(defined) if len(defined) == plan.repeats else None
            result[condition][item.name] = RepeatedMeasure(values=tuple(values), spread=spread)
    return result
