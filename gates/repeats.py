"""How far apart the repeats of a run are: what an agent's own chance adds to what tasks differ by."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from conditions.plan import Plan
from gates.measures import MEASURES
from gates.rows import Rows
from gates.sums import Sums


def repeats(rows: Rows, tasks: Sequence[str], plan: Plan) -> dict[str, dict[str, Any]]:
    """By condition and measure the value of every repeat and their sample standard deviation; empty for a single run.

    A repeat in which a measure is undefined has the value None, and leaves the deviation undefined.
    """
    if plan.repeats == 1:
        return {}
    by_repeat = [Sums(part, tasks) for part in rows.by_repeat(plan.repeats)]
    told: dict[str, dict[str, Any]] = {}
    for condition in plan.conditions:
        tables = [sums.table(condition) for sums in by_repeat]
        told[condition] = {}
        for item in MEASURES:
            ratios = [table.ratio(item) for table in tables]
            values = [numerator / denominator if denominator else None for numerator, denominator in ratios]
            defined = [value for value in values if value is not None]
            spread = statistics.stdev(defined) if len(defined) == plan.repeats else None
            told[condition][item.name] = {"values": values, "spread": spread}
    return told
