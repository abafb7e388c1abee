"""Whole runs are measured by the command, and runs that are killed and resumed give what an undisturbed run gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import runs
from benchmarks.runs import cost_of, run_rows
from schemarouter.errors import SchemaRouterError

pytestmark = pytest.mark.slow


def test_runs_are_measured_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_AGGREGATED", (1,))
    monkeypatch.setattr(runs, "_SPIN_STEPS", 10_000)
    rows = run_rows(5, 2)
    assert [(row.entries, row.system) for row in rows] == [
        (10, "one process, cached"),
        (10, "two workers, cached"),
        (10, "one process, nothing cached"),
        (10, "one process"),
        (10, "two workers"),
        (5, "one process"),
    ]
    assert all(row.median_ms > 0 and row.peak_mb is not None and row.peak_mb > 10 for row in rows)
    assert rows[0].ratio == rows[3].ratio == rows[5].ratio == 1
    assert "a bare loop" in rows[4].note


def test_a_command_that_fails_is_reported_with_its_message() -> None:
    with pytest.raises(SchemaRouterError, match="no such thing"):
        cost_of([sys.executable, "-c", "import sys; sys.exit('no such thing')"])


# In a process of its own: it forks, which a process with threads must not.
KILL = """
import random, sys
from pathlib import Path
from benchmarks import torture
torture.TASKS = 2
folder = Path(sys.argv[1])
victim = torture.Victim(folder / "whole")
assert torture.ended(victim.start(folder / "whole", 1.0))
whole, chance = victim.result(folder / "whole"), random.Random(7)
for number, power in enumerate((True, False, True)):
    out = folder / str(number)
    assert torture.kill_once(victim, out, chance, 0.05, power=power)
    assert victim.result(out) == whole
# Nothing at all had reached the disk: the run begins anew.
victim.forget_syncs()
victim.lose_power(folder / "0")
assert (folder / "0" / torture.shard_name(torture.WHOLE)).stat().st_size == 0
assert torture.ended(victim.start(folder / "0", 1.0))
assert victim.result(folder / "0") == whole
"""


def test_runs_that_are_killed_and_resumed_give_the_aggregate_of_the_undisturbed_one(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILL, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
