"""The first confirmatory run is kept; later ones are held against it and change nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE, VERDICT_FILE
from gates.aggregate import aggregate
from gates.confirmatory_result import keep_or_compare
from gates.gate import judge
from tests.gates.conftest import Slice


def test_the_first_is_kept_with_header_aggregate_and_verdict_and_a_later_one_is_compared(
    real: Slice, tmp_path: Path
) -> None:
    result = aggregate(real.copy(tmp_path), real.world)
    verdict = judge(result, real.protocol)
    kept = tmp_path / "results" / "name"
    assert "confirmatory result" in keep_or_compare(kept, result, verdict)
    assert {path.name for path in kept.iterdir()} == {AGGREGATE_FILE, RUN_FILE, VERDICT_FILE}
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert "30 of 30 episodes measure as" in keep_or_compare(kept, result, verdict)
    first = result.rows[0]
    figures = dataclasses.replace(first.figures, model_turns=first.figures.model_turns + 1)
    other = dataclasses.replace(result, rows=(dataclasses.replace(first, figures=figures), *result.rows[1:]))
    assert "29 of 30 episodes measure as" in keep_or_compare(kept, other, verdict)
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
