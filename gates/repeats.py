"""How far apart the repeats of a run are: what an agent's own chance adds to what tasks differ by."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from conditions.running.plan import Plan
from gates.episode_table import COLUMN, Rows
from gates.measures import FIGURES, MEASURES


def repeats(rows: Rows, plan: Plan) -> dict[str, dict[str, Any]]:
    """By condition and measure the value of every repeat and their sample standard deviation; empty for a single run.

    A repeat in which a measure is undefined has the value None, and leaves the deviation undefined.
    """
    if plan.repeats == 1:
        return {}
    totals = np.zeros((plan.repeats, len(plan.conditions), len(FIGURES)), np.int64)
    place = {name: at for at, name in enumerate(plan.conditions)}
    at = [unit.repeat - 1 for unit in rows.units], [place[unit.condition] for unit in rows.units]
    np.add.at(totals, at, rows.table)
    told: dict[str, dict[str, Any]] = {}
    for condition in plan.conditions:
        by_repeat = totals[:, place[condition]]
        told[condition] = {}
        for item in MEASURES:
            above, below = (by_repeat[:, COLUMN[name]].tolist() for name in (item.numerator, item.denominator))
            values = [num / (den * item.scale) if den else None for num, den in zip(above, below, strict=True)]
            defined = [value for value in values if value is not None]
            spread = statistics.stdev(defined) if len(defined) == plan.repeats else None
            told[condition][item.name] = {"values": values, "spread": spread}
    return told
