"""Every task of the development surface can be solved: FULL and ORACLE pass all of them with the reference agent."""

from __future__ import annotations

from collections import Counter

import pytest

from conditions.running.plan import make_plan
from conditions.running.runner import Runner
from preregistration.protocol import load_protocol
from schemarouter.records import Ended, Observed
from schemarouter.retrieval.spec import parse
from surface.loader import load_catalogs, load_surface

PROTOCOL = load_protocol("development")
SURFACE = load_surface("development")
SMALLEST = min(PROTOCOL.catalogs)


@pytest.mark.parametrize("condition", ["FULL", "ORACLE"])
def test_full_and_oracle_with_the_reference_agent_complete_every_development_task(condition: str) -> None:
    catalogs = load_catalogs([SMALLEST])
    runner = Runner(PROTOCOL, SURFACE, catalogs, retriever=parse("random"), agent=parse("reference"))
    plan = make_plan(PROTOCOL, SURFACE, catalogs=[SMALLEST], conditions=[condition])
    assert len(plan.units) == 90
    failed, wrong = Counter[str](), []
    for unit in plan.units:
        record = runner.run(unit)
        last = record.events[-1]
        if not isinstance(last, Ended) or last.reason != "completed":
            failed[unit.task] += 1
        outcomes = [event.outcome for event in record.events if isinstance(event, Observed)]
        faults = SURFACE.key(unit.task).faults
        if sum(outcome != "ran" for outcome in outcomes) != sum(1 if f.cured_by else f.times for f in faults):
            wrong.append(unit.task)
    assert not failed
    assert not wrong, "the reference agent failed more often than is scheduled"
