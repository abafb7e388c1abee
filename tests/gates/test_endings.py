"""How episodes ended, by condition and reason: in the counts of a row, the aggregate, the verdict and their table."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from gates.aggregate import read_complete_run
from gates.gate import judge
from schemarouter.agents.base import Action, Guide
from schemarouter.cli.render import endings_table
from schemarouter.records import OUTCOMES, Ended
from tests.toys import Scripted, read_records, reference, toy_protocol, toy_run, toy_runner

ENDS: tuple[list[Any], ...] = (
    [ValueError("broken")],
    [Action("stop", reason="enough")],
    [Action("stop", reason="stalled")],
    [Action("ask")] * 12,
)


def test_endings_are_counted_by_condition_and_reason_from_the_records(tmp_path: Path) -> None:
    made = count()

    def agent(guide: Guide) -> Any:
        number = next(made) % 7
        return Scripted(list(ENDS[number])) if number < len(ENDS) else reference(guide)

    run = read_complete_run(tmp_path / "run", toy_run(tmp_path / "run", toy_runner(agent=agent)))
    expected: dict[str, Counter[str]] = {name: Counter() for name in run.plan.conditions}
    for record in read_records(tmp_path / "run"):
        last = record.events[-1]
        assert isinstance(last, Ended)
        expected[record.condition][last.reason] += 1
    found = run.aggregate().endings
    assert {name: {reason: n for reason, n in ends.items() if n} for name, ends in found.items()} == expected
    assert {reason for ends in expected.values() for reason in ends} >= {"completed", "stalled", "exception"}
    assert all(tuple(ends) == OUTCOMES for ends in found.values())
    assert judge(run, toy_protocol()).endings == found
    for row in run.rows:
        assert sum(getattr(row.counts, f"ended_{reason}") for reason in OUTCOMES) == row.counts.episodes == 1


def test_the_table_has_the_reasons_that_occurred_and_no_others() -> None:
    table = endings_table({"FULL": {"completed": 3, "turn_limit": 0, "exception": 0}, "ORACLE": {"turn_limit": 2}})
    cells = [[*column.cells] for column in table.columns]
    assert cells == [["completed", "turn limit"], ["3", "0"], ["0", "2"]]
