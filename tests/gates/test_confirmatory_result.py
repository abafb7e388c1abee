"""The first confirmatory run is kept; later ones are compared with it and change nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from conditions.storage.run_directory import AGGREGATE_FILE, RUN_FILE, VERDICT_FILE
from gates.aggregate import read_complete_run
from gates.confirmatory_result import keep_or_compare
from gates.episode_table import EpisodeTable
from gates.gate import judge
from tests.gates.conftest import Slice


def test_the_first_is_kept_with_header_aggregate_and_verdict_and_a_later_one_is_compared(
    real: Slice, tmp_path: Path
) -> None:
    result = read_complete_run(real.copy(tmp_path), real.reference)
    verdict = judge(result, real.protocol)
    kept = tmp_path / "results" / "name"
    assert "confirmatory result" in keep_or_compare(kept, result, verdict)
    assert {path.name for path in kept.iterdir()} == {AGGREGATE_FILE, RUN_FILE, VERDICT_FILE}
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert "30 of 30 episodes measure as" in keep_or_compare(kept, result, verdict)
    first = result.rows[0]
    counts = dataclasses.replace(first.counts, model_turns=first.counts.model_turns + 1)
    rows = EpisodeTable.of([dataclasses.replace(first, counts=counts), *result.rows[1:]])
    other = dataclasses.replace(result, rows=rows)
    assert "29 of 30 episodes measure as" in keep_or_compare(kept, other, verdict)
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
